// Package work runs handlers on the jobs of a queue. It claims jobs, extends their leases and
// records how they ended. When it stops it gives back the jobs that it has not begun. It knows
// queues only as package driver describes them. Package relay does the same work for outboxes.
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

// Handler does one job. A Mux has one for each kind of job. Its error decides about the job:
//
//   - nil: the job is done.
//   - an error of class penstock.Permanent: it is a dead letter at once.
//   - an error of class penstock.RetryAfter: it is tried again after that time.
//   - Snooze: it runs again after that time, and no attempt is spent.
//   - HoldGroup: it runs again, no attempt is spent, and no job of its group starts for that time.
//   - ErrCancelled: it is not needed any more. It ends as if it were done, and is counted separately.
//   - any other error, and a panic: it is tried again after the queue's own backoff,
//     until its attempts are used up and it is a dead letter.
//   - ErrSettled: the handler has ended the job itself.
//
// ctx ends with the cause penstock.ErrLeaseLost when another worker may be running the job,
// and with ErrStopping when Run stops and DrainTimeout is over.
type Handler func(ctx context.Context, job penstock.Job) error

var (
	// ErrSettled: a handler returns it if it has ended its job itself, with Ack, Retry
	// or DeadLetter. Run then does not touch the job.
	ErrSettled = errors.New("the handler has settled the job")
	// ErrCancelled: a handler returns it for a job that is not needed any more.
	ErrCancelled = errors.New("the job is cancelled")
	// ErrStopping is the cause with which a handler's context ends: Run was asked to
	// stop, and has waited for DrainTimeout.
	ErrStopping = errors.New("the worker is stopping")
)

// Queue has the methods of a driver.Queue that Run needs.
type Queue interface {
	Claim(ctx context.Context, c driver.Claim) ([]penstock.Job, error)
	Extend(ctx context.Context, lease time.Duration, leases ...int64) ([]int64, error)
	Ack(ctx context.Context, leases ...int64) ([]int64, error)
	Retry(ctx context.Context, lease int64, after time.Duration, reason string) (dead bool, err error)
	DeadLetter(ctx context.Context, lease int64, reason string) error
	Maintain(ctx context.Context) error
}

var _ Queue = driver.Queue(nil)

// Snooze returns an error with which a handler gets its job again after the given time. The attempt does not count. It does
// in a queue that is not a driver.Releaser. A negative time is a mistake, as in HoldGroup: the attempt has failed.
func Snooze(after time.Duration) error {
	if after < 0 {
		return &penstock.FieldError{Field: "time of work.Snooze", Problem: "is negative: " + after.String(), Hint: "use a positive time, or 0 for at once"}
	}
	return snooze(after)
}

type snooze time.Duration

// SnoozeDelay returns the time given to Snooze, and whether err comes from it.
func SnoozeDelay(err error) (time.Duration, bool) {
	var s snooze
	ok := errors.As(err, &s)
	return time.Duration(s), ok
}

func (s snooze) Error() string { return "the job is to run again after " + time.Duration(s).String() }

// HoldGroup returns an error with which a handler gives its job back and holds the job's group. For example, a server has answered 429 for one customer,
// whose jobs are a group. No job of the group starts for that time, in all processes, and no attempt is spent. Jobs that run continue. The reason is for
// people. In a queue that is not a driver.GroupHolder only this job waits, as with Snooze.
func HoldGroup(d time.Duration, reason string) error {
	if d < 0 {
		return &penstock.FieldError{Field: "time of work.HoldGroup", Problem: "is negative: " + d.String(), Hint: "use a positive time, or 0 for no hold"}
	}
	return holdGroup{d, reason}
}

type holdGroup struct {
	d      time.Duration
	reason string
}

func (h holdGroup) Error() string {
	s := "the group of the job is held for " + h.d.String()
	if h.reason != "" {
		s += ": " + h.reason
	}
	return s
}

// Options for Run. The zero value of each field means its default.
type Options struct {
	// Concurrency is how many handlers run at a time. Default 10.
	Concurrency int `default:"10" min:"1"`
	// Batch is how many jobs one Claim asks for at most, 1 to driver.MaxClaim. Default 250.
	Batch int `default:"250" min:"1" max:"10000"`
	// Claims is how many calls of Claim may run at a time while there is a backlog. Each has its own
	// connection. With more than 1, jobs of one group may begin out of order; jobs of a key never do.
	// Default 1; 4 if the queue is a driver.AckClaimer and Concurrency is not 1.
	Claims int `default:"1" min:"1"`
	// Lease is how long a job stays with a worker that has died. A worker that runs
	// extends its leases after every third of this time. Default 30 s, at least 1 s.
	Lease time.Duration `default:"30s"`
	// Group to claim from. Default ''.
	Group string
	// Groups to claim from in turn, instead of Group. Run claims from those with ready jobs, and gives each
	// a turn before one has its second. For several groups the queue must be a driver.GroupFinder.
	Groups []string
	// AllGroups claims in turn from every group that has jobs, also from new ones.
	AllGroups bool
	// Worker is shown in status. Default host/pid.
	Worker string
	// Version is shown with the worker if the queue is a driver.Heartbeater. Default the program's main module and its version.
	Version string
	// PollMin and PollMax limit the pause between two claims when no more jobs wait. It grows while none
	// come. Default 1.75 ms and 50 ms. Each pause is up to an eighth longer or shorter, so that workers that
	// start together do not claim together. With several groups it grows if the search for groups with
	// jobs is slow: the search takes at most a fifth of the time.
	PollMin time.Duration `default:"1750us"`
	PollMax time.Duration
	// AckEvery is how long an ack waits at most for others, to be written with them.
	// Default 1 ms. If the queue is a driver.AckClaimer it is 20 ms, and most acks are
	// written with a claim within half of that.
	AckEvery time.Duration `default:"1ms"`
	// DrainTimeout is how long handlers may continue when Run stops, before their
	// contexts end. Run then tries for as long to record how they ended. Default 10 s.
	DrainTimeout time.Duration `default:"10s"`
	// Middleware wraps the handler; the first is the outermost. The job's headers are
	// in Job.Headers, also traceparent. A panic in a middleware fails the job, as one
	// in the handler does.
	Middleware []func(Handler) Handler
	// Observer counts; may be nil.
	Observer Observer
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// Observer observes Run. Run calls it from several goroutines, so it
// must not block.
type Observer interface {
	// Claimed follows every Claim that returned jobs.
	Claimed(jobs int)
	// Started comes before the handler is called.
	Started(job penstock.Job, at time.Time)
	// Ended follows the durable end of every attempt. took is how long the handler
	// ran, or 0 if it did not begin.
	Ended(job penstock.Job, how End, took time.Duration)
}

// End is how an attempt at a job ended.
type End string

const (
	Done      End = "done"
	Failed    End = "failed"    // to be tried again
	Dead      End = "dead"      // a dead letter now
	Lost      End = "lost"      // the lease was lost, whatever the handler returned
	Settled   End = "settled"   // by the handler: ErrSettled
	Released  End = "released"  // given back when Run stopped, or because its kind has no handler in this Mux
	Snoozed   End = "snoozed"   // to run again later, perhaps with its group held; the attempt does not count
	Cancelled End = "cancelled" // it is not needed any more
)

// Run claims jobs and runs h on them until ctx ends. Then it claims no more, and gives
// back the jobs that it has not begun (see driver.Releaser). It waits up to DrainTimeout
// for running handlers and then ends their contexts. Once they have returned it records
// how they ended and returns nil.
//
// It continues through errors of the database: it keeps how a job ended and writes that
// once the database answers. Before ctx ends it returns an error only if another attempt
// would not help: ErrNoQueue, ErrClosed, a *FieldError for invalid arguments, or that its role
// lacks the right. One that it loses later is waited for (see driver.RoleJudge).
// An error after ctx has ended shows how many ends of jobs could not be written in time. These jobs
// run again.
//
// A job can run more than once, after a crash or a lost lease. When handlers are quick,
// Run claims some jobs ahead: those that will begin within a tenth of a second, or a tenth
// of the lease. They count as running.
//
// Run does the queue's maintenance (Maintain) about twice a second.
func Run(ctx context.Context, q Queue, h Handler, opts Options) error {
	if q == nil {
		return &penstock.FieldError{Field: "queue", Problem: "is nil", Hint: "pass store.Queue(name)"}
	}
	if h == nil {
		return &penstock.FieldError{Field: "handler", Problem: "is nil", Hint: "pass the function that does a job"}
	}
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
	if named, ok := q.(interface{ Name() string }); ok {
		opts.Logger = opts.Logger.With("queue", named.Name())
	}
	w := newWorker(q, h, opts)
	if _, ok := q.(driver.GroupFinder); !ok && (opts.AllGroups || len(w.turns.of) > 0) {
		return &penstock.FieldError{Field: "Groups", Problem: "are several, and the queue does not know which of them have jobs", Hint: "use a queue that is a GroupFinder, or one Group"}
	}
	return w.run(ctx)
}
