package driver

import (
	"context"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
)

// Store is a database that holds outboxes. A driver under store/ implements it and
// passes internal/test/storetest. Callers that need less declare a smaller interface.
//
// It has no method that publishes inside a business transaction, because the type of
// that transaction differs: see Outbox.PublishTx of each store.
type Store interface {
	// Migrate creates Penstock's tables or brings them up to date. Safe to call twice
	// and from two processes at once. ErrNewerSchema if a newer version migrated them.
	Migrate(ctx context.Context) error

	// CreateOutbox makes an outbox. See ValidateOutboxName for its name. ErrOutboxExists
	// if there is one, ErrQueueExists if a queue has the name. Derived message ids never
	// repeat, even if an outbox is dropped and created again, or a backup is restored.
	CreateOutbox(ctx context.Context, name string) error
	// DropOutbox removes an outbox with its messages, subscriptions and dead letters.
	// ErrNoOutbox if there is none. A reader of it gets errors, even if a new outbox has
	// the same name.
	DropOutbox(ctx context.Context, name string) error

	// Publish writes messages in one transaction.
	Publish(ctx context.Context, outbox string, msgs ...penstock.Message) error

	// Subscribe takes the lease of a subscription, and creates it if needed.
	// *HeldError if another holder has it.
	Subscribe(ctx context.Context, req Subscribe) (Source, error)

	// Maintain does the maintenance of an outbox: it rotates segments and reclaims
	// messages that every subscription has settled. Without a subscription it reclaims
	// nothing. Some stores delete settled messages in Settle, unless they are retained.
	// The relay calls it about once a second. Safe to call from several processes; cheap
	// when there is nothing to do.
	Maintain(ctx context.Context, outbox string) error

	// Status describes every outbox, ordered by the bytes of its name.
	Status(ctx context.Context) ([]admin.OutboxStatus, error)
	// Names lists the names of things, without reading their contents: outboxes, queues, inboxes, subscriptions, adopted
	// (subscriptions of adopted tables), or roles.
	Names(ctx context.Context, of string) ([]string, error)

	// SchemaVersion is the version of the tables; 0 if there are none.
	SchemaVersion(ctx context.Context) (int64, error)
	// CheckSchema lists the changes that Migrate would make. A *penstock.SchemaError if the tables are not of this version.
	CheckSchema(ctx context.Context) (differences []string, err error)

	Operator

	Close() error
}

// Database is a store with all that the program needs of each database. Features of some have separate interfaces.
type Database interface {
	Store
	QueueStore
	GroupStore
	InboxStore
	OncePublisher
}

// Operator has the actions that operators take by hand after something went wrong. An unknown
// outbox is ErrNoOutbox, an unknown subscription ErrNoSubscription.
type Operator interface {
	// DeadLetters returns the dead letters that q chooses, in order of Seq, without
	// those that were sent back and are not settled yet.
	DeadLetters(ctx context.Context, q admin.DeadLetterQuery) ([]admin.DeadLetter, error)
	// RetryDeadLetters sends dead letters back to their subscription and returns how many.
	// The next Fetches return them OutOfOrder, before an empty batch, with Attempt + 1.
	RetryDeadLetters(ctx context.Context, q admin.DeadLetterQuery) (int, error)
	// DiscardDeadLetters deletes dead letters permanently and returns how many, without
	// those that were sent back.
	DiscardDeadLetters(ctx context.Context, q admin.DeadLetterQuery) (int, error)

	// ParkedKeys describes up to limit parked keys, those due soonest first, held ones last.
	ParkedKeys(ctx context.Context, outbox, subscription string, limit int) ([]admin.ParkedKey, error)
	// RetryParked makes parked keys due and returns how many: the given ones, or all. A relay
	// that has the lease tries them within about a second. Held keys still wait for their
	// dead letters. Nothing else changes.
	RetryParked(ctx context.Context, outbox, subscription string, keys ...string) (int, error)
	// GiveUpParked has a relay make a parked message a dead letter, and returns 1. The message must be the first of its key, and
	// wait for another attempt. Otherwise nothing changes, and it returns 0. A relay that has the lease fetches the message within
	// about a second, in Batch.GivenUp. The reason is as of admin.GiveUpReason.
	GiveUpParked(ctx context.Context, outbox, subscription string, seq int64, reason string) (int, error)

	// Replay makes a subscription deliver again messages that it has settled and the outbox
	// still has, and returns how many. They come with the next Fetches, in order, between new
	// ones, with Attempt 1. Parked messages and dead letters are not among them. The range is
	// not reclaimed before it is delivered. After a crash some may come twice. Messages that
	// another replay still has to deliver come once: both are merged, or it is ErrReplaying.
	Replay(ctx context.Context, r admin.Replay) (int64, error)
	// SetRetention sets how long an outbox keeps messages that every subscription has
	// settled. It always keeps the others.
	SetRetention(ctx context.Context, outbox string, r admin.Retention) error
	// DropSubscription removes a subscription with its cursor, parked messages and dead
	// letters. Messages that only it had not settled can then be reclaimed. Its relay gets
	// ErrFenced.
	DropSubscription(ctx context.Context, outbox, subscription string) error
}

// Distributor is a store that can distribute an outbox over the servers of a cluster.
type Distributor interface {
	// CreateDistributedOutbox makes an outbox with one column more. Its messages lie with the table's rows of the same value, in the column by which
	// the table is distributed. The column may have another name there. Errors as of Store.CreateOutbox.
	CreateDistributedOutbox(ctx context.Context, name, column, table string) error
}

// ContentJudge is a store that can explain why Publish or Enqueue failed.
type ContentJudge interface {
	// RefusesContent reports whether the database refused a message or job itself. Then none of the call was written, and the
	// others can be written without it. It is false for an outage, and for an outbox that does not exist.
	RefusesContent(err error) bool
}

// StatusCounter is a store that can count up to a limit. The status then names the figures that may be higher, in AtLeast.
// It is for callers that read the status again and again: status, doctor, console, metrics.
type StatusCounter interface {
	StatusUpTo(ctx context.Context, most int) ([]admin.OutboxStatus, error)
}

// CauseCounter is a store that counts the dead letters of an outbox by their errors, for doctor and the console. JobCauseCounter does
// so for the dead letters of a queue.
type (
	CauseCounter interface {
		DeadLetterCauses(ctx context.Context, q admin.DeadLetterQuery) ([]admin.DeadCause, error)
	}
	JobCauseCounter interface {
		DeadJobCauses(ctx context.Context, q admin.DeadJobQuery) ([]admin.DeadCause, error)
	}
)

// SchemaChecker is a store that compares its functions in the database with those of this program. It checks the functions of a
// queue, or without a name those that a relay needs. A relay and a worker call it when they start.
type SchemaChecker interface {
	CheckSchemaOf(ctx context.Context, queue string) (differences []string, err error)
}

// SchemaDropper is a store whose tables are in a schema that can be dropped. The demo and the benchmarks clean up with it.
type SchemaDropper interface {
	DropSchema(ctx context.Context) error
}
