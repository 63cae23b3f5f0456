package penstock

import (
	"fmt"
	"math"
	"time"
)

// Limits of names, in bytes. They hold for every store, and for PostgreSQL's functions.
// docs/reference/limits.md lists them all.
const (
	MaxNameBytes         = 48 // of an outbox, a queue or an inbox's consumer
	MaxSubscriptionBytes = 128
	MaxScheduleBytes     = 128
	MaxHolderBytes       = 256 // Subscribe.Holder, Claim.Worker
)

// Limits of the history of a queue.
const (
	// MaxReportBytes is the largest report of a job.
	MaxReportBytes = 64 << 10
	// MinKeepDoneBytes is the smallest QueueSettings.KeepDoneBytes.
	MinKeepDoneBytes = 1 << 20
)

// leastTime is the resolution of time in the databases.
const leastTime = time.Microsecond

// ValidateName returns a *FieldError for a name that is empty, or that ValidateText refuses.
func ValidateName(field, name string, limit int) error {
	if name == "" {
		return &FieldError{Field: field, Problem: "has no name", Hint: fmt.Sprintf("give it one of 1 to %d bytes", limit)}
	}
	return ValidateText(field, name, limit)
}

func ownName(field, name string) error {
	if err := ValidateName(field, name, MaxNameBytes); err != nil {
		return err
	}
	if name[0] == '_' {
		return &FieldError{Field: field, Problem: fmt.Sprintf("%q begins with an underscore", name), Hint: "such names are Penstock's own; choose another"}
	}
	return nil
}

// ValidateOutboxName returns a *FieldError for a name that no outbox can have. A name has 1 to
// MaxNameBytes bytes of UTF-8 without NUL and does not begin with an underscore. Drivers quote it.
func ValidateOutboxName(name string) error { return ownName("outbox", name) }

// ValidateQueueName does the same for queues, which share their names with outboxes.
func ValidateQueueName(name string) error { return ownName("queue", name) }

// ValidateConsumer returns a *FieldError for a name that no consumer can have. A name has 1 to
// MaxNameBytes bytes of UTF-8 without NUL.
func ValidateConsumer(name string) error { return ValidateName("consumer", name, MaxNameBytes) }

// Validate returns a *FieldError for an unknown order. The empty order means FIFO.
func (o QueueOrder) Validate() error {
	switch o {
	case "", FIFO, LIFO:
		return nil
	}
	return &FieldError{Field: "order", Problem: fmt.Sprintf("is %q", o), Hint: "use fifo or lifo"}
}

// Validate returns a *FieldError for the first setting that no queue accepts.
func (s QueueSettings) Validate() error {
	switch {
	case s.MaxAttempts != nil && (*s.MaxAttempts < 1 || *s.MaxAttempts > math.MaxInt32):
		return &FieldError{Field: "max attempts", Problem: fmt.Sprintf("is %d", *s.MaxAttempts), Hint: fmt.Sprintf("use 1 to %d; with 1 a job that fails is a dead letter at once", math.MaxInt32)}
	case s.MaxRunning != nil && (*s.MaxRunning < 0 || *s.MaxRunning > math.MaxInt32):
		return &FieldError{Field: "max running", Problem: fmt.Sprintf("is %d", *s.MaxRunning), Hint: fmt.Sprintf("use 1 to %d, 0 for no limit, or pause the queue", math.MaxInt32)}
	case s.DedupWindow != nil && *s.DedupWindow < leastTime:
		return &FieldError{Field: "dedup window", Problem: fmt.Sprintf("is %s", *s.DedupWindow), Hint: "use a microsecond or more; jobs without a dedup key are never duplicates"}
	case s.KeepDone != nil && *s.KeepDone != 0 && *s.KeepDone < leastTime:
		return &FieldError{Field: "keep done", Problem: fmt.Sprintf("is %s", *s.KeepDone), Hint: "use a microsecond or more, or 0 to keep no jobs that are done"}
	case s.KeepDoneBytes != nil && *s.KeepDoneBytes < MinKeepDoneBytes:
		return &FieldError{Field: "keep done bytes", Problem: fmt.Sprintf("is %d", *s.KeepDoneBytes), Hint: fmt.Sprintf("use %d or more, or keep no jobs that are done", MinKeepDoneBytes)}
	case s.Rate != nil:
		return s.Rate.Validate()
	}
	return nil
}

// ValidateWithoutHistory is Validate for a store that is not a driver.HistoryStore.
func (s QueueSettings) ValidateWithoutHistory() error {
	if s.KeepDone != nil && *s.KeepDone != 0 || s.KeepDoneBytes != nil {
		return &FieldError{Field: "keep done", Problem: "is not possible in this database", Hint: "jobs that are done are kept in PostgreSQL only; have the handler write the results to keep"}
	}
	return s.Validate()
}

// Validate returns a *FieldError for the first field that no store accepts. The store checks
// Cron itself.
func (s *Schedule) Validate() error {
	if err := ValidateName("schedule", s.Name, MaxScheduleBytes); err != nil {
		return err
	}
	all := s.Job
	all.ReadHeaders()
	if all.Holds != 0 || len(all.WaitsFor) > 0 {
		field := "holds"
		if all.Holds == 0 {
			field = "waits for"
		}
		return &FieldError{Field: field, Problem: "is given for the job of a schedule", Hint: "schedule a job that makes a barrier and enqueues the others"}
	}
	if !s.Job.NotBefore.IsZero() {
		return &FieldError{Field: "not before", Problem: "is given for the job of a schedule", Hint: "leave it out: cron says when the job runs"}
	}
	return s.Job.Validate()
}
