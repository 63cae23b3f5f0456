package driver

import (
	"context"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
)

// InboxStore is a database with inboxes, for operators. Consumers use the Inbox type
// of their store. An unknown consumer is ErrNoInbox.
type InboxStore interface {
	// CreateInbox makes an inbox for a consumer. It knows an id for at least keep after
	// the message was received; 0 means DefaultInboxKeep. ErrInboxExists if there is one.
	CreateInbox(ctx context.Context, consumer string, keep time.Duration) error
	// SetInbox changes how long an inbox knows ids.
	SetInbox(ctx context.Context, consumer string, keep time.Duration) error
	// DropInbox removes an inbox with its ids and its held messages.
	DropInbox(ctx context.Context, consumer string) error

	// Inboxes describes every inbox, ordered by the bytes of its consumer's name. To
	// count held messages it reads them all.
	Inboxes(ctx context.Context) ([]admin.InboxStatus, error)
	// HeldMessages returns held messages, those first that are due first.
	HeldMessages(ctx context.Context, q admin.HeldQuery) ([]admin.HeldMessage, error)
	// ReleaseHeld makes the messages due that q chooses, and returns how many there are.
	// The consumer's next Due hands them over as if their time had come, each with the
	// held messages before it. Limit has no meaning here.
	ReleaseHeld(ctx context.Context, q admin.HeldQuery) (int64, error)
	// DiscardHeld deletes held messages as if they had never come: each is reported as a
	// gap, and messages that wait for it become due. If one comes again, in a replay, it
	// is handed over late. It returns the ids of those that were held, in the given order.
	DiscardHeld(ctx context.Context, consumer string, ids ...string) ([]string, error)
	// InboxGaps returns up to limit gaps within the inbox's window, the latest first.
	InboxGaps(ctx context.Context, consumer string, limit int) ([]admin.InboxGap, error)
}

// OncePublisher is a store that publishes a message once, however often it is given. So a caller can repeat an import, or a
// call that got no answer, without knowing which messages were written.
type OncePublisher interface {
	// PublishOnce publishes the messages whose ids are new to an inbox, and notes these ids there, in one transaction.
	// Messages without an id are always written. ErrNoInbox, and the errors of Publish.
	PublishOnce(ctx context.Context, inbox, outbox string, msgs ...penstock.Message) error
}
