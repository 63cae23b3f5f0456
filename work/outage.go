package work

import (
	"sync"
	"sync/atomic"
	"time"
)

// outage tracks failing calls of the database. It logs a line when the first fails, and one when all work again. In between it logs each other error once,
// for example that a password is wrong after a server was stopped: one line in logAgain at most.
type outage struct {
	some   atomic.Bool
	mu     sync.Mutex
	calls  map[string]bool // calls that fail
	since  time.Time
	logged time.Time
	errs   map[string]bool // that were logged
}

const (
	logAgain  = time.Minute
	maxLogged = 100 // errors that an outage remembers
)

// fails notes that a call failed.
func (w *worker) fails(call string, err error, more ...any) {
	o := &w.outage
	o.mu.Lock()
	defer o.mu.Unlock()
	begins, now := len(o.calls) == 0, time.Now()
	if begins {
		o.calls, o.errs, o.since = map[string]bool{}, map[string]bool{}, now
	}
	if text := err.Error(); begins || !o.errs[text] && now.Sub(o.logged) >= logAgain {
		o.logged = now
		if len(o.errs) < maxLogged {
			o.errs[text] = true
		}
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
