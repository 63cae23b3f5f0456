package penstock

import (
	"context"
	"slices"
	"time"
)

// Store is a database that holds outboxes. Callers that need less declare a
// smaller interface. A driver under store/ implements it and passes
// internal/test/storetest.
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
	// drivers quote it. ErrOutboxExists if there is one, ErrQueueExists if a queue has the name. Derived message ids
	// never come again, not even if an outbox is dropped and made anew, or if an
	// older copy of the database is restored.
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
	// subscription has settled, unless the store lets go of it when it is settled and not
	// retained; without a subscription, nothing. The relay calls it about once a second. Safe to
	// call from several processes; cheap when there is nothing to do.
	Maintain(ctx context.Context, outbox string) error

	// Status describes every outbox, ordered by the bytes of its name.
	Status(ctx context.Context) ([]OutboxStatus, error)

	Operator

	Close() error
}

// Operator is what people do by hand when something went wrong. An unknown
// outbox is ErrNoOutbox, an unknown subscription ErrNoSubscription.
type Operator interface {
	// DeadLetters returns the dead letters that q describes, in order of Seq.
	// Those that were sent back and are not settled yet are not among them.
	DeadLetters(ctx context.Context, q DeadLetterQuery) ([]DeadLetter, error)
	// RetryDeadLetters sends dead letters back to their subscription, whose
	// next Fetches return them OutOfOrder, before an empty batch, with Attempt + 1.
	// It returns how many there were.
	RetryDeadLetters(ctx context.Context, q DeadLetterQuery) (int, error)
	// DiscardDeadLetters deletes dead letters for good and returns how many.
	// Those on their way back are not among them.
	DiscardDeadLetters(ctx context.Context, q DeadLetterQuery) (int, error)

	// ParkedKeys describes up to limit parked keys, those due
	// soonest first, held ones last.
	ParkedKeys(ctx context.Context, outbox, subscription string, limit int) ([]ParkedKey, error)

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
	Replay(ctx context.Context, r Replay) (int64, error)

	// SetRetention says how long an outbox keeps what every subscription has
	// settled. What is not settled is kept in any case.
	SetRetention(ctx context.Context, outbox string, r Retention) error

	// DropSubscription removes a subscription with its cursor, parked messages
	// and dead letters. What only it had not settled can then be reclaimed. Its
	// relay gets ErrFenced.
	DropSubscription(ctx context.Context, outbox, subscription string) error
}

// DeadLetterQuery chooses dead letters of one subscription. Every field that is
// not zero narrows the choice.
type DeadLetterQuery struct {
	Outbox, Subscription string
	Seqs                 []int64
	IDs                  []string
	Key                  string
	Topic                string
	// Error is contained in the last error, in the same case.
	Error string
	// DiedBefore and DiedAfter bound when they became dead letters.
	DiedBefore, DiedAfter time.Time
	// AfterSeq leaves out what is up to it, for reading page by page.
	AfterSeq int64
	// Limit is the most that are returned, retried or discarded: the first by
	// Seq. 0 means no limit.
	Limit int
	// Bytes ends what is returned with the one by which payloads have so many; 0 means no limit. PostgreSQL and SQLite keep to it.
	Bytes int
}

// Replay chooses what to deliver again: messages of at least FromSeq and at
// most ToSeq, created at From or later and before To. What is zero does not
// bound.
type Replay struct {
	Outbox, Subscription string
	FromSeq, ToSeq       int64
	From, To             time.Time
}

// Retention is how long settled messages stay in an outbox, for Replay. Zero
// values do not keep anything; age counts from when a message was written. With both, a message goes as soon as one of them
// lets it. Stores free whole pieces of storage, so messages may stay longer.
type Retention struct {
	Age   time.Duration `json:"age_ns,omitempty"`
	Bytes int64         `json:"bytes,omitempty"`
}

// OutboxStatus is one outbox as `penstock status` shows it.
type OutboxStatus struct {
	Outbox string `json:"outbox"`
	// Bytes is what the outbox takes on disk, with indexes.
	Bytes int64 `json:"bytes"`
	// Published counts messages since the outbox was made, with those that were rolled back. 0 where the store does not know.
	Published int64 `json:"published,omitempty"`
	// Segments of the ring; 0 where the store has none.
	Segments      []SegmentStatus      `json:"segments,omitempty"`
	Retention     Retention            `json:"retention,omitzero"`
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
	// Parked counts messages that wait for another attempt, or behind one that
	// does; they are not part of the backlog. ParkedKeys counts their
	// keys (a message without a key is one), and HeldKeys those among them
	// that wait for a person because of Verdict.Hold.
	Parked     int64 `json:"parked"`
	ParkedKeys int64 `json:"parked_keys"`
	HeldKeys   int64 `json:"held_keys"`
	// ParkedAge is the age of the oldest message that is parked, 0 without one; of an adopted table, for how long that has been refused.
	ParkedAge time.Duration `json:"parked_age_ns"`
	// Replaying is true while a replay is not delivered whole.
	Replaying bool `json:"replaying,omitempty"`
	// Holder of the lease, empty if nobody has it now.
	Holder string `json:"holder,omitempty"`
	// HolderSince is when it took the lease.
	HolderSince time.Time `json:"holder_since,omitzero"`
	// Epoch counts how often the lease changed hands.
	Epoch int64 `json:"epoch"`
	// LeaseUntil is when the lease ends unless it is renewed.
	LeaseUntil time.Time `json:"lease_until,omitzero"`
	// SinkDown is since when the sink takes nothing, by the clock of the holder, and zero while
	// it takes messages or nobody has the lease. SinkError is why.
	SinkDown  time.Time `json:"sink_down_since,omitzero"`
	SinkError string    `json:"sink_error,omitempty"`
	// AtLeast names the figures, as JSON has them, that were not counted to their end.
	AtLeast []string `json:"at_least,omitempty"`
}

// Cap cuts figures that were counted up to most, and names them in AtLeast. 0 means that all were counted.
func (s *SubscriptionStatus) Cap(most int64) {
	s.AtLeast = capped(most, map[string]*int64{"backlog": &s.Backlog, "dead_letters": &s.DeadLetters, "parked": &s.Parked, "parked_keys": &s.ParkedKeys, "held_keys": &s.HeldKeys})
}

func capped(most int64, figures map[string]*int64) (atLeast []string) {
	for name, n := range figures {
		if most > 0 && *n >= most {
			*n = most
			atLeast = append(atLeast, name)
		}
	}
	slices.Sort(atLeast)
	return atLeast
}

// DeadLetter is a message that was given up, with the reason.
type DeadLetter struct {
	Message Message
	// Failures are the latest attempts, up to MaxFailures, oldest first.
	Failures []Failure
	// At is when it became a dead letter, the last time.
	At time.Time
	// Held is true if later messages of its key wait for it to be discarded, or
	// retried and delivered.
	Held bool
}

// Err is why the last attempt failed.
func (d DeadLetter) Err() string { return lastError(d.Failures) }

// DeadCause is an error of which dead letters died.
type DeadCause struct {
	Error   string    `json:"error"`
	Letters int64     `json:"letters"`
	First   time.Time `json:"first_died_at"`
	Last    time.Time `json:"last_died_at"`
}

// ParkedKey is a key with parked messages, or one parked message by itself.
type ParkedKey struct {
	Key      string    `json:"key"`
	Messages int64     `json:"messages"`
	FirstSeq int64     `json:"first_seq"` // of the message that the others wait for; of a held key the dead letter's
	Attempt  int       `json:"attempt"`   // how many it has had
	Err      string    `json:"error"`
	Since    time.Time `json:"since,omitzero"`      // when its first attempt failed
	Retry    time.Time `json:"next_retry,omitzero"` // zero if held
	Held     bool      `json:"held"`
}
