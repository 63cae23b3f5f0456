package driver

import (
	"context"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
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
	Inboxes(ctx context.Context) ([]admin.InboxStatus, error)
	// HeldMessages returns what is held back, those first that are due first.
	HeldMessages(ctx context.Context, q admin.HeldQuery) ([]admin.HeldMessage, error)
	// ReleaseHeld makes messages due that q chooses, and returns how many there are: the
	// consumer's next Due hands them over as if they had waited long enough, and with
	// each what it stands behind. Limit has no meaning here.
	ReleaseHeld(ctx context.Context, q admin.HeldQuery) (int64, error)
	// DiscardHeld deletes held messages as if they had never come: each is reported
	// as a gap, and what waits for it becomes due. If it comes again, in a replay, it
	// is handed over, late. It returns the ids of those that were held, in the order given.
	DiscardHeld(ctx context.Context, consumer string, ids ...string) ([]string, error)
	// InboxGaps returns up to limit gaps within the inbox's window, the latest first.
	InboxGaps(ctx context.Context, consumer string, limit int) ([]admin.InboxGap, error)
}

// OncePublisher is a store that can publish a message once, however often it is given: who asks again because no answer came, or
// repeats an import, need not know how far it had got.
type OncePublisher interface {
	// PublishOnce is Publish in one transaction with noting the messages' ids in an inbox, of those whose ids are new
	// to it; those without an id are always written. ErrNoInbox, and the errors of Publish.
	PublishOnce(ctx context.Context, inbox, outbox string, msgs ...penstock.Message) error
}
