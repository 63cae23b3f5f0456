package work

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/penstock/penstock"
)

// errNoReturn is the failure of a handler that calls runtime.Goexit.
var errNoReturn = errors.New("the handler ended its goroutine without returning")

// do runs the handler on one job and makes sure that its end is written down. It returns the time at which the
// next job begins, for a slot that continues at once.
func (w *worker) do(handling, writing context.Context, t *task, start time.Time) (now time.Time) {
	err := errNoReturn
	w.Observer.Started(*t.job, start)
	// Deferred, because a handler may end its goroutine.
	defer func() { now = w.handled(handling, writing, t, start, err) }()
	err = w.call(&t.ctx, *t.job)
	return now
}

// handled is how a handler ended.
func (w *worker) handled(handling, writing context.Context, t *task, start time.Time, err error) (now time.Time) {
	now = time.Now()
	t.ctx.end(nil)
	how := Failed
	switch {
	case err == nil: // and if the lease was lost, the database will report it
		how = Done
	case errors.Is(err, ErrSettled):
		how = Settled
	case errors.Is(err, ErrCancelled):
		how = Cancelled
	}
	noted := how
	if _, passed := errors.AsType[*noHandlerError](err); passed {
		noted = Released // no handler began
	}
	lost, gone := w.returned(t, now, now.Sub(start), noted)
	w.handlers.Done()
	switch {
	case how == Settled:
		w.finish(t, Settled)
	case how != Failed:
		return now
	case lost:
		if gone {
			w.logRemoved(t)
		} else {
			w.log.Warn("the lease of a job was lost while it ran; it may run elsewhere", "job", t.job.ID, "attempt", t.job.Attempt, "after", t.took)
		}
		w.finish(t, Lost)
	default:
		w.fail(writing, t, err, errors.Is(context.Cause(handling), ErrStopping))
	}
	return time.Now()
}

// returned notes that the handler has returned, hands an ended job to the acking, and reports whether the lease was
// lost before. gone: it was lost before its time.
func (w *worker) returned(t *task, now time.Time, took time.Duration, how End) (lost, gone bool) {
	w.mu.Lock()
	t.ended, t.took, t.how = true, took, how
	if how != Released {
		pace := cmp.Or(w.pace, took)
		w.pace = max(pace+(took-pace)/8, time.Microsecond)
	}
	lost, gone = t.lost, t.gone
	acks := 0
	switch how {
	case Done, Cancelled:
		t.done = now
		w.acks = append(w.acks, t)
		acks = len(w.acks)
	case Settled:
		w.settles = true
	}
	w.mu.Unlock()
	if acks == 1 || acks == w.Batch {
		notify(w.done)
	}
	return lost, gone
}

// call runs the handler and turns a panic into an error. It also reads the error for the first time: methods
// of the handler's error may panic, as those of a nil pointer do.
func (w *worker) call(ctx context.Context, job penstock.Job) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = panicError(r, panicStack(debug.Stack()))
		}
	}()
	timeout, deadline := job.Timeout(), job.Deadline()
	switch {
	case !deadline.IsZero() && !time.Now().Before(deadline): // it was claimed ahead, or before a pause of the process
		err = Snooze(time.Second) // a claim then ends it as expired, by the database's clock
	case timeout > 0:
		err = within(ctx, timeout, w.handle, job)
	default:
		err = w.handle(ctx, job)
	}
	read(err)
	return err
}

// read calls the methods of an error that are needed later.
func read(err error) {
	if err == nil || errors.Is(err, ErrSettled) || errors.Is(err, ErrCancelled) {
		return
	}
	penstock.IsPermanent(err)
	penstock.RetryDelay(err)
	SnoozeDelay(err)
	_ = err.Error()
}

// panicError makes an error from a panic's value: from text, if the value is an error whose methods panic.
func panicError(value any, stack string) (e *PanicError) {
	e = &PanicError{Value: value, Stack: stack}
	defer func() {
		if recover() != nil {
			e = &PanicError{Value: fmt.Sprintf("%T, which panics when it is read", value), Stack: stack}
		}
	}()
	read(e)
	return e
}

// PanicError is the failure of a job whose handler panicked.
type PanicError struct {
	Value any
	// Stack is where it panicked, the innermost function first, a few lines of it.
	Stack string
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack) }

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// stackLines is how much of a stack is kept: two lines per function.
const stackLines = 16

// panicStack leaves out the frames that unwind the panic.
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

// reason is an error as text that every database can store.
func reason(err error) string {
	s := err.Error()
	if len(s) > maxReasonBytes {
		s = s[:maxReasonBytes]
	}
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\uFFFD")
}
