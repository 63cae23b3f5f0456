package work

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/penstock/penstock"
)

// Mux has a Handler for each kind of job: a worker runs Mux.Handler. TxMux has those of WorkTx.
//
// A job of another kind is released for another worker, perhaps one of a newer version. It comes back at once, then after growing
// pauses of up to 10 s, and no attempt is spent. Where no worker takes it, it becomes a dead letter once it is older than GiveUp.
//
// The zero value is ready to use.
type Mux struct {
	// GiveUp is the age from which a job that has no handler is a dead letter: its kind may be a typing error. The worker must also
	// have known the job for half of this time. So jobs that have waited long, or were enqueued for later, meet other workers
	// first. Default 1 hour.
	GiveUp time.Duration

	kinds map[string]Handler
	use   []func(Handler) Handler
}

// Handle registers the handler of a kind; that of the kind ” takes jobs without one. The first middleware is the outermost: Timeout,
// MaxAttempts and Backoff are some. Handle panics if the kind has a handler already or is one that no job can have.
func (m *Mux) Handle(kind string, h Handler, middleware ...func(Handler) Handler) {
	if err := penstock.ValidateKind(kind); err != nil {
		panic("work: " + err.Error())
	}
	if h == nil {
		panic(fmt.Sprintf("work: the handler of the kind %q is nil", kind))
	}
	if m.kinds[kind] != nil {
		panic(fmt.Sprintf("work: the kind %q has a handler already", kind))
	}
	if m.kinds == nil {
		m.kinds = map[string]Handler{}
	}
	m.kinds[kind] = wrap(h, middleware)
}

// Use wraps the handlers of all kinds, also of those that are registered later. The first middleware is the outermost.
func (m *Mux) Use(middleware ...func(Handler) Handler) { m.use = append(m.use, middleware...) }

// Kinds returns the kinds that have a handler, in no order.
func (m *Mux) Kinds() []string {
	var all []string
	for kind := range m.kinds {
		all = append(all, kind)
	}
	return all
}

// Handler returns the handler for Run. Later calls of Handle and Use do not change it. It panics if no kind has a handler: a worker would
// give back each job.
func (m *Mux) Handler() Handler {
	if len(m.kinds) == 0 {
		panic("work: no kind has a handler: call Handle before Handler")
	}
	kinds := make(map[string]Handler, len(m.kinds))
	for kind, h := range m.kinds {
		kinds[kind] = wrap(h, m.use)
	}
	strange := &strangers{giveUp: cmp.Or(m.GiveUp, time.Hour), kinds: slices.Sorted(maps.Keys(kinds)), met: map[int64]time.Time{}}
	return func(ctx context.Context, job penstock.Job) error {
		if h := kinds[job.Kind()]; h != nil {
			return h(ctx, job)
		}
		return strange.pass(&job, time.Now())
	}
}

// TxMux is a Mux of handlers that do their job in a transaction: WorkTx of a store runs TxMux.Handler. Tx is the transaction's type,
// pgx.Tx or *sql.Tx.
type TxMux[Tx any] struct{ Mux }

type txKey struct{}

// Handle is Mux.Handle for such a handler.
func (m *TxMux[Tx]) Handle(kind string, h func(ctx context.Context, tx Tx, job penstock.Job) error, middleware ...func(Handler) Handler) {
	if h == nil {
		m.Mux.Handle(kind, nil)
	}
	m.Mux.Handle(kind, func(ctx context.Context, job penstock.Job) error { return h(ctx, ctx.Value(txKey{}).(Tx), job) }, middleware...)
}

// Handler returns the handler for WorkTx. Later calls of Handle and Use do not change it.
func (m *TxMux[Tx]) Handler() func(ctx context.Context, tx Tx, job penstock.Job) error {
	h := m.Mux.Handler()
	return func(ctx context.Context, tx Tx, job penstock.Job) error {
		return h(context.WithValue(ctx, txKey{}, tx), job)
	}
}

func wrap(h Handler, middleware []func(Handler) Handler) Handler {
	for i := len(middleware) - 1; i >= 0; i-- {
		h = middleware[i](h)
	}
	return h
}

// strangers are the jobs without a handler that the worker has met.
type strangers struct {
	giveUp time.Duration
	kinds  []string // that have a handler
	mu     sync.Mutex
	met    map[int64]time.Time  // those that are old, with the time at which the worker first met each
	lately [2]map[int64]meeting // those that it has met in this passForget, and in the one before
	turned time.Time            // when this one began
}

// meeting is the worker's memory of a job that it has met lately.
type meeting struct {
	first time.Time
	rests bool // if it is met again
}

const (
	// passFor is the longest rest of a job that the worker has met again, see rest.
	passFor = 10 * time.Second
	// passForget is after which time a job that has not come back is new to the worker, up to twice that.
	passForget = 15 * time.Second
	// maxMet bounds the memory of a worker that meets many. Others rest for passFor, and are not given up meanwhile.
	maxMet = 10_000
)

// pass leaves a job to another worker, or gives it up.
func (s *strangers) pass(job *penstock.Job, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := &noHandlerError{job.Kind(), s.kinds, s.giveUp, s.rest(job.ID, now)}
	if now.Sub(job.CreatedAt) < s.giveUp/2 { // need not be remembered for long
		return err
	}
	first, known := s.met[job.ID]
	switch {
	case !known && len(s.met) == maxMet:
		for id, at := range s.met {
			if now.Sub(at) > s.giveUp { // another worker has taken it, probably
				delete(s.met, id)
			}
		}
		fallthrough
	case !known:
		if len(s.met) < maxMet {
			s.met[job.ID] = now
		}
	case now.Sub(first) >= s.giveUp/2:
		delete(s.met, job.ID)
		return penstock.Permanent(err)
	}
	return err
}

// rest is for how long a job that is passed on may not be claimed. First it may be at once, and this worker leaves others the time to do so. If it
// meets the job again, none has had room, and the job rests for half as long as the worker knows it. Then it is the others' turn again.
func (s *strangers) rest(id int64, now time.Time) time.Duration {
	if now.Sub(s.turned) >= passForget {
		s.lately[0], s.lately[1], s.turned = map[int64]meeting{}, s.lately[0], now
	}
	m, known := s.lately[0][id]
	if !known {
		if len(s.lately[0]) == maxMet {
			return passFor
		}
		if m, known = s.lately[1][id]; !known {
			m.first = now
		}
	}
	s.lately[0][id] = meeting{m.first, !m.rests}
	if !m.rests {
		return 0
	}
	return min(max(now.Sub(m.first)/2, time.Millisecond), passFor)
}

// noHandlerError is the error for a job whose kind has no handler in this worker.
type noHandlerError struct {
	kind   string
	kinds  []string // that have one
	giveUp time.Duration
	after  time.Duration // until it may be claimed again, about
}

func (e *noHandlerError) Error() string { return fmt.Sprintf("no handler for kind %q", e.kind) }

// Timeout is middleware: the handler's context ends after d, and a handler that then returns an error has failed for that reason. A job
// with a timeout has that one instead. It panics if d is not positive.
func Timeout(d time.Duration) func(Handler) Handler {
	if d <= 0 {
		panic("work: Timeout of " + d.String() + ": use a positive time, or leave it out for none")
	}
	return func(h Handler) Handler {
		return func(ctx context.Context, job penstock.Job) error {
			if job.Timeout() > 0 { // the worker sees to it
				return h(ctx, job)
			}
			return within(ctx, d, h, job)
		}
	}
}

// ignoredAfter is how long after its timeout a handler that still runs ignores it.
const ignoredAfter = time.Second

var discard = slog.New(slog.DiscardHandler)

// within runs a handler whose context ends after d. Nothing can stop a handler that ignores this, so the log names it.
func within(ctx context.Context, d time.Duration, h Handler, job penstock.Job) error {
	over := fmt.Errorf("the job ran longer than its timeout of %s", d)
	ctx, cancel := context.WithTimeoutCause(ctx, d, over)
	defer cancel()
	log, start := discard, time.Now()
	if c, ok := ctx.Value(jobKey{}).(*jobContext); ok { // not in a test that calls the handler itself
		log = c.log
	}
	late := time.AfterFunc(d+ignoredAfter, func() {
		log.Warn("a job runs longer than its timeout: its handler ignores the end of its context", "job", job.ID, "attempt", job.Attempt, "timeout", d, kindOf(&job))
	})
	defer late.Stop()
	err := h(ctx, job)
	if (err == nil || errors.Is(err, ErrSettled) || errors.Is(err, ErrCancelled)) && context.Cause(ctx) == over {
		log.Warn("a job ran longer than its timeout, and its outcome counts", "job", job.ID, "attempt", job.Attempt, "timeout", d, "after", time.Since(start), kindOf(&job))
	}
	if errors.Is(err, context.DeadlineExceeded) && context.Cause(ctx) == over {
		return fmt.Errorf("%w: %w", over, err)
	}
	return err
}

// MaxAttempts is middleware: a job whose nth attempt fails is a dead letter. A queue whose own limit is lower keeps that, and a job with
// max_attempts has that limit instead. It panics if n is less than 1.
func MaxAttempts(n int) func(Handler) Handler {
	if n < 1 {
		panic(fmt.Sprintf("work: MaxAttempts of %d: use 1 or more, or leave it out for the queue's", n))
	}
	return func(h Handler) Handler {
		return func(ctx context.Context, job penstock.Job) error {
			err := h(ctx, job)
			if job.Attempt >= n && job.MaxAttempts() == 0 && failed(ctx, err) {
				return penstock.Permanent(err)
			}
			return err
		}
	}
}

// Backoff is middleware: a job whose attempt fails is tried again after the given time, where the error does not give one. Jobs that fail
// together also come back together, unless the time is a little different for each. It panics without a function.
func Backoff(after func(attempt int) time.Duration) func(Handler) Handler {
	if after == nil {
		panic("work: Backoff without a function: leave it out for the queue's own")
	}
	return func(h Handler) Handler {
		return func(ctx context.Context, job penstock.Job) error {
			err := h(ctx, job)
			if _, given := penstock.RetryDelay(err); !given && failed(ctx, err) {
				return penstock.RetryAfter(err, after(job.Attempt))
			}
			return err
		}
	}
}

// failed reports whether an attempt has failed, and so counts: the job has not ended in another way, and the worker has not interrupted it.
func failed(ctx context.Context, err error) bool {
	_, snoozed := SnoozeDelay(err)
	return err != nil && !snoozed && !errors.Is(err, ErrSettled) && !errors.Is(err, ErrCancelled) && !errors.Is(context.Cause(ctx), ErrStopping)
}
