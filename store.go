package penstock

import (
	"context"
	"time"
)

// Store is a database that holds outboxes. Callers that need less declare a
// smaller interface. A driver under store/ implements it and passes
// store/storetest.
//
// Publishing inside a business transaction is not part of it, because the
// transaction's type is the driver's: see Publish in store/postgres and
// store/sqlite.
type Store interface {
	// Migrate creates Penstock's tables or brings them up to date. Safe to call
	// twice and from two processes at once. ErrNewerSchema if the database was
	// migrated by a newer version.
	Migrate(ctx context.Context) error

	// CreateOutbox makes an outbox. See ValidateOutboxName for its name;
	// drivers quote it. ErrOutboxExists if there is one. Derived message ids
	// never come again, not even if an outbox is dropped and made anew.
	CreateOutbox(ctx context.Context, name string) error
	// DropOutbox removes an outbox with its messages, subscriptions and dead
	// letters. ErrNoOutbox if there is none. A reader of it gets errors, also
	// if another outbox has got its name.
	DropOutbox(ctx context.Context, name string) error

	// Publish writes messages in one transaction of its own.
	Publish(ctx context.Context, outbox string, msgs ...Message) error

	// Subscribe takes the lease of a subscription, which it creates if needed.
	// A *HeldError if another holder has it.
	Subscribe(ctx context.Context, req Subscribe) (Source, error)

	// Maintain does the outbox's housekeeping: rotates and reclaims what every
	// subscription has settled; without a subscription, nothing. The relay calls it about once a second. Safe to
	// call from several processes; cheap when there is nothing to do.
	Maintain(ctx context.Context, outbox string) error

	// Status describes every outbox, ordered by the bytes of its name.
	Status(ctx context.Context) ([]OutboxStatus, error)

	// DeadLetters returns up to limit dead letters of a subscription, oldest
	// first.
	DeadLetters(ctx context.Context, outbox, subscription string, limit int) ([]DeadLetter, error)
	// RetryDeadLetters sends dead letters back to their subscription, whose
	// next Fetches return them, before an empty batch, with Attempt + 1. It
	// returns how many there were; numbers that are no dead letters are passed
	// over.
	RetryDeadLetters(ctx context.Context, outbox, subscription string, seqs ...int64) (int, error)

	Close() error
}

// OutboxStatus is one outbox as `penstock status` shows it.
type OutboxStatus struct {
	Outbox string `json:"outbox"`
	// Bytes is what the outbox takes on disk, with indexes.
	Bytes int64 `json:"bytes"`
	// Segments of the ring; 0 where the store has none.
	Segments      []SegmentStatus      `json:"segments,omitempty"`
	Subscriptions []SubscriptionStatus `json:"subscriptions"`
}

// SegmentStatus is one segment of an outbox's ring.
type SegmentStatus struct {
	Slot    int   `json:"slot"`
	Bytes   int64 `json:"bytes"`
	Current bool  `json:"current"`
}

// SubscriptionStatus is one subscription as `penstock status` shows it.
type SubscriptionStatus struct {
	Subscription string `json:"subscription"`
	// Backlog counts committed messages that are not settled.
	Backlog int64 `json:"backlog"`
	// OldestAge is the age of the oldest message in the backlog, 0 without one.
	OldestAge time.Duration `json:"oldest_age_ns"`
	// Settled counts messages settled since the subscription was created.
	Settled int64 `json:"settled"`
	// Rate is messages settled per second over about the last minute.
	Rate float64 `json:"rate_per_second"`
	// DeadLetters kept for this subscription.
	DeadLetters int64 `json:"dead_letters"`
	// Holder of the lease, empty if nobody has it now.
	Holder string `json:"holder,omitempty"`
	// Epoch counts how often the lease changed hands.
	Epoch int64 `json:"epoch"`
	// LeaseUntil is when the lease ends unless it is renewed.
	LeaseUntil time.Time `json:"lease_until,omitzero"`
}

// DeadLetter is a message set aside with the reason.
type DeadLetter struct {
	Message Message
	Err     string
	At      time.Time
}
