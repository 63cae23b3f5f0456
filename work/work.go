// Package work runs handlers on the jobs of a queue: it claims them, extends their leases, writes
// down how they ended, and gives back what it has not begun when it stops. It knows a queue by
// what the root package says of it; relay/ is its neighbour for outboxes.
package work

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// Handler does one job. Its error decides what becomes of it:
//
//   - nil: the job is done.
//   - an error of class Permanent: it is a dead letter at once.
//   - an error of class RetryAfter: it is tried again after that time.
//   - Snooze: it runs again after that time, and no attempt is spent.
//   - ErrCancelled: nobody wants it any more; it ends like one that is done, and counts apart.
//   - any other, and a panic: it is tried again after the queue's own backoff,
//     until its attempts are used up and it is a dead letter.
//   - ErrSettled: the handler has ended the job itself.
//
// ctx ends with the cause ErrLeaseLost when the job may be running elsewhere,
// and with ErrStopping when Run stops and DrainTimeout is over.
type Handler func(ctx context.Context, job penstock.Job) error

var (
	// ErrSettled is what a handler returns that has ended its job itself, with
	// Ack, Retry or DeadLetter in a transaction of its own: Run leaves the job alone.
	ErrSettled = errors.New("the handler has settled the job")
	// ErrCancelled is what a handler returns of a job that nobody wants any more.
	ErrCancelled = errors.New("the job is cancelled")
	// ErrStopping is why a handler's context ended: Run was told to stop, and
	// waited for DrainTimeout.
	ErrStopping = errors.New("the worker is stopping")
)

// Queue is what Run needs of a Queue.
type Queue interface {
	Claim(ctx context.Context, c driver.Claim) ([]penstock.Job, error)
	Extend(ctx context.Context, lease time.Duration, leases ...int64) ([]int64, error)
	Ack(ctx context.Context, leases ...int64) ([]int64, error)
	Retry(ctx context.Context, lease int64, after time.Duration, reason string) (dead bool, err error)
	DeadLetter(ctx context.Context, lease int64, reason string) error
	Maintain(ctx context.Context) error
}

var _ Queue = driver.Queue(nil)

// Snooze is what a handler returns that wants its job again after a while, as if this had been no attempt. A queue that
// is no Releaser spends one.
func Snooze(after time.Duration) error { return snooze(after) }

type snooze time.Duration

// SnoozeDelay returns the time given to Snooze, and whether err is one.
func SnoozeDelay(err error) (time.Duration, bool) {
	var s snooze
	ok := errors.As(err, &s)
	return time.Duration(s), ok
}

func (s snooze) Error() string { return "the job is to run again after " + time.Duration(s).String() }

// Options for Run. The zero value of each field means its default.
type Options struct {
	// Concurrency is how many handlers run at a time. Default 10.
	Concurrency int
	// Batch is the most jobs that one Claim asks for, 1 to MaxClaim. Default 250.
	Batch int
	// Claims is how many calls of Claim may be under way while there is a backlog, each on a connection
	// of its own. Then jobs of one group may begin in another order than they were enqueued in; those of a key do not.
	// Default 1; 4 where a claim can carry acks (AckClaimer) and Concurrency is more than 1.
	Claims int
	// Lease is how long a job stays with a worker that has died; the leases of
	// one that lives are extended at every third of it. Default 30 s.
	Lease time.Duration
	// Group to claim from. Default ''.
	Group string
	// Groups to claim from in turn, in place of Group: those that have jobs ready, none of them before
	// the others had their turn. The queue has to be a GroupFinder if they are several.
	Groups []string
	// AllGroups: in turn from every group that has jobs, whenever it appears.
	AllGroups bool
	// Worker is shown in status. Default host/pid.
	Worker string
	// PollMin and PollMax bound the pause between two claims when nothing more is
	// waiting; it grows with the silence. Default 1.75 ms and 50 ms. Each is up to an eighth longer
	// or shorter, so that workers that begin together do not ask together. Of several groups it is
	// longer where looking for those with jobs takes long: a fifth of the time at most goes into that.
	PollMin, PollMax time.Duration
	// AckEvery is the longest that the end of a job waits for others, to be
	// written with them. Default 1 ms; 20 ms where a claim can carry it (AckClaimer),
	// which then is mostly within half of it.
	AckEvery time.Duration
	// DrainTimeout is how long handlers may go on when Run stops, before their
	// contexts end; and how long Run then tries to write down how they ended.
	// Default 10 s.
	DrainTimeout time.Duration
	// Middleware wraps the handler; the first is the outermost. The job's headers
	// (traceparent among them) are in Job.Headers. A panic of one is a failure of
	// the job, like the handler's.
	Middleware []func(Handler) Handler
	// Observer counts; may be nil.
	Observer Observer
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// Observer is told what Run does, from several goroutines; it must not
// block.
type Observer interface {
	// Claimed follows every Claim that returned jobs.
	Claimed(jobs int)
	// Started comes before the handler is called.
	Started(job penstock.Job, at time.Time)
	// Ended follows the durable end of every attempt; took is how long the
	// handler ran, 0 if it did not begin.
	Ended(job penstock.Job, how End, took time.Duration)
}

// End is how an attempt at a job ended.
type End string

const (
	Done      End = "done"
	Failed    End = "failed"    // to be tried again
	Dead      End = "dead"      // a dead letter now
	Lost      End = "lost"      // the lease was lost, whatever the handler said
	Settled   End = "settled"   // by the handler: ErrSettled
	Released  End = "released"  // given back when Run stopped
	Snoozed   End = "snoozed"   // to run again later, without an attempt spent
	Cancelled End = "cancelled" // nobody wants it any more
)

// Run claims jobs and runs h on them until ctx ends. Then it claims no more,
// gives back what it has claimed and not begun (see Releaser), waits up to
// DrainTimeout for the handlers that run, ends the contexts of those that still
// do, waits for them to return, writes down how they ended, and returns nil.
//
// It goes on through errors of the database: how a job ended is kept and written
// once the database answers. It returns an error before ctx ends only for what
// another attempt cannot cure: ErrNoQueue, ErrClosed, or options that cannot be
// used, a *FieldError. An error after ctx has ended says how many ends of jobs
// could not be written in time; these jobs run again.
//
// A job can run more than once, after a crash or a lost lease. When handlers are
// quick, Run claims some jobs ahead, no more than will begin within a tenth of
// a second or a tenth of the lease; they count as running.
//
// Run does the queue's housekeeping (Maintain) about twice a second.
func Run(ctx context.Context, q Queue, h Handler, opts Options) error {
	if _, ok := q.(driver.AckClaimer); ok {
		opts.AckEvery = cmp.Or(opts.AckEvery, 20*time.Millisecond)
		if opts.Concurrency != 1 {
			opts.Claims = cmp.Or(opts.Claims, 4)
		}
	}
	opts.SetDefaults()
	if err := opts.Validate(); err != nil {
		return err
	}
	w := newWorker(q, h, opts)
	if _, ok := q.(driver.GroupFinder); !ok && (opts.AllGroups || len(w.turns.of) > 0) {
		return &penstock.FieldError{Field: "Groups", Problem: "are several, and the queue cannot tell which of them have jobs", Hint: "use a queue that is a GroupFinder, or one Group"}
	}
	return w.run(ctx)
}
