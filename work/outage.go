package work

import (
	"sync"
	"sync/atomic"
	"time"
)

// outage tracks failing calls of the database. It logs one line when the first fails, and one when all work
// again.
type outage struct {
	some  atomic.Bool
	mu    sync.Mutex
	calls map[string]bool // calls that fail
	since time.Time
}

// fails notes that a call failed.
func (w *worker) fails(call string, err error, more ...any) {
	o := &w.outage
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.calls) == 0 {
		o.calls, o.since = map[string]bool{}, time.Now()
		w.log.Warn("cannot "+call+"; trying until it works", append(more, "err", err)...)
	}
	o.calls[call] = true
	o.some.Store(true)
}

// works notes that a call succeeded.
func (w *worker) works(call string) {
	o := &w.outage
	if !o.some.Load() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if delete(o.calls, call); len(o.calls) == 0 {
		w.log.Info("the database answers again", "after", time.Since(o.since))
		o.some.Store(false)
	}
}

// The calls by name.
const (
	claiming    = "claim jobs"
	extending   = "extend the leases of jobs"
	maintaining = "do the queue's maintenance"
	acking      = "write down that jobs are done"
	failing     = "write down that a job failed"
)
