package penstock

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Limits of a job, in addition to those of a message.
const (
	MaxGroupBytes = 256
	MaxDedupBytes = 256
	MaxKindBytes  = 100
	// Jobs with a lower priority number run first. The default is 0.
	MinPriority = -16
	MaxPriority = 15
)

// MemberSteps is the member of a report that holds the results of steps by their names, see work.Step.
const MemberSteps = "penstock-steps"

// NewJob is a job to enqueue.
type NewJob struct {
	// Payload is opaque: any bytes, up to MaxPayloadBytes.
	Payload []byte
	// Kind names the handler that takes the job, see work.Mux: 1 to MaxKindBytes bytes without control characters, or '',
	// the default. The store writes it as the header HeaderKind.
	Kind string
	// Key serialises: in a queue at most one job of a key runs at a time. Jobs of a key
	// run in the order of their ids, in FIFO and LIFO queues and with any priorities. A
	// job that waits to be tried again keeps its place, and those behind it wait. A job
	// whose NotBefore has not come has no place yet and delays none. A job with an empty
	// key waits for no other job.
	Key string
	// Group is a tenant or an account, for example. Each group has its own order, and a
	// Claim takes jobs of one group. The empty group is a group as well.
	Group    string
	Priority int
	// NotBefore is when the job may run at the earliest; zero means at once.
	NotBefore time.Time
	// DedupKey: within the queue's deduplication window, a second job with the same key
	// is not enqueued. Empty means no deduplication.
	DedupKey string
	// UniqueKey: the queue has at most one job with it that has not ended, see OnConflict. It is the job's key as well, so Key
	// is empty or the same. Empty means that the job is not unique.
	UniqueKey string
	// OnConflict decides what happens if the queue has such a job. Default OnConflictIgnore.
	OnConflict OnConflict
	// DebounceMax limits how long OnConflictDebounce puts a job off, from when it was first enqueued. 0 means no limit.
	DebounceMax time.Duration
	// MaxAttempts is after how many attempts the job becomes a dead letter. 0 means as many as the queue's.
	MaxAttempts int
	// Timeout is how long an attempt may take, at least a millisecond: the handler's context ends then. 0 means as long as the
	// handler's timeout says.
	Timeout time.Duration
	// Deadline is when the job is worth nothing any more: from then on no attempt begins, and the job ends as expired. It is not a
	// dead letter. Zero means never.
	Deadline time.Time
	// Holds is a barrier of the queue, see driver.BarrierQueue: it opens after this job has ended. 0 means none.
	Holds int64
	// WaitsFor are barriers of the queue: the job runs once all are open. It needs an empty NotBefore.
	WaitsFor []int64
	// OnDead decides what happens if a job that holds one of these is dead. Default OnDeadWait.
	OnDead  OnDead
	Headers map[string]string
}

// Validate returns a *FieldError for the first field that a store could not carry.
// Every store calls it before it writes.
func (j *NewJob) Validate() error {
	if err := j.validateOptions(); err != nil {
		return err
	}
	carried := Message{Key: j.Key, Headers: j.AllHeaders(), Payload: j.Payload}
	if err := carried.Validate(); err != nil {
		return err
	}
	if err := ValidateText("group", j.Group, MaxGroupBytes); err != nil {
		return err
	}
	if err := ValidateText("dedup key", j.DedupKey, MaxDedupBytes); err != nil {
		return err
	}
	if j.Priority < MinPriority || j.Priority > MaxPriority {
		return &FieldError{Field: "priority", Problem: fmt.Sprintf("is %d", j.Priority), Hint: fmt.Sprintf("use %d (first) to %d (last)", MinPriority, MaxPriority)}
	}
	if y := j.NotBefore.Year(); y < 0 || y > 9999 { // stores count microseconds, between limits
		return &FieldError{Field: "not before", Problem: fmt.Sprintf("is in the year %d", y), Hint: "use one from 0 to 9999, or the zero time for a job that may run at once"}
	}
	return nil
}

// WaitingMessage is a message that waits for barriers of a queue, see driver.WaitingPublisher.
type WaitingMessage struct {
	Message
	// Outbox is where it is published.
	Outbox string
	// WaitsFor are barriers of the queue, at least one: the message is published once all are open.
	WaitsFor []int64
	// OnDead is as in NewJob, for jobs that hold one of these.
	OnDead OnDead
}

// Validate returns a *FieldError for the first field that a store could not carry.
func (m *WaitingMessage) Validate() error {
	if len(m.WaitsFor) == 0 {
		return &FieldError{Field: "waits for", Problem: "is empty", Hint: "give the barriers to wait for, or publish the message"}
	}
	if err := (&NewJob{WaitsFor: m.WaitsFor, OnDead: m.OnDead}).validateBarriers(); err != nil {
		return err
	}
	return m.Message.Validate()
}

// ValidateKind returns a *FieldError for a kind that no job can have. The empty kind is that of jobs without one.
func ValidateKind(kind string) error {
	if err := ValidateText("kind", kind, MaxKindBytes); err != nil {
		return err
	}
	if i := strings.IndexFunc(kind, func(r rune) bool { return r < 0x20 || r == 0x7f }); i >= 0 {
		return &FieldError{Field: "kind", Problem: fmt.Sprintf("has a control character at byte %d", i), Hint: "use printable characters: the kind is a label of metrics"}
	}
	return nil
}

// Enqueued is the result of enqueueing a NewJob.
type Enqueued struct {
	// ID is the id of the job. For a duplicate it is the id of the job that was there.
	ID int64
	// Deduplicated: no job was added, because the queue had one with its DedupKey or UniqueKey.
	Deduplicated bool
}

// Job is a job that was claimed. The worker has it until its lease ends.
type Job struct {
	// ID stays the same through all attempts of the job.
	ID        int64
	Key       string
	Group     string
	Priority  int
	Attempt   int // 1 the first time
	CreatedAt time.Time
	Headers   map[string]string
	Payload   []byte
	// Report is what the last attempt that reported has reported, as JSON; nil if none has. The results of steps are in its member MemberSteps.
	Report json.RawMessage
	// Lease is the token of this claim: Ack, Retry, DeadLetter and Extend take it.
	Lease int64
	// LeaseUntil is when the lease ends at the earliest. If the claim also did maintenance, it ends a little later.
	LeaseUntil time.Time
}

// QueueOrder is the order in which jobs of one priority run.
type QueueOrder string

const (
	FIFO QueueOrder = "fifo" // the oldest first
	LIFO QueueOrder = "lifo" // the newest first
)

// QueueSettings are the settings of a queue that can be changed. In SetQueue, nil
// leaves a setting as it is.
type QueueSettings struct {
	// Paused: jobs are enqueued, but none is claimed or dequeued.
	Paused *bool `json:"paused,omitempty"`
	// MaxAttempts is after how many attempts a job becomes a dead letter, at least 1. Default 25.
	MaxAttempts *int `json:"max_attempts,omitempty"`
	// MaxRunning is how many jobs may be claimed at a time, in all processes
	// together; 0 means no limit.
	MaxRunning *int `json:"max_running,omitempty"`
	// Rate is how many jobs of the queue may start, in all processes together. The zero Rate means no limit, and
	// admin.QueueStatus then has nil.
	Rate *Rate `json:"rate,omitempty"`
	// DedupWindow is how long a DedupKey counts, at least a microsecond. Default 1 hour.
	DedupWindow *time.Duration `json:"dedup_window_ns,omitempty"`
	// KeepDone is how long jobs are kept after they are done, see driver.HistoryStore. 0, the default, keeps none, and
	// admin.QueueStatus then has nil.
	KeepDone *time.Duration `json:"keep_done_ns,omitempty"`
	// KeepDoneBytes limits how much space these jobs take. Beyond it the oldest are removed early. Default 1 GiB.
	KeepDoneBytes *int64 `json:"keep_done_bytes,omitempty"`
}

// Schedule is a periodic job. At every time that Cron describes one job is
// enqueued, however many workers run. For times that passed while no worker
// ran, one job is enqueued, not one each.
type Schedule struct {
	Queue string `json:"queue"`
	Name  string `json:"name"`
	// Cron has five fields: minute, hour, day of month, month, day of week. They take *, lists, ranges and steps. Cron may
	// also be
	// @hourly, @daily, @weekly, @monthly or @yearly. Times are in UTC, or in a zone that comes first:
	//
	// 	TZ=Europe/Berlin 30 4 * * *
	//
	// At daylight-saving changes a schedule fires once, unless its hour begins with *.
	Cron string `json:"cron"`
	Job  NewJob `json:"job"`
	// SkipOverlap leaves out a time at which the schedule's last job has not ended. A dead letter has ended.
	SkipOverlap bool `json:"skip_overlap"`

	// The store sets the following fields, and SetSchedule ignores them.

	Next time.Time `json:"next"`
	// Paused: no job is enqueued until ResumeSchedule.
	Paused bool `json:"paused"`
	// LastJob is the id of the last job that the schedule has made, or 0.
	LastJob int64 `json:"last_job"`
}
