package admin

import (
	"encoding/json"
	"time"

	"github.com/penstock/penstock"
)

// DoneJobQuery says which of a queue's kept jobs are wanted.
type DoneJobQuery struct {
	Queue string
	IDs   []int64 // only these, if there are any
	After string  // the next of the page before
	Limit int     // 1 to MaxClaim
}

// DoneJob is what is kept of a job that was acked.
type DoneJob struct {
	ID        int64     `json:"id"`
	Key       string    `json:"key,omitempty"`
	Group     string    `json:"group,omitempty"`
	Priority  int       `json:"priority"`
	Attempt   int       `json:"attempt"` // the one that succeeded
	Worker    string    `json:"worker,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	// ClaimedAt is zero for a job that was claimed before the queue kept history. Of jobs that were claimed and acked together all
	// have the same times.
	ClaimedAt  time.Time `json:"claimed_at,omitzero"`
	FinishedAt time.Time `json:"finished_at"`
	// Failures are of the attempts before, up to MaxFailures, oldest first.
	Failures []penstock.Failure `json:"failures,omitempty"`
	// Report is what its worker said of it last.
	Report json.RawMessage `json:"report,omitempty"`
}

// Duration is from the claim to the ack, 0 where the claim is not known.
func (d *DoneJob) Duration() time.Duration {
	if d.ClaimedAt.IsZero() {
		return 0
	}
	return d.FinishedAt.Sub(d.ClaimedAt)
}
