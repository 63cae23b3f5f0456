package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/tables"
)

var _ driver.InboxStore = (*Store)(nil)

type inboxes = tables.Inboxes

// Inbox is one consumer's inbox. It holds no connection: the caller begins the transaction,
// with BEGIN IMMEDIATE as for Outbox.PublishTx. If the caller processes only new messages,
// its writes in that transaction take effect once. Safe for concurrent use.
type Inbox struct{ box *tables.Inbox }

// Inbox returns a consumer's inbox. It does not check that there is one.
func (s *Store) Inbox(consumer string) *Inbox { return &Inbox{tables.NewInbox(onTables{s}, consumer)} }

// First notes a message's id within tx and reports whether it is new. It is not new if it
// was received before, within the inbox's window. After a rollback of tx the id is new
// again. Errors: *penstock.FieldError, ErrNoInbox.
func (i *Inbox) First(ctx context.Context, tx Tx, id string) (bool, error) {
	fresh, err := i.FirstOf(ctx, tx, id)
	return len(fresh) == 1, err
}

// FirstOf is First for many ids. It returns those that are new, each once, in the given
// order.
func (i *Inbox) FirstOf(ctx context.Context, tx Tx, ids ...string) ([]string, error) {
	if len(ids) == 0 {
		return nil, i.box.There(ctx, onOurs(tx))
	}
	return i.box.FirstOf(ctx, onOurs(tx), ids...)
}

// InOrder notes a message that has a key. It returns the messages to process now in tx, in
// this order: m, and those that were held back for it. It returns none if m is a duplicate,
// or if the message named by its header penstock-previous has not come. Then m is held back
// and can be acknowledged once tx has committed. No message is held for longer than wait,
// if Due is called regularly.
func (i *Inbox) InOrder(ctx context.Context, tx Tx, m penstock.Message, wait time.Duration) ([]penstock.Released, error) {
	return i.box.InOrder(ctx, onOurs(tx), m, wait)
}

// Due returns messages whose predecessor did not arrive in time. For up to n keys it returns
// the message after the gap, with Gap and Missing set, and those that follow it.
func (i *Inbox) Due(ctx context.Context, tx Tx, n int) ([]penstock.Released, error) {
	return i.box.Due(ctx, onOurs(tx), n)
}

// Turns implements tables.InboxDB. It is false: one transaction at a time writes.
func (s onTables) Turns() bool                               { return false }
func (s onTables) Turn(*tables.Batch, *tables.InboxRow, int) {}

// Stale implements tables.InboxDB. It returns nil: no snapshot is stale.
func (s onTables) Stale() error { return nil }

func (s onTables) See(b *tables.Batch, box *tables.InboxRow, ids []string, isNew func(id string)) {
	b.Rows(tables.Each(isNew), "inbox_see", box.Args(tables.Args{"ids": ids}))
}

func (s onTables) Forget(b *tables.Batch, box *tables.InboxRow, table string, args tables.Args, forgot func(at time.Time)) {
	b.Rows(tables.Each(forgot), "inbox_forget_"+table, box.Args(args))
}

func (s onTables) Explain(consumer string, err error) error {
	if s.Missing(err) {
		return penstock.WithHint(fmt.Errorf("inbox of %q: %w", consumer, penstock.ErrNotMigrated), "call Migrate, or run penstock migrate, on this database file")
	}
	return err
}
