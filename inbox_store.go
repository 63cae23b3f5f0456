package penstock

import (
	"context"
	"time"
)

// InboxStore is a database with inboxes as those who look after them see it.
// Consumers use the driver's Inbox type. An unknown consumer is ErrNoInbox.
type InboxStore interface {
	// CreateInbox makes an inbox for a consumer, which knows ids for at least keep
	// after they were received; 0 means DefaultInboxKeep. ErrInboxExists if there is one.
	CreateInbox(ctx context.Context, consumer string, keep time.Duration) error
	// SetInbox changes how long an inbox knows ids.
	SetInbox(ctx context.Context, consumer string, keep time.Duration) error
	// DropInbox removes an inbox with all it knows and holds back.
	DropInbox(ctx context.Context, consumer string) error

	// Inboxes describes every inbox, ordered by the bytes of its consumer's name. It
	// counts by reading what is held.
	Inboxes(ctx context.Context) ([]InboxStatus, error)
	// HeldMessages returns what is held back, those first that are due first.
	HeldMessages(ctx context.Context, q HeldQuery) ([]HeldMessage, error)
	// ReleaseHeld makes messages due that q chooses, and returns how many there are: the
	// consumer's next Due hands them over as if they had waited long enough, and with
	// each what it stands behind. Limit has no meaning here.
	ReleaseHeld(ctx context.Context, q HeldQuery) (int64, error)
	// DiscardHeld deletes held messages as if they had never come: each is reported
	// as a gap, and what waits for it becomes due. If it comes again, in a replay, it
	// is handed over, late. It returns the ids of those that were held, in the order given.
	DiscardHeld(ctx context.Context, consumer string, ids ...string) ([]string, error)
	// InboxGaps returns up to limit gaps within the inbox's window, the latest first.
	InboxGaps(ctx context.Context, consumer string, limit int) ([]InboxGap, error)
}

// OncePublisher is a store that can publish a message once, however often it is given: who asks again because no answer came, or
// repeats an import, need not know how far it had got.
type OncePublisher interface {
	// PublishOnce is Publish in one transaction with noting the messages' ids in an inbox, of those whose ids are new
	// to it; those without an id are always written. ErrNoInbox, and the errors of Publish.
	PublishOnce(ctx context.Context, inbox, outbox string, msgs ...Message) error
}

// MaxInboxRows is the most that HeldMessages and InboxGaps return.
const MaxInboxRows = 10000

// InboxStatus is one inbox as `penstock inbox status` shows it.
type InboxStatus struct {
	Consumer string `json:"consumer"`
	// Keep is how long ids are known at least.
	Keep time.Duration `json:"keep_ns"`
	// Bytes is what the inbox takes on disk, with indexes; 0 where inboxes share their tables.
	Bytes    int64           `json:"bytes,omitempty"`
	Segments []SegmentStatus `json:"segments,omitempty"`
	// Held counts messages that are held back, HeldBytes the bytes of their payloads.
	Held      int64 `json:"held"`
	HeldBytes int64 `json:"held_bytes"`
	// NextGap is when the first of them is handed over in any case; zero without one.
	// If it has passed, nobody calls Due.
	NextGap time.Time `json:"next_gap,omitzero"`
	// Gaps counts those that InboxGaps returns.
	Gaps int64 `json:"gaps"`
}

// HeldQuery chooses held messages of one consumer. Every field that is not zero
// narrows the choice.
type HeldQuery struct {
	Consumer string
	Key      string
	// Previous is what they wait for.
	Previous string
	// ID chooses one message, which comes with its payload.
	ID string
	// Limit is the most that are returned, 1 to MaxInboxRows; 0 means 100.
	Limit int
}

// HeldMessage is a message that came before the one it follows.
type HeldMessage struct {
	// Message has ID, Key and Headers, and the Payload if it was chosen by ID.
	Message
	PayloadBytes int64
	// Previous is what it waits for. PreviousHeld is true if that has come, and is held
	// itself.
	Previous     string
	PreviousHeld bool
	// At is when it came, Due when it is handed over in any case.
	At, Due time.Time
}

// InboxGap is a message that was waited for in vain.
type InboxGap struct {
	Missing string `json:"missing"`
	Key     string `json:"key"`
	// Next was handed over in its place; empty if nothing was yet.
	Next string `json:"followed_by,omitempty"`
	// At is when it was reported.
	At time.Time `json:"reported_at"`
	// Discarded: it had come, and DiscardHeld removed it.
	Discarded bool `json:"discarded"`
	// Came: it was received after all, and handed over late.
	Came bool `json:"came"`
}

// Validate reports a query that no store takes, as a *FieldError, and fills in the
// limit.
func (q *HeldQuery) Validate() error {
	if q.Limit == 0 {
		q.Limit = 100
	}
	return ValidateInboxRows(q.Limit)
}

// ValidateInboxRows reports a number of rows that no store takes, as a *FieldError.
func ValidateInboxRows(n int) error {
	if n < 1 || n > MaxInboxRows {
		return &FieldError{Field: "limit", Problem: "is out of range", Hint: "use 1 to 10000"}
	}
	return nil
}
