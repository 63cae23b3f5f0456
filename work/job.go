package work

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/penstock/penstock"
)

// do runs the handler on one job and sees to it that its end is written down.
func (w *worker) do(handling, writing context.Context, t *task) {
	ctx, cancel := context.WithCancelCause(handling)
	defer cancel(nil)
	w.mu.Lock()
	t.cancel = cancel
	lost := t.lost
	w.mu.Unlock()
	if lost {
		cancel(penstock.ErrLeaseLost)
	}
	err := errors.New("the handler ended its goroutine without returning")
	start := time.Now()
	w.Observer.Started(t.job, start)
	// Deferred for the sake of a handler that does that.
	defer func() {
		lost, gone := w.returned(t, time.Since(start))
		w.handlers.Done()
		switch {
		case errors.Is(err, ErrSettled):
			w.settled(t)
		case errors.Is(err, ErrCancelled):
			t.how = Cancelled
			w.ackLater(t)
		case err == nil: // and if the lease was lost, the database will say so
			t.how = Done
			w.ackLater(t)
		case lost:
			if gone {
				w.log.Warn("a job was removed while it ran, as job cancel does", "job", t.job.ID, "attempt", t.job.Attempt, "after", t.took)
			} else {
				w.log.Warn("the lease of a job was lost while it ran; it may run elsewhere", "job", t.job.ID, "attempt", t.job.Attempt, "after", t.took)
			}
			w.finish(t, Lost)
		default:
			w.fail(writing, t, err, errors.Is(context.Cause(handling), ErrStopping))
		}
	}()
	err = w.call(ctx, t.job)
}

// settled finishes a task whose handler has ended the job.
func (w *worker) settled(t *task) {
	w.mu.Lock()
	w.settles = true
	w.mu.Unlock()
	w.finish(t, Settled)
}

// returned notes that the handler has, and whether the lease was lost before; gone: it
// was before its time.
func (w *worker) returned(t *task, took time.Duration) (lost, gone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t.ended, t.took = true, took
	if w.pace == 0 {
		w.pace = took
	}
	w.pace = max(w.pace+(took-w.pace)/8, time.Microsecond)
	return t.lost, t.gone
}

// call runs the handler and makes an error of a panic.
func (w *worker) call(ctx context.Context, job penstock.Job) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &PanicError{Value: r, Stack: panicStack(debug.Stack())}
		}
	}()
	return w.handle(ctx, job)
}

// PanicError is the failure of a job whose handler panicked.
type PanicError struct {
	Value any
	// Stack is where, the innermost function first, a few lines of it.
	Stack string
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack) }

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// stackLines is how much of a stack is kept: two lines for a function.
const stackLines = 16

// panicStack leaves out of the stack what unwinds the panic.
func panicStack(stack []byte) string {
	if _, after, found := bytes.Cut(stack, []byte("\npanic(")); found {
		stack = after
		for range 2 { // the rest of panic's two lines
			_, stack, _ = bytes.Cut(stack, []byte("\n"))
		}
	}
	lines := strings.SplitN(string(stack), "\n", stackLines+1)
	return strings.TrimSpace(strings.Join(lines[:min(len(lines), stackLines)], "\n"))
}

// maxReasonBytes is how much of an error is kept with the job.
const maxReasonBytes = 4 << 10

// reason is an error as text that every database takes.
func reason(err error) string {
	s := err.Error()
	if len(s) > maxReasonBytes {
		s = s[:maxReasonBytes]
	}
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\uFFFD")
}
