package penstock

import (
	"errors"
	"fmt"
	"time"
)

// Errors that callers tell apart with errors.Is.
var (
	// ErrFenced: another reader took the subscription's lease. Whoever gets it
	// must stop sending; what it had not settled is the new reader's to send.
	ErrFenced = errors.New("the lease of this subscription is held by another relay")
	// ErrHeld: the lease could not be taken because it is held and has not
	// expired. Try again later. Stores return it wrapped in a *HeldError.
	ErrHeld = errors.New("the subscription is held by another relay")
	// ErrNoOutbox: there is no outbox of that name.
	ErrNoOutbox = errors.New("no such outbox")
	// ErrNoSubscription: the outbox has no subscription of that name.
	ErrNoSubscription = errors.New("no such subscription")
	// ErrOutboxExists: an outbox of that name exists already. Outboxes and queues share
	// their names, so CreateQueue returns it, too.
	ErrOutboxExists = errors.New("the outbox exists already")
	// ErrReplaying: another replay of the subscription has yet to deliver some of the same messages.
	ErrReplaying = errors.New("a replay of these messages is under way")
	// ErrNoQueue: there is no queue of that name.
	ErrNoQueue = errors.New("no such queue")
	// ErrQueueExists: a queue of that name exists already. CreateOutbox returns it, too.
	ErrQueueExists = errors.New("the queue exists already")
	// ErrNoSchedule: the queue has no periodic job of that name.
	ErrNoSchedule = errors.New("no such schedule")
	// ErrLeaseLost: the job's lease has ended or was settled already. Whatever the
	// worker did, the job may be running elsewhere.
	ErrLeaseLost = errors.New("the lease of this job is lost")
	// ErrNotMigrated: the database has no Penstock schema, or an older one, which is ErrOlderSchema, too.
	ErrNotMigrated = errors.New("the database is not migrated")
	// ErrOlderSchema: the database was migrated by an older Penstock.
	ErrOlderSchema = errors.New("the database was migrated by an older version of penstock")
	// ErrNewerSchema: the database was migrated by a newer Penstock.
	ErrNewerSchema = errors.New("the database was migrated by a newer version of penstock")
	// ErrBrokenSchema: a table or column is missing that the version of the schema has.
	ErrBrokenSchema = errors.New("the schema is not whole")
	// ErrClosed: the store, source or sink was closed.
	ErrClosed = errors.New("closed")
)

// SchemaError says what is wrong with the tables of a database. It is ErrNotMigrated, ErrOlderSchema, ErrNewerSchema or ErrBrokenSchema.
type SchemaError struct {
	Where      string // the schema, database or file
	Have, Want int64  // the version of its tables, 0 without any, and that of this program
	Lacks      string // what is missing of that version
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

// Is tells the kinds apart.
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

// HeldError tells who holds a lease and until when.
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

// FieldError is bad input: the field of a message or option that cannot be
// used, what is wrong with it and what to do.
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

// WithHint returns err with the next step to take, nil for a nil err.
func WithHint(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return &HintError{Err: err, Hint: fmt.Sprintf(format, args...)}
}

func (e *HintError) Error() string { return e.Err.Error() + " (" + e.Hint + ")" }

func (e *HintError) Unwrap() error { return e.Err }

// The sink classifies, the relay decides. An error of none of the three classes
// below is about the message and worth another attempt.
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

// Permanent classifies an error that another attempt with the same message and
// configuration cannot cure.
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

// RetryAfter adds to an error the time that the broker asked to be left alone. Where a
// part of the broker takes nothing, a stream that is full, say, it goes with
// Unavailable: the message waits that long with its key, no attempt is spent, and
// others go on.
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
