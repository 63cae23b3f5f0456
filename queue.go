package penstock

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Limits of a job beyond those of a message.
const (
	MaxGroupBytes = 256
	MaxDedupBytes = 256
	// Jobs of a lower priority number run first; 0 is the default.
	MinPriority = -16
	MaxPriority = 15
	// MaxClaim is the most jobs that one Claim returns.
	MaxClaim = 10_000
)

// NewJob is what a producer enqueues.
type NewJob struct {
	// Payload is opaque: any bytes, up to MaxPayloadBytes.
	Payload []byte
	// Key serialises: at most one job of a key runs at a time in its queue, in the
	// order of their ids, whatever their priorities and whether the queue is FIFO or
	// LIFO. One that is to be tried again keeps its place, and those behind wait
	// for it; one whose NotBefore has not come has none yet, and holds nobody up.
	// Empty means that the job waits for nobody.
	Key string
	// Group, a tenant or an account, is ordered by itself: each Claim is from
	// one group. Empty is a group, too.
	Group    string
	Priority int
	// NotBefore is when it may run; zero means at once.
	NotBefore time.Time
	// DedupKey: while the queue's window lasts, a second job with the same one is
	// not enqueued. Empty means no deduplication.
	DedupKey string
	Headers  map[string]string
}

// Validate reports the first field that a store could not carry, as a *FieldError.
// Every store calls it before it writes.
func (j *NewJob) Validate() error {
	carried := Message{Key: j.Key, Headers: j.Headers, Payload: j.Payload}
	if err := carried.Validate(); err != nil {
		return err
	}
	if err := validText("group", j.Group, MaxGroupBytes); err != nil {
		return err
	}
	if err := validText("dedup key", j.DedupKey, MaxDedupBytes); err != nil {
		return err
	}
	if j.Priority < MinPriority || j.Priority > MaxPriority {
		return &FieldError{Field: "priority", Problem: fmt.Sprintf("is %d", j.Priority), Hint: fmt.Sprintf("use %d (first) to %d (last)", MinPriority, MaxPriority)}
	}
	if y := j.NotBefore.Year(); y > 9999 { // stores count microseconds, and not for ever
		return &FieldError{Field: "not before", Problem: fmt.Sprintf("is in the year %d", y), Hint: "use one up to 9999, or do not enqueue the job yet"}
	}
	return nil
}

// Validate reports what of a claim no store takes, as a *FieldError.
func (c *Claim) Validate() error {
	if c.Jobs < 1 || c.Jobs > MaxClaim {
		return &FieldError{Field: "jobs", Problem: fmt.Sprintf("is %d", c.Jobs), Hint: fmt.Sprintf("claim 1 to %d at a time", MaxClaim)}
	}
	if err := ValidateLease(c.Lease); err != nil {
		return err
	}
	if err := validText("group", c.Group, MaxGroupBytes); err != nil {
		return err
	}
	return validText("worker", c.Worker, MaxHolderBytes)
}

// Enqueued is what became of a NewJob.
type Enqueued struct {
	// ID is the job's for life; of a duplicate, that of the job that came first.
	ID int64
	// Deduplicated: nothing was written, because the queue had a job with its DedupKey.
	Deduplicated bool
}

// Job is one job that was claimed, for as long as its lease lasts.
type Job struct {
	// ID is the job's for life, through all its attempts.
	ID        int64
	Key       string
	Group     string
	Priority  int
	Attempt   int // 1 the first time
	CreatedAt time.Time
	Headers   map[string]string
	Payload   []byte
	// Lease is the token of this claim: Ack, Retry, DeadLetter and Extend take it.
	Lease int64
	// LeaseUntil is when it ends, or earlier: maintenance that the claim did makes it longer.
	LeaseUntil time.Time
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
	Enqueue(ctx context.Context, jobs ...NewJob) ([]Enqueued, error)

	// Claim leases jobs that may run now, and returns them in the order in which
	// they should: by priority, then first in, first out, or the last first, as the
	// queue was made. It does not wait; no jobs is not an error. A job whose lease
	// ends comes back by itself, and the attempt counts: after the last one it is a
	// dead letter.
	Claim(ctx context.Context, c Claim) ([]Job, error)

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
	AckClaim(ctx context.Context, acks []int64, c Claim) (acked []int64, jobs []Job, err error)
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
	CreateQueue(ctx context.Context, name string, order QueueOrder) error
	// DropQueue removes a queue with its jobs.
	DropQueue(ctx context.Context, name string) error
	// SetQueue changes a queue's settings; fields that are nil stay as they are.
	SetQueue(ctx context.Context, name string, s QueueSettings) error

	// Queue names a queue; it does not check that it exists.
	Queue(name string) Queue

	// CancelJobs removes jobs that wait, and makes running ones end as if they
	// were done: their workers' next Extend no longer returns them. It returns
	// how many jobs there were.
	CancelJobs(ctx context.Context, queue string, ids ...int64) (int, error)

	// DeadJobs returns the dead letters that q describes, by id.
	DeadJobs(ctx context.Context, q DeadJobQuery) ([]DeadJob, error)
	// RetryDeadJobs puts dead letters back into their queue, at its end, with one
	// more attempt to spend at least; attempts go on counting where they were, and
	// among those of its key a job goes by its id. It returns how many there were.
	RetryDeadJobs(ctx context.Context, q DeadJobQuery) (int, error)
	// DiscardDeadJobs deletes dead letters for good and returns how many.
	DiscardDeadJobs(ctx context.Context, q DeadJobQuery) (int, error)

	// SetSchedule makes or changes a periodic job; Next is the store's to set. A Cron
	// that makes no sense is a *FieldError.
	SetSchedule(ctx context.Context, s Schedule) error
	// DropSchedule removes one. ErrNoSchedule if there is none of that name.
	DropSchedule(ctx context.Context, queue, name string) error
	// Schedules lists those of a queue, by name.
	Schedules(ctx context.Context, queue string) ([]Schedule, error)

	// QueueStatus describes every queue, or those of these names that are there, ordered by the bytes of its name.
	QueueStatus(ctx context.Context, names ...string) ([]QueueStatus, error)
	// QueueGroups describes up to most groups of a queue that have jobs or dead letters, ordered by
	// their bytes: those after the given one, or if that is empty, from the first.
	QueueGroups(ctx context.Context, queue, after string, most int) ([]GroupStatus, error)
}

// QueueOrder is in which order the jobs of one priority run.
type QueueOrder string

const (
	FIFO QueueOrder = "fifo" // the oldest first
	LIFO QueueOrder = "lifo" // the newest first
)

// QueueSettings are what can be changed of a queue. In SetQueue, nil leaves a
// setting as it is.
type QueueSettings struct {
	// Paused: jobs are enqueued, but none is claimed or dequeued.
	Paused *bool `json:"paused,omitempty"`
	// MaxAttempts before a job is a dead letter, at least 1. 25 unless it is set.
	MaxAttempts *int `json:"max_attempts,omitempty"`
	// MaxRunning is how many jobs may be claimed at a time, in all processes
	// together; 0 means no limit.
	MaxRunning *int `json:"max_running,omitempty"`
	// DedupWindow is how long a DedupKey counts, at least a microsecond; an hour unless it is set.
	DedupWindow *time.Duration `json:"dedup_window_ns,omitempty"`
	// KeepDone is for how long jobs that are done are kept, see HistoryStore; 0, the default, keeps none, and QueueStatus has nil then.
	KeepDone *time.Duration `json:"keep_done_ns,omitempty"`
	// KeepDoneBytes is what they may take: beyond it the oldest go before their time. 1 GiB unless it is set.
	KeepDoneBytes *int64 `json:"keep_done_bytes,omitempty"`
}

// Schedule is a periodic job: at every time that Cron describes one job
// is enqueued, whatever number of processes there are. Times that passed
// while nobody looked are made up for by one job, not by one each.
type Schedule struct {
	Queue string `json:"queue"`
	Name  string `json:"name"`
	// Cron has five fields (minute hour day-of-month month day-of-week) with
	// *, lists, ranges and steps, or is @hourly, @daily, @weekly, @monthly, @yearly; in UTC, or in a zone that
	// goes before it: TZ=Europe/Berlin 30 4 * * *. Where clocks change, a time of day comes once.
	Cron string    `json:"cron"`
	Job  NewJob    `json:"job"`
	Next time.Time `json:"next"`
}

// DeadJobQuery chooses dead letters of one queue. Every field that is not zero
// narrows the choice.
type DeadJobQuery struct {
	Queue string
	IDs   []int64
	Key   string
	Group string
	// Error is contained in the last error, in the same case.
	Error string
	// DiedBefore and DiedAfter bound when they became dead letters.
	DiedBefore, DiedAfter time.Time
	// AfterID leaves out what is up to it, for reading page by page.
	AfterID int64
	// Limit is the most that are returned, retried or discarded; 0 means no limit.
	Limit int
	// Bytes ends what is returned with the one by which payloads have so many; 0 means no limit. PostgreSQL and SQLite keep to it.
	Bytes int
}

// DeadJob is a job that was given up, with the reason.
type DeadJob struct {
	Job Job
	// Failures are the latest attempts, up to MaxFailures, oldest first.
	Failures []Failure
	At       time.Time
}

// Err is why the last attempt failed.
func (d DeadJob) Err() string { return lastError(d.Failures) }

// QueueStatus is one queue as `penstock status` shows it.
type QueueStatus struct {
	Queue string     `json:"queue"`
	Order QueueOrder `json:"order"`
	QueueSettings
	// Bytes is what the queue's own tables take on disk, with indexes.
	Bytes    int64           `json:"bytes"`
	Segments []SegmentStatus `json:"segments,omitempty"`
	// DoneBytes is what kept jobs that are done take beside that.
	DoneBytes int64 `json:"done_bytes,omitempty"`
	// Trouble says why space is not given back: what failed last, and where. Only who may
	// read the store's own tables is told.
	Trouble []string `json:"trouble,omitempty"`
	// Ready counts jobs that may run now, Running those that are claimed and whose lease has not ended,
	// Delayed those whose time has not come or that wait to be tried again, Waiting those that
	// wait for another job of their key.
	Ready   int64 `json:"ready"`
	Running int64 `json:"running"`
	Delayed int64 `json:"delayed"`
	Waiting int64 `json:"waiting"`
	// DeadLetters kept.
	DeadLetters int64 `json:"dead_letters"`
	// OldestAge is the age of the oldest ready job, 0 without one.
	OldestAge time.Duration `json:"oldest_age_ns"`
	// AtLeast names the figures, as JSON has them, that were not counted to their end.
	AtLeast []string `json:"at_least,omitempty"`
	// Groups are filled in by whoever asks for them, see QueueGroups.
	Groups []GroupStatus `json:"groups,omitempty"`
}

// Cap cuts figures that were counted up to most, and names them in AtLeast; more means that there are jobs in groups
// that were not looked at. 0 means that all were counted.
func (q *QueueStatus) Cap(most int64, more bool) {
	q.AtLeast = capped(most, map[string]*int64{"ready": &q.Ready, "running": &q.Running, "delayed": &q.Delayed, "waiting": &q.Waiting, "dead_letters": &q.DeadLetters})
	for _, name := range []string{"ready", "waiting"} {
		if more && !slices.Contains(q.AtLeast, name) {
			q.AtLeast = append(q.AtLeast, name)
		}
	}
}

// GroupStatus is one group of a queue. Its figures mean what they do in QueueStatus.
type GroupStatus struct {
	Group       string        `json:"group"`
	Ready       int64         `json:"ready"`
	Running     int64         `json:"running"`
	Delayed     int64         `json:"delayed"`
	Waiting     int64         `json:"waiting"`
	DeadLetters int64         `json:"dead_letters"`
	OldestAge   time.Duration `json:"oldest_age_ns"`
	// More: a store that does not count long groups to their end has left out jobs, or dead
	// letters.
	More bool `json:"more,omitempty"`
}
