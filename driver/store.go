package driver

import (
	"context"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
)

// Store is a database that holds outboxes. Callers that need less declare a
// smaller interface. A driver under store/ implements it and passes
// internal/test/storetest.
//
// Publishing inside a business transaction is not part of it, because the
// transaction's type is the driver's: see Outbox.PublishTx of each store.
type Store interface {
	// Migrate creates Penstock's tables or brings them up to date. Safe to call
	// twice and from two processes at once. ErrNewerSchema if the database was
	// migrated by a newer version.
	Migrate(ctx context.Context) error

	// CreateOutbox makes an outbox. See ValidateOutboxName for its name;
	// drivers quote it. ErrOutboxExists if there is one, ErrQueueExists if a queue has the name. Derived message ids
	// never come again, not even if an outbox is dropped and made anew, or if an
	// older copy of the database is restored.
	CreateOutbox(ctx context.Context, name string) error
	// DropOutbox removes an outbox with its messages, subscriptions and dead
	// letters. ErrNoOutbox if there is none. A reader of it gets errors, also
	// if another outbox has got its name.
	DropOutbox(ctx context.Context, name string) error

	// Publish writes messages in one transaction of its own.
	Publish(ctx context.Context, outbox string, msgs ...penstock.Message) error

	// Subscribe takes the lease of a subscription, which it creates if needed.
	// A *HeldError if another holder has it.
	Subscribe(ctx context.Context, req Subscribe) (Source, error)

	// Maintain does the outbox's housekeeping: rotates and reclaims what every
	// subscription has settled, unless the store lets go of it when it is settled and not
	// retained; without a subscription, nothing. The relay calls it about once a second. Safe to
	// call from several processes; cheap when there is nothing to do.
	Maintain(ctx context.Context, outbox string) error

	// Status describes every outbox, ordered by the bytes of its name.
	Status(ctx context.Context) ([]admin.OutboxStatus, error)

	Operator

	Close() error
}

// Operator is what people do by hand when something went wrong. An unknown
// outbox is ErrNoOutbox, an unknown subscription ErrNoSubscription.
type Operator interface {
	// DeadLetters returns the dead letters that q describes, in order of Seq.
	// Those that were sent back and are not settled yet are not among them.
	DeadLetters(ctx context.Context, q admin.DeadLetterQuery) ([]admin.DeadLetter, error)
	// RetryDeadLetters sends dead letters back to their subscription, whose
	// next Fetches return them OutOfOrder, before an empty batch, with Attempt + 1.
	// It returns how many there were.
	RetryDeadLetters(ctx context.Context, q admin.DeadLetterQuery) (int, error)
	// DiscardDeadLetters deletes dead letters for good and returns how many.
	// Those on their way back are not among them.
	DiscardDeadLetters(ctx context.Context, q admin.DeadLetterQuery) (int, error)

	// ParkedKeys describes up to limit parked keys, those due
	// soonest first, held ones last.
	ParkedKeys(ctx context.Context, outbox, subscription string, limit int) ([]admin.ParkedKey, error)

	// RetryParked has parked keys that wait for another attempt tried at once, within about a second if
	// somebody has the lease: those named, or all without a name. It returns how many there are.
	// What is held still waits for its dead letter. Nothing else of them changes.
	RetryParked(ctx context.Context, outbox, subscription string, keys ...string) (int, error)

	// Replay has a subscription deliver again what it has settled and the outbox
	// still has, within the given range. The messages come with the next
	// Fetches, in order, between new ones, with Attempt 1. It returns how many there are.
	// What is not settled yet, or parked, is not among them: it comes anyway. Nor are dead
	// letters, about which a person decides. Until it is delivered the
	// range is not reclaimed. A replay survives a crash; some of it may come twice then.
	// What another replay has yet to deliver comes once: the two are merged, or it is ErrReplaying.
	Replay(ctx context.Context, r admin.Replay) (int64, error)

	// SetRetention says how long an outbox keeps what every subscription has
	// settled. What is not settled is kept in any case.
	SetRetention(ctx context.Context, outbox string, r admin.Retention) error

	// DropSubscription removes a subscription with its cursor, parked messages
	// and dead letters. What only it had not settled can then be reclaimed. Its
	// relay gets ErrFenced.
	DropSubscription(ctx context.Context, outbox, subscription string) error
}

// ContentJudge is a store that tells what an error of Publish or Enqueue is about.
type ContentJudge interface {
	// RefusesContent: the database refused what was to be written, nothing of it was, and the rest may be
	// written without it. Not so of an outage, or of an outbox that is not there.
	RefusesContent(err error) bool
}

// StatusCounter is a store that can count up to a number: of a status it then names the figures that may be higher.
// What shows a status again and again asks for it: status, doctor, console, metrics.
type StatusCounter interface {
	StatusUpTo(ctx context.Context, most int) ([]admin.OutboxStatus, error)
}

// QueueStatusCounter is StatusCounter for queues. Below 0 it counts nothing: the settings of a queue are enough for the verbs that
// change them.
type QueueStatusCounter interface {
	QueueStatusUpTo(ctx context.Context, most int, names ...string) ([]admin.QueueStatus, error)
}

// CauseCounter is a store that tells of what messages died, for doctor and the console, and JobCauseCounter one that tells it of jobs.
type (
	CauseCounter interface {
		DeadLetterCauses(ctx context.Context, q admin.DeadLetterQuery) ([]admin.DeadCause, error)
	}
	JobCauseCounter interface {
		DeadJobCauses(ctx context.Context, q admin.DeadJobQuery) ([]admin.DeadCause, error)
	}
)

// SchemaChecker is a store that compares the functions of a queue, or with no name those of a relay, with this program's: a relay
// and a worker ask at their start.
type SchemaChecker interface {
	CheckSchemaOf(ctx context.Context, queue string) (differences []string, err error)
}

// SchemaDropper is a store whose tables are in a schema that can be dropped: the demo and the benchmarks clean up with it.
type SchemaDropper interface {
	DropSchema(ctx context.Context) error
}
