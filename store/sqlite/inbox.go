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

// Inbox is one consumer's inbox. It holds no connection: the transaction is the
// caller's, BEGIN IMMEDIATE as for Outbox.PublishTx, and what it writes takes effect once if
// it goes on only with what is new. Safe for concurrent use.
type Inbox struct{ box *tables.Inbox }

// Inbox names a consumer's inbox; it does not look whether there is one.
func (s *Store) Inbox(consumer string) *Inbox { return &Inbox{tables.NewInbox(onTables{s}, consumer)} }

// First notes a message's id within tx and says whether it is new: false means that
// it has been received before, within the inbox's window. Roll tx back and it is new
// again. Errors: *penstock.FieldError, ErrNoInbox.
func (i *Inbox) First(ctx context.Context, tx Tx, id string) (bool, error) {
	fresh, err := i.FirstOf(ctx, tx, id)
	return len(fresh) == 1, err
}

// FirstOf is First for many ids. It returns those that are new, in the order given,
// each once.
func (i *Inbox) FirstOf(ctx context.Context, tx Tx, ids ...string) ([]string, error) {
	if len(ids) == 0 {
		return nil, i.box.There(ctx, onTx{tx})
	}
	return i.box.FirstOf(ctx, onTx{tx}, ids...)
}

// InOrder notes a message that has a key and returns what may be processed now, within
// tx and in this order: nothing if m is a duplicate, or if the message named by its
// header penstock-previous has not come; then m is held back, and it can be
// acknowledged once tx has committed. Otherwise m, and what was held back for it. Nothing is
// held for longer than wait, if Due is called now and then.
func (i *Inbox) InOrder(ctx context.Context, tx Tx, m penstock.Message, wait time.Duration) ([]penstock.Released, error) {
	return i.box.InOrder(ctx, onTx{tx}, m, wait)
}

// Due returns messages that have waited in vain for the one before them: of up to n
// keys the message after the gap, with Gap and Missing set, and what follows it.
func (i *Inbox) Due(ctx context.Context, tx Tx, n int) ([]penstock.Released, error) {
	return i.box.Due(ctx, onTx{tx}, n)
}

// Turns implements tables.InboxDialect: one transaction at a time writes.
func (s onTables) Turns() bool { return false }

// Turn implements tables.InboxDialect.
func (s onTables) Turn(*tables.Batch, *tables.InboxRow, int) {}

// Stale implements tables.InboxDialect: nothing is.
func (s onTables) Stale() error { return nil }

// See implements tables.InboxDialect.
func (s onTables) See(b *tables.Batch, box *tables.InboxRow, ids []string, isNew func(id string)) {
	b.Rows(tables.Each(isNew), "inbox_see", box.Args(tables.Args{"ids": ids}))
}

// Forget implements tables.InboxDialect.
func (s onTables) Forget(b *tables.Batch, box *tables.InboxRow, table string, args tables.Args, forgot func(at time.Time)) {
	b.Rows(tables.Each(forgot), "inbox_forget_"+table, box.Args(args))
}

// Explain implements tables.InboxDialect.
func (s onTables) Explain(consumer string, err error) error {
	if s.Missing(err) {
		return penstock.WithHint(fmt.Errorf("inbox of %q: %w", consumer, penstock.ErrNotMigrated), "run penstock migrate on this database file")
	}
	return err
}
