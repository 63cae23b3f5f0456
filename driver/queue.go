package driver

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
)

const (
	// MaxClaim is the most jobs that one Claim returns.
	MaxClaim = 10_000
)

// Validate reports what of a claim no store takes, as a *FieldError.
func (c *Claim) Validate() error {
	if c.Jobs < 1 || c.Jobs > MaxClaim {
		return &penstock.FieldError{Field: "jobs", Problem: fmt.Sprintf("is %d", c.Jobs), Hint: fmt.Sprintf("claim 1 to %d at a time", MaxClaim)}
	}
	if err := ValidateLease(c.Lease); err != nil {
		return err
	}
	if err := penstock.ValidateText("group", c.Group, penstock.MaxGroupBytes); err != nil {
		return err
	}
	return penstock.ValidateText("worker", c.Worker, penstock.MaxHolderBytes)
}

// Claim says which jobs a worker wants.
type Claim struct {
	Group string
	// Jobs is the most that are returned, 1 to MaxClaim.
	Jobs int
	// Lease is how long the worker has them unless it extends the time.
	Lease time.Duration
	// Worker is shown in status.
	Worker string
}

// Queue is one queue of a store. Safe for concurrent use.
//
// A lease that has ended, or that another call has settled, is lost: Ack and
// Extend leave it out of what they return, Retry and DeadLetter return ErrLeaseLost.
// Until somebody else can have had the job, a store may still take a lease
// for held that has ended.
type Queue interface {
	// Enqueue writes jobs in one transaction of its own and says what became of each,
	// in the order given. *FieldError for a job that cannot be carried; then none is
	// written.
	Enqueue(ctx context.Context, jobs ...penstock.NewJob) ([]penstock.Enqueued, error)

	// Claim leases jobs that may run now, and returns them in the order in which
	// they should: by priority, then first in, first out, or the last first, as the
	// queue was made. It does not wait; no jobs is not an error. A job whose lease
	// ends comes back by itself, and the attempt counts: after the last one it is a
	// dead letter.
	Claim(ctx context.Context, c Claim) ([]penstock.Job, error)

	// Extend makes leases last for the given time from now and returns those that
	// are still held.
	Extend(ctx context.Context, lease time.Duration, leases ...int64) ([]int64, error)
	// Ack ends jobs that are done and returns the leases that were still held.
	Ack(ctx context.Context, leases ...int64) ([]int64, error)
	// Retry gives a job back, to run again after a pause; a negative one means the
	// queue's own backoff. After the last attempt the job becomes a dead letter,
	// and dead is true.
	Retry(ctx context.Context, lease int64, after time.Duration, reason string) (dead bool, err error)
	// DeadLetter makes a job a dead letter at once.
	DeadLetter(ctx context.Context, lease int64, reason string) error

	// Maintain does the housekeeping: expired leases, jobs that have become due,
	// periodic jobs, storage. Workers call it about twice a second. Safe to call from
	// several processes at once; cheap when there is nothing to do.
	Maintain(ctx context.Context) error
}

// Releaser is a queue that takes jobs back as if they had not been claimed:
// they run again after a while, 0 being at once, and the attempt does not count. Among those of its key
// a job keeps its place, and those behind it wait. Release returns the leases that were still held. A worker
// uses it when it stops; from a queue that is no Releaser such jobs come back when their leases end, with one attempt more.
type Releaser interface {
	Release(ctx context.Context, after time.Duration, leases ...int64) ([]int64, error)
}

// AckClaimer is a queue that ends jobs and claims others with one call: both happen, or
// neither. acked are those of acks that were still held. Where a worker can, it lets the end of a
// job wait for the next claim, so that a queue in use takes one call instead of two. Jobs that come with it, if only
// with no acks, are for who ends many at a time: a store may keep their leases together, and whoever ends one then waits until
// the transaction that ends another is over.
type AckClaimer interface {
	AckClaim(ctx context.Context, acks []int64, c Claim) (acked []int64, jobs []penstock.Job, err error)
}

// GroupFinder is a queue that tells which groups have jobs to claim: what a worker needs for
// several groups.
type GroupFinder interface {
	// ReadyGroups returns up to most groups with jobs that a Claim may return now, of those given, or
	// of all if there are none given: in the order of their bytes, beginning behind a group and then
	// going round. Others may be faster, so a Claim can find nothing after all.
	ReadyGroups(ctx context.Context, groups []string, behind string, most int) ([]string, error)
}

// Forwarder is a store that makes jobs of messages by itself.
type Forwarder interface {
	// Forward makes a job of every message of a subscription, in a queue of the same
	// database, until ctx ends: then it returns nil. Jobs and cursor are written in one
	// transaction, so each message becomes exactly one job, in order. It returns an error only for
	// what waiting cannot cure: ErrNoOutbox, ErrNoQueue, ErrNoSubscription, ErrFenced, or a *HeldError
	// at the start.
	Forward(ctx context.Context, req Subscribe, queue string) error
}

// QueueStore is a store that holds queues, beside outboxes. An unknown queue is
// ErrNoQueue.
type QueueStore interface {
	// CreateQueue makes a queue. ErrQueueExists if there is one, ErrOutboxExists if an outbox
	// too. Names are like those of outboxes.
	CreateQueue(ctx context.Context, name string, order penstock.QueueOrder) error
	// DropQueue removes a queue with its jobs.
	DropQueue(ctx context.Context, name string) error
	// SetQueue changes a queue's settings; fields that are nil stay as they are.
	SetQueue(ctx context.Context, name string, s penstock.QueueSettings) error

	// DriverQueue is the store's own Queue(name), which can also enqueue in a transaction of its users, as
	// what workers and the program need of it. It does not check that there is one.
	DriverQueue(name string) Queue

	// CancelJobs removes jobs that wait, and makes running ones end as if they
	// were done: their workers' next Extend no longer returns them. It returns
	// how many jobs there were.
	CancelJobs(ctx context.Context, queue string, ids ...int64) (int, error)

	// DeadJobs returns the dead letters that q describes, by id.
	DeadJobs(ctx context.Context, q admin.DeadJobQuery) ([]admin.DeadJob, error)
	// RetryDeadJobs puts dead letters back into their queue, at its end, with one
	// more attempt to spend at least; attempts go on counting where they were, and
	// among those of its key a job goes by its id. It returns how many there were.
	RetryDeadJobs(ctx context.Context, q admin.DeadJobQuery) (int, error)
	// DiscardDeadJobs deletes dead letters for good and returns how many.
	DiscardDeadJobs(ctx context.Context, q admin.DeadJobQuery) (int, error)

	// SetSchedule makes or changes a periodic job; Next is the store's to set. A Cron
	// that makes no sense is a *FieldError.
	SetSchedule(ctx context.Context, s penstock.Schedule) error
	// DropSchedule removes one. ErrNoSchedule if there is none of that name.
	DropSchedule(ctx context.Context, queue, name string) error
	// Schedules lists those of a queue, by name.
	Schedules(ctx context.Context, queue string) ([]penstock.Schedule, error)

	// QueueStatus describes every queue, or those of these names that are there, ordered by the bytes of its name.
	QueueStatus(ctx context.Context, names ...string) ([]admin.QueueStatus, error)
	// QueueGroups describes up to most groups of a queue that have jobs or dead letters, ordered by
	// their bytes: those after the given one, or if that is empty, from the first.
	QueueGroups(ctx context.Context, queue, after string, most int) ([]admin.GroupStatus, error)
}

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
	DoneJobs(ctx context.Context, q admin.DoneJobQuery) (jobs []admin.DoneJob, next string, err error)
}
