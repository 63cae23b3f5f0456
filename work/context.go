package work

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/penstock/penstock"
)

// jobContext is a handler's context. A cancellable context costs as much as everything else that is done for a
// job, and a quick handler does not use it. So it is made when the handler first uses it.
type jobContext struct {
	parent context.Context
	queue  Queue // of Report
	log    *slog.Logger
	job    *penstock.Job

	mu    sync.Mutex
	made  context.Context // nil: the handler has not used it
	stop  context.CancelCauseFunc
	over  bool
	cause error
	steps steps
}

var _ context.Context = (*jobContext)(nil)

func (c *jobContext) get() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made == nil {
		c.made, c.stop = context.WithCancelCause(c.parent)
		if c.over {
			c.stop(c.cause)
		}
	}
	return c.made
}

// end ends it; the first cause counts, nil is context.Canceled.
func (c *jobContext) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	c.over, c.cause = true, cause
	if c.made != nil {
		c.stop(cause)
	}
}

// Deadline implements context.Context.
func (c *jobContext) Deadline() (time.Time, bool) { return c.parent.Deadline() }

// Done implements context.Context.
func (c *jobContext) Done() <-chan struct{} { return c.get().Done() }

// Err implements context.Context.
func (c *jobContext) Err() error { return c.get().Err() }

// Value implements context.Context. Package context calls it to find a cancellable parent, so it makes the context.
func (c *jobContext) Value(key any) any {
	if key == (jobKey{}) {
		return c
	}
	return c.get().Value(key)
}

// jobKey is the key by which Report finds a job's context.
type jobKey struct{}
