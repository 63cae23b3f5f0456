package admin

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/penstock/penstock"
)

// Find chooses messages of an outbox or jobs of a queue, in any state: the one with an ID, or the newest with a Key.
type Find struct {
	In  string // the outbox or the queue
	ID  string // the id of a message or a job
	Key string
	// Group is the group of a job. A job that was not tried yet may be found by its ID only within its group.
	Group string
	Limit int // the most that are returned, 1 to MaxRows
}

// Found is a message or a job, and where it is. Fields of a job that a Message does not have are in Where[0].
type Found struct {
	Message  penstock.Message // of a job: its payload, key, headers and id, the last also as Seq
	Group    string
	Priority int
	// Where has one entry for each subscription of a message, or one entry for a job.
	Where []Whereabouts
}

// Whereabouts show where a message or a job is, and which attempts the store has recorded.
type Whereabouts struct {
	Subscription string `json:"subscription,omitempty"`
	// State of a job is ready, running, delayed, behind its key, waiting for barriers, or dead. State of a message is one of these:
	//
	//   - waiting: it is not settled
	//   - settled: it was delivered, or passed over by a filter or the start; no store records which
	//   - parked
	//   - dead
	//   - sent back: it is a dead letter that is on its way again
	//   - written: the store does not know
	State    string             `json:"state"`
	Attempts int                `json:"attempts"`
	Failures []penstock.Failure `json:"failures"`
	Worker   string             `json:"worker,omitempty"`
	// WaitsFor is why a job that is ready does not start: pause, hold, limit or rate; key if it waits behind another one of
	// its key. Stores leave it empty, but for a job that waits for barriers: "barrier 7: 3 not ended, 1 dead".
	WaitsFor string `json:"waits_for,omitempty"`
	// Report is what the last attempt of a job that reported has reported, as JSON.
	Report json.RawMessage `json:"report,omitempty"`
	// Until is when it is tried again, or when its lease ends. DiedAt is when it became a dead letter. A running job has been leased Since then.
	Until  time.Time `json:"until,omitzero"`
	DiedAt time.Time `json:"died_at,omitzero"`
	Since  time.Time `json:"since,omitzero"`
}

// JobQuery asks for a page of the jobs of a queue that are in one state.
type JobQuery struct {
	Queue  string
	State  string // ready, running, delayed or waiting, as QueueStatus counts them
	Group  string // of ready jobs: each group has its own order. Of others: if it is not empty, only those of this group
	Newest bool   // the newest first; otherwise those that are next
	// Kind, Key, CreatedBefore and CreatedAfter narrow the choice if they are not zero. No index has them: see JobPage.Looked.
	Kind, Key                   string
	CreatedBefore, CreatedAfter time.Time
	After                       string // where the page begins: Next of the page before; empty for the first
	Limit                       int    // 1 to MaxRows
}

// JobPage is a page of jobs.
type JobPage struct {
	Jobs []Found
	// Next is where the next page begins, or empty at the end.
	Next string
	// Looked is how many jobs were looked at. A search ends after a few thousand, though others may match: these are on the next page.
	Looked int
}

// Filters reports whether some of the jobs that are looked at may not match.
func (q JobQuery) Filters() bool {
	return q.Group != "" && q.State != "ready" || q.Kind != "" || q.Key != "" || !q.CreatedBefore.IsZero() || !q.CreatedAfter.IsZero() || q.Newest && q.State == "delayed"
}

// Validate returns a *penstock.FieldError for a state or a limit that no page can have.
func (q JobQuery) Validate() error {
	switch q.State {
	case "ready", "running", "delayed", "waiting":
		return ValidateLimit(q.Limit)
	}
	return &penstock.FieldError{Field: "state", Problem: fmt.Sprintf("is %q", q.State), Hint: "use ready, running, delayed or waiting"}
}
