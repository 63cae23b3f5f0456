package main

import (
	"sync"
	"time"
)

// message is a message of a producer, as the journal and the business table know it.
type message struct {
	ID    string
	Key   string // empty: unordered
	N     int64  // counts the committed messages of the key, from 1
	Topic string
	OwnID bool // the broker also gets its id; else the outbox derives one
	// Tenant of a distributed outbox, which has the key for itself.
	Tenant string `json:",omitempty"`
}

// outcome is a producer's knowledge of its transaction.
type outcome uint8

const (
	open outcome = iota
	committed
	rolledBack
	unknown // the connection ended between COMMIT and its answer
)

func (o outcome) String() string {
	return [...]string{"still open", "acknowledged", "rolled back", "without an answer"}[o]
}

// entry is the life of a message as its producer saw it.
type entry struct {
	message
	Written time.Time
	Ended   time.Time // of the transaction
	Outcome outcome
}

// journal holds the producers' actions.
type journal struct {
	mu      sync.Mutex
	entries map[string]*entry
	counts  [unknown + 1]int
}

func newJournal() *journal { return &journal{entries: map[string]*entry{}} }

// wrote notes a message of a transaction that is open.
func (j *journal) wrote(m message) *entry {
	e := &entry{message: m, Written: time.Now()}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries[m.ID] = e
	j.counts[open]++
	return e
}

// ended notes how a transaction ended, as far as its producer knows.
func (j *journal) ended(entries []*entry, o outcome) {
	now := time.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range entries {
		j.counts[e.Outcome]--
		e.Ended, e.Outcome = now, o
		j.counts[o]++
	}
}

func (j *journal) count(o outcome) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.counts[o]
}
