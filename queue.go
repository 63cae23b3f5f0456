package penstock

import (
	"fmt"
	"time"
)

// Limits of a job beyond those of a message.
const (
	MaxGroupBytes = 256
	MaxDedupBytes = 256
	// Jobs of a lower priority number run first; 0 is the default.
	MinPriority = -16
	MaxPriority = 15
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
	if err := ValidateText("group", j.Group, MaxGroupBytes); err != nil {
		return err
	}
	if err := ValidateText("dedup key", j.DedupKey, MaxDedupBytes); err != nil {
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
