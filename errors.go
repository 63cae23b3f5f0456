package penstock

import (
	"errors"
	"fmt"
	"time"
)

// Errors that callers distinguish with errors.Is.
var (
	// ErrFenced: another reader took the subscription's lease. The reader that gets
	// this error must stop sending. The new reader sends the unsettled messages.
	ErrFenced = errors.New("the lease of this subscription is held by another relay")
	// ErrHeld: the lease could not be taken because it is held and has not
	// expired. Try again later. Stores return it wrapped in a *HeldError.
	ErrHeld = errors.New("the subscription is held by another relay")
	// ErrNoOutbox: there is no outbox of that name.
	ErrNoOutbox = errors.New("no such outbox")
	// ErrNoSubscription: the outbox has no subscription of that name.
	ErrNoSubscription = errors.New("no such subscription")
	// ErrOutboxExists: an outbox of that name exists already. Outboxes and queues share
	// their names, so CreateQueue also returns it.
	ErrOutboxExists = errors.New("the outbox exists already")
	// ErrReplaying: another replay of the subscription still has to deliver some of the same messages.
	ErrReplaying = errors.New("a replay of these messages is under way")
	// ErrNoQueue: there is no queue of that name.
	ErrNoQueue = errors.New("no such queue")
	// ErrQueueExists: a queue of that name exists already. CreateOutbox also returns it.
	ErrQueueExists = errors.New("the queue exists already")
	// ErrNoSchedule: the queue has no periodic job of that name.
	ErrNoSchedule = errors.New("no such schedule")
	// ErrLeaseLost: the job's lease has ended or was settled already. The job may be
	// running in another worker.
	ErrLeaseLost = errors.New("the lease of this job is lost")
	// ErrNotMigrated: the database has no Penstock schema, or an older one. The latter is also ErrOlderSchema.
	ErrNotMigrated = errors.New("the database is not migrated")
	// ErrOlderSchema: the database was migrated by an older Penstock.
	ErrOlderSchema = errors.New("the database was migrated by an older version of penstock")
	// ErrNewerSchema: the database was migrated by a newer Penstock.
	ErrNewerSchema = errors.New("the database was migrated by a newer version of penstock")
	// ErrBrokenSchema: a table or column of this version of the schema is missing.
	ErrBrokenSchema = errors.New("the schema is not whole")
	// ErrClosed: the store, source or sink was closed.
	ErrClosed = errors.New("it was closed")
)

// SchemaError describes the fault in the tables of a database. errors.Is finds ErrNotMigrated, ErrOlderSchema, ErrNewerSchema or
// ErrBrokenSchema in it.
type SchemaError struct {
	Where      string // the schema, database or file
	Have, Want int64  // the version of its tables (0: it has none), and the version that this program needs
	Lacks      string // the table or column that is missing
}

func (e *SchemaError) Error() string {
	switch {
	case e.Lacks != "":
		return fmt.Sprintf("%v: %s of version %d lacks %s", ErrBrokenSchema, e.Where, e.Have, e.Lacks)
	case e.Have == 0:
		return fmt.Sprintf("%v: there are no Penstock tables in %s", ErrNotMigrated, e.Where)
	case e.Have < e.Want:
		return fmt.Sprintf("%v: %s has version %d of the tables, this program needs %d", ErrOlderSchema, e.Where, e.Have, e.Want)
	}
	return fmt.Sprintf("%v: %s has version %d of the tables, this program knows %d", ErrNewerSchema, e.Where, e.Have, e.Want)
}

// Is reports whether e is of the kind target, one of the four errors above.
func (e *SchemaError) Is(target error) bool {
	switch {
	case e.Lacks != "":
		return target == ErrBrokenSchema
	case e.Have == 0:
		return target == ErrNotMigrated
	case e.Have < e.Want:
		return target == ErrOlderSchema || target == ErrNotMigrated
	}
	return target == ErrNewerSchema
}

// HeldError names who holds a lease and until when.
type HeldError struct {
	Subscription string
	Holder       string
	Until        time.Time
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("subscription %q is held by %q until %s", e.Subscription, e.Holder, e.Until.Format(time.RFC3339))
}

// Unwrap makes errors.Is(err, ErrHeld) true.
func (e *HeldError) Unwrap() error { return ErrHeld }

// FieldError is bad input: the field of a message or option, the problem with
// its value, and the next step.
type FieldError struct {
	Field   string
	Problem string
	Hint    string
}

func (e *FieldError) Error() string {
	s := e.Field + " " + e.Problem
	if e.Hint != "" {
		s += ": " + e.Hint
	}
	return s
}

// HintError adds the operator's next step to an error.
type HintError struct {
	Err  error
	Hint string
}

// WithHint returns err with the next step to take, or nil if err is nil.
func WithHint(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return &HintError{Err: err, Hint: fmt.Sprintf(format, args...)}
}

func (e *HintError) Error() string { return e.Err.Error() + " (" + e.Hint + ")" }

func (e *HintError) Unwrap() error { return e.Err }

// The sink classifies errors, and the relay acts on the class. An error of none of the three
// classes below concerns the message and is worth another attempt.
type (
	permanentError   struct{ error }
	unavailableError struct{ error }
	retryAfterError  struct {
		error
		after time.Duration
	}
)

func (e permanentError) Unwrap() error   { return e.error }
func (e unavailableError) Unwrap() error { return e.error }
func (e retryAfterError) Unwrap() error  { return e.error }

// Permanent classifies an error that would come again with the same message and
// configuration.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanentError{err}
}

// IsPermanent reports whether err is Permanent.
func IsPermanent(err error) bool {
	var e permanentError
	return errors.As(err, &e)
}

// Unavailable classifies an error that says nothing about the message: the broker
// as a whole cannot be reached or refuses everything. The relay pauses the
// subscription and spends no attempt of any message.
func Unavailable(err error) error {
	if err == nil {
		return nil
	}
	return unavailableError{err}
}

// IsUnavailable reports whether err is Unavailable.
func IsUnavailable(err error) bool {
	var e unavailableError
	return errors.As(err, &e)
}

// RetryAfter adds to an error how long the broker asks to wait before the next attempt.
// If only a part of the broker accepts nothing, for example a full stream, combine it
// with Unavailable. Then the message and its key wait that long and no attempt is spent.
// Messages of other keys continue. Unavailable(RetryAfter(err, d)) is about the broker as a
// whole: nothing is sent until then.
func RetryAfter(err error, after time.Duration) error {
	if err == nil {
		return nil
	}
	return retryAfterError{err, after}
}

// RetryDelay returns the delay given to RetryAfter, and whether there is one.
func RetryDelay(err error) (time.Duration, bool) {
	if e, ok := errors.AsType[retryAfterError](err); ok {
		return e.after, true
	}
	return 0, false
}
