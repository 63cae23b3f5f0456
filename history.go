package penstock

import (
	"context"
	"encoding/json"
	"time"
)

const (
	// MaxReportBytes is the most that a Report has.
	MaxReportBytes = 64 << 10
	// MinKeepDoneBytes is the least that QueueSettings.KeepDoneBytes takes.
	MinKeepDoneBytes = 1 << 20
)

// Reporter is a queue that keeps what a worker says of a job it runs: how far it is, or what came of it.
type Reporter interface {
	// Report replaces what was said before with JSON of up to MaxReportBytes. ErrLeaseLost once the lease is.
	Report(ctx context.Context, lease int64, report []byte) error
}

// HistoryStore is a store that can keep jobs that were acked: see QueueSettings.KeepDone. Jobs that were dequeued or
// cancelled are not kept; dead letters are by themselves.
type HistoryStore interface {
	// DoneJobs returns jobs that are kept, about in the order in which they were done, the latest first, and where the next page begins: empty
	// at the end. A page may have fewer jobs than were asked for, or none, and be followed by more.
	DoneJobs(ctx context.Context, q DoneJobQuery) (jobs []DoneJob, next string, err error)
}

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
	Failures []Failure `json:"failures,omitempty"`
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
