package tables

import (
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/backoff"
	"github.com/penstock/penstock/internal/pg"
)

// Tried is a claimed job whose attempt did not end well.
type Tried struct {
	Lease, Seq int64
	Attempt    int // the one that it is in
	Worker     string
	Limit      int            // of attempts
	Left       *time.Duration // until its deadline, nil without one
	History    pg.History

	Dead  bool
	After time.Duration // until it runs again
}

// Never: there is no other attempt.
const Never = time.Duration(-1 << 63)

// Failed notes a failure, and gives the job up if that was the last attempt, or after is Never. Otherwise a negative one is the
// queue's own backoff.
func (j *Tried) Failed(reason string, after time.Duration) {
	j.History = j.History.And([]penstock.Failure{{Attempt: j.Attempt, At: time.Now().UTC(), Err: reason}})
	j.Dead = after == Never || j.Attempt >= j.Limit
	if after < 0 && after != Never {
		after = backoff.After(j.Attempt)
	}
	j.Back(after)
}

// Back has the job run again after a while. At its deadline it comes back to end: until then the next job of its key waits for it.
func (j *Tried) Back(after time.Duration) {
	if j.Left != nil {
		after = min(after, *j.Left)
	}
	j.After = max(after, 0)
}

// Expired is the failure of a lease that has ended.
func (j *Tried) Expired() {
	reason := "lease expired"
	if j.Worker != "" {
		reason += ", held by " + j.Worker
	}
	j.Failed(reason, 0)
}
