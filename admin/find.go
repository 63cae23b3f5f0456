package admin

import (
	"time"

	"github.com/penstock/penstock"
)

// Find chooses messages of an outbox, or jobs of a queue, wherever they are now: that of an ID, or the newest of a Key.
type Find struct {
	In  string // the outbox or the queue
	ID  string // of a job, its number
	Key string
	// Group is that of a job: a job that nobody has tried yet may be found by its ID within its group only.
	Group string
	Limit int
}

// Found is a message or a job, and where it is. Of a job all that is not in a Message is in Where[0].
type Found struct {
	Message penstock.Message // of a job its payload, key, headers and id, which is its Seq, too
	Group   string
	// Where has one for each subscription of a message, or one for a job.
	Where []Whereabouts
}

// Whereabouts say where a message or a job is and what it has been through, as far as the store has kept that.
type Whereabouts struct {
	Subscription string `json:"subscription,omitempty"`
	// State of a message: waiting, settled (delivered, or passed over by a filter or the start; no store keeps which), parked, dead, sent back (a dead letter
	// that is on its way again), written (it cannot be told). Of a job: ready, running, delayed, behind its key, dead.
	State    string             `json:"state"`
	Attempts int                `json:"attempts"`
	Failures []penstock.Failure `json:"failures"`
	Worker   string             `json:"worker,omitempty"`
	// Until is when it is tried again, or when a lease ends; DiedAt when it became a dead letter.
	Until  time.Time `json:"until,omitzero"`
	DiedAt time.Time `json:"died_at,omitzero"`
}
