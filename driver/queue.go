package driver

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
)

const (
	// MaxClaim is how many jobs one Claim returns at most.
	MaxClaim = 10_000
)

// Validate returns a *FieldError for the first field of a claim that no store accepts.
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

// Claim chooses the jobs that a worker asks for.
type Claim struct {
	Group string
	// Jobs is how many are returned at most, 1 to MaxClaim.
	Jobs int
	// Lease is how long the worker has the jobs unless it calls Extend.
	Lease time.Duration
	// Worker is shown in status.
	Worker string
}

// Queue is one queue of a store. Safe for concurrent use.
//
// A lease is lost when it has ended or another call has settled it. Ack and Extend
// leave lost leases out of their results, Retry and DeadLetter return ErrLeaseLost.
// A store may accept a lease after its end while no other worker can have had the job.
type Queue interface {
	// Enqueue writes jobs in one transaction and returns a result for each, in the
	// given order. *FieldError for a job that cannot be carried; then none is written.
	Enqueue(ctx context.Context, jobs ...penstock.NewJob) ([]penstock.Enqueued, error)

	// Claim leases jobs that may run now. It returns them by priority, then in the
	// queue's order. It does not wait; no jobs is not an error. A job whose lease ends
	// comes back, and the attempt counts: after the last it is a dead letter.
	Claim(ctx context.Context, c Claim) ([]penstock.Job, error)
	// Extend makes leases last for the given time from now and returns those that
	// are still held.
	Extend(ctx context.Context, lease time.Duration, leases ...int64) ([]int64, error)
	// Ack ends jobs that are done and returns the leases that were still held.
	Ack(ctx context.Context, leases ...int64) ([]int64, error)
	// Retry gives a job back, to run again after a pause. A negative pause means the
	// queue's own backoff. After the last attempt the job becomes a dead letter, and
	// dead is true.
	Retry(ctx context.Context, lease int64, after time.Duration, reason string) (dead bool, err error)
	// DeadLetter makes a job a dead letter at once.
	DeadLetter(ctx context.Context, lease int64, reason string) error

	// Maintain does the maintenance: expired leases, jobs that have become due,
	// periodic jobs, storage. Workers call it about twice a second. Safe to call from
	// several processes at once; cheap when there is nothing to do.
	Maintain(ctx context.Context) error
}

// Releaser is a queue that takes jobs back as if they had not been claimed. They run again after
// the given time (0: at once), and the attempt does not count. A job keeps its place among the jobs of
// its key, and those behind it wait. Release returns the leases that were still held. A worker calls it
// when it stops. Jobs of any other queue come back when their leases end, and the attempt counts.
type Releaser interface {
	Release(ctx context.Context, after time.Duration, leases ...int64) ([]int64, error)
}

// AckClaimer is a queue that ends jobs and claims others with one call: both happen, or neither. acked are
// those of acks that were still held. A worker that can delays an ack until its next claim, which saves a call.
//
// Claim jobs this way, even with empty acks, only to end many of them at a time. A store may keep the leases
// of such jobs together. Then a call that ends one of them waits for the transaction that ends another.
//
// Full among acked says that a limit of running jobs is close: as many as the claim asked for make it more than half of the limit. The end of a job then
// may make room for the next one, so a worker ends it at once, with a claim, and claims none ahead.
type AckClaimer interface {
	AckClaim(ctx context.Context, acks []int64, c Claim) (acked []int64, jobs []penstock.Job, err error)
}

// GroupClaimer is an AckClaimer that claims jobs of several groups with one call. A worker uses it under limits of running jobs, where each group
// has few jobs to give.
type GroupClaimer interface {
	// AckClaimGroups claims up to c.Jobs jobs of each of these groups, twice as many of one that is named twice in a row. c.Group is not
	// used. The acks make room for these claims. Full among acked is that of AckClaimer, for one of the groups at least.
	AckClaimGroups(ctx context.Context, acks []int64, groups []string, c Claim) (acked []int64, jobs []penstock.Job, err error)
}

// Full is the number of no lease, see AckClaimer.
const Full int64 = 0

// RoleJudge is a queue that knows whether a call failed because the role lacks a right. A worker that starts without the right ends. One that loses
// it later waits: the owner may grant it again.
type RoleJudge interface {
	// RefusesRole reports whether an error of one of the queue's calls says so.
	RefusesRole(err error) bool
}

// GroupFinder is a queue that finds groups with jobs to claim. A worker needs it for several groups.
type GroupFinder interface {
	// ReadyGroups returns up to most groups with jobs that a Claim may return now. It chooses among the given
	// groups, or among all if none are given. They come in the order of their bytes, from the one behind the
	// given group and then round. Other workers may be faster, so a Claim can find no jobs. A group with a weight comes
	// as many times in a row, and counts once in most: a, b, b for a weight of 2. Groups that are full, held or over
	// their rate are left out.
	ReadyGroups(ctx context.Context, groups []string, behind string, most int) ([]string, error)
}

// Forwarder is a store that makes jobs of messages without a relay.
type Forwarder interface {
	// Forward makes a job of every message of a subscription, in a queue of the same database. It writes jobs
	// and cursor in one transaction, so each message becomes exactly one job, in order. It returns nil once
	// ctx has ended. It returns an error only if waiting does not help: ErrNoOutbox, ErrNoQueue,
	// ErrNoSubscription, ErrFenced, or a *HeldError at the start.
	Forward(ctx context.Context, req Subscribe, queue string) error
}

// QueueStore is a store that holds queues as well as outboxes. An unknown queue is ErrNoQueue.
type QueueStore interface {
	// CreateQueue makes a queue. Its name follows the rules for outboxes. ErrQueueExists if there
	// is one, ErrOutboxExists if an outbox has the name.
	CreateQueue(ctx context.Context, name string, order penstock.QueueOrder) error
	// DropQueue removes a queue with its jobs.
	DropQueue(ctx context.Context, name string) error
	// SetQueue changes a queue's settings; fields that are nil stay as they are.
	SetQueue(ctx context.Context, name string, s penstock.QueueSettings) error

	// DriverQueue is the store's Queue(name) as workers and the program need it, without the
	// methods that take a transaction. It does not check that there is one.
	DriverQueue(name string) Queue

	// CancelJobs removes waiting jobs, and ends running ones as if they were done: their
	// workers' next Extend no longer returns them. It returns how many jobs there were.
	CancelJobs(ctx context.Context, queue string, ids ...int64) (int, error)

	// DeadJobs returns the dead letters that q chooses, ordered by id.
	DeadJobs(ctx context.Context, q admin.DeadJobQuery) ([]admin.DeadJob, error)
	// RetryDeadJobs puts dead letters back at the end of their queue, with at least one more
	// attempt. Attempts continue to count. Among the jobs of its key, the id decides a job's
	// place. Where ids alone choose, jobs of these ids also run now that are delayed, or failed and wait
	// for their next attempt. It returns how many there were.
	RetryDeadJobs(ctx context.Context, q admin.DeadJobQuery) (int, error)
	// DiscardDeadJobs deletes dead letters permanently and returns how many.
	DiscardDeadJobs(ctx context.Context, q admin.DeadJobQuery) (int, error)

	// SetSchedule makes or changes a periodic job; the store sets Next. A paused one stays paused.
	// *FieldError for an invalid Cron.
	SetSchedule(ctx context.Context, s penstock.Schedule) error
	// DropSchedule removes a periodic job. ErrNoSchedule if there is none of that name.
	DropSchedule(ctx context.Context, queue, name string) error
	// PauseSchedule has a periodic job enqueue nothing until ResumeSchedule. ErrNoSchedule if there
	// is none of that name.
	PauseSchedule(ctx context.Context, queue, name string) error
	// ResumeSchedule ends the pause. No job makes up for times that have passed.
	ResumeSchedule(ctx context.Context, queue, name string) error
	// RunSchedule enqueues the job of a schedule now, also while that is paused or its last job has
	// not ended. Next stays.
	RunSchedule(ctx context.Context, queue, name string) (penstock.Enqueued, error)
	// Schedules lists the periodic jobs of a queue, ordered by name.
	Schedules(ctx context.Context, queue string) ([]penstock.Schedule, error)

	// QueueStatus describes every queue, or those of names that exist, ordered by the bytes of
	// their names.
	QueueStatus(ctx context.Context, names ...string) ([]admin.QueueStatus, error)
	// QueueStatusUpTo counts up to a limit, as StatusCounter does; 0 means no limit. With a most below 0 it counts nothing and
	// returns only the settings, for the verbs that change them.
	QueueStatusUpTo(ctx context.Context, most int, names ...string) ([]admin.QueueStatus, error)
	// ListJobs is a page of the jobs that wait or run.
	ListJobs(ctx context.Context, q admin.JobQuery) (admin.JobPage, error)
	// QueueGroups describes up to most groups of a queue that have jobs or dead letters. They
	// are ordered by their bytes and begin after the given one, or with the first if it is empty.
	QueueGroups(ctx context.Context, queue, after string, most int) ([]admin.GroupStatus, error)
}

// GroupStore is a store whose queues have policies of groups. All of it is in force for each Claim that begins afterwards,
// in all processes, and is deleted with the queue. Errors: ErrNoQueue, *FieldError.
type GroupStore interface {
	// SetGroup replaces the policy of a group, or of penstock.DefaultGroup. One that sets nothing is deleted. A limit that
	// is lowered ends no job that runs: none starts until there is room.
	SetGroup(ctx context.Context, queue string, p penstock.GroupPolicy) error
	// HoldGroup lets no job of a group start for a time from now. It does not shorten an earlier hold; 0 ends it. The reason
	// is for people.
	HoldGroup(ctx context.Context, queue, group string, d time.Duration, reason string) error
	// GroupPolicies returns up to most groups of a queue that have a policy or are held. They are ordered by their bytes and
	// begin after the given one, or with the first if it is empty.
	GroupPolicies(ctx context.Context, queue, after string, most int) ([]admin.GroupPolicy, error)
}

// BarrierQueue is a queue that has barriers. A job may hold one (NewJob.Holds) and wait for others (NewJob.WaitsFor). A barrier opens, once,
// when it is sealed and each job that holds it has ended: it is done, cancelled, expired or discarded. It opens in the transaction that
// ends the last one. Errors: ErrNoQueue, *FieldError.
type BarrierQueue interface {
	// Barrier makes one, and returns its number.
	Barrier(ctx context.Context) (int64, error)
	// Seal declares that no more jobs will hold a barrier, but for those that jobs which hold it add while they run. If none does it
	// opens at once.
	Seal(ctx context.Context, barrier int64) error
}

// WaitingPublisher is a BarrierQueue whose barriers messages may wait for.
type WaitingPublisher interface {
	// PublishAfter writes a message that is published to its outbox in the transaction that opens the last of its barriers. Until then it is
	// listed, counted and cancelled like a job of the queue that waits, by the id that is returned. It becomes a dead letter of the queue with
	// OnDeadCancel, and if the outbox refuses it then. Retried, it is published. Errors: also ErrNoOutbox.
	PublishAfter(ctx context.Context, m penstock.WaitingMessage) (int64, error)
}

// GroupHolder is a queue of a GroupStore.
type GroupHolder interface {
	// HoldGroup is GroupStore.HoldGroup. A worker calls it if a handler asks for that.
	HoldGroup(ctx context.Context, group string, d time.Duration, reason string) error
}

// Reporter is a queue that keeps a worker's report of a job that it runs: its progress, or its result.
type Reporter interface {
	// Report replaces the report of a job, but for the results of its steps. It is JSON of up to MaxReportBytes, with those. The next
	// attempt has it as Job.Report. ErrLeaseLost if the lease is lost.
	//
	// The results are an object by the steps' names, the report's member MemberSteps. A report that has this member adds to the one before:
	// its members to those, and its steps to theirs. It is refused if the job has a step of that name.
	// A report that is not an object is refused if the job has steps; a step takes the place of one.
	Report(ctx context.Context, lease int64, report []byte) error
}

// HeartbeatEvery is how often a worker sends a heartbeat.
const HeartbeatEvery = 30 * time.Second

// Heartbeater is a queue that keeps which workers live, also those that have no job.
type Heartbeater interface {
	// Heartbeat notes that a worker lives, for three times HeartbeatEvery. The store sets Queue, SeenAt and AliveUntil.
	Heartbeat(ctx context.Context, worker admin.Worker) error
}

// WorkerStore is a store whose queues are Heartbeaters.
type WorkerStore interface {
	// Workers returns up to most workers that have sent a heartbeat in the last ten minutes, by queue and name. They are those of one queue, or of
	// all if its name is empty.
	Workers(ctx context.Context, queue string, most int) ([]admin.Worker, error)
}

// SampleStore is a store that keeps samples of its queues and subscriptions, which workers and relays take while they run.
type SampleStore interface {
	// Samples returns those of the last time: those of subscriptions first, then those of queues.
	Samples(ctx context.Context, last time.Duration) ([]admin.Samples, error)
}

// HistoryStore is a store that can keep jobs after they were acked: see QueueSettings.KeepDone. It does not keep jobs that
// were dequeued or cancelled. Dead letters are kept separately.
type HistoryStore interface {
	// DoneJobs returns kept jobs, roughly in the order in which they were done, the latest first. next is where the next page
	// begins, or empty at the end. A page may have fewer jobs than were asked for, or none, and others may follow.
	DoneJobs(ctx context.Context, q admin.DoneJobQuery) (jobs []admin.DoneJob, next string, err error)
}
