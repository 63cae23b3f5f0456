package admin

import (
	"encoding/json"
	"time"

	"github.com/penstock/penstock"
)

// DoneJobQuery chooses jobs that a queue keeps after they were acked.
type DoneJobQuery struct {
	Queue string
	IDs   []int64 // only these jobs; empty means all
	// Kind, if it is not empty, chooses jobs of this kind. A call looks at some thousands of jobs, and ends then though others may match.
	Kind  string
	After string // where the page begins: the next that DoneJobs returned
	Limit int    // 1 to MaxClaim
}

// DoneJob is a job that was acked, as the history keeps it.
type DoneJob struct {
	ID        int64     `json:"id"`
	Kind      string    `json:"kind,omitempty"`
	Key       string    `json:"key,omitempty"`
	Group     string    `json:"group,omitempty"`
	Priority  int       `json:"priority"`
	Attempt   int       `json:"attempt"` // the one that succeeded
	Worker    string    `json:"worker,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	// ClaimedAt is zero for a job that an older version claimed. Jobs that were claimed and acked together have
	// the same times.
	ClaimedAt  time.Time `json:"claimed_at,omitzero"`
	FinishedAt time.Time `json:"finished_at"`
	// Failures are those of earlier attempts, up to MaxFailures, oldest first.
	Failures []penstock.Failure `json:"failures,omitempty"`
	// Report is the last report of its worker.
	Report json.RawMessage `json:"report,omitempty"`
}

// Duration is the time from the claim to the ack, or 0 if the time of the claim is not known.
func (d *DoneJob) Duration() time.Duration {
	if d.ClaimedAt.IsZero() {
		return 0
	}
	return d.FinishedAt.Sub(d.ClaimedAt)
}
