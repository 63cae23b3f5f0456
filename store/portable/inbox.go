package portable

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/tables"
)

var (
	_ driver.InboxStore    = (*Store)(nil)
	_ driver.OncePublisher = (*Store)(nil)
)

type inboxes = tables.Inboxes

// Inbox is one consumer's inbox. It holds no connection: the caller begins the transaction. If the caller processes only new
// messages, its writes in that transaction take effect once. Safe for concurrent use.
type Inbox struct {
	store *Store
	box   *tables.Inbox
}

// Inbox returns a consumer's inbox. It does not check that there is one.
func (s *Store) Inbox(consumer string) *Inbox {
	return &Inbox{s, tables.NewInbox(onTables{s}, consumer)}
}

// First notes a message's id within tx and reports whether it is new. It is not new if it was received before, within the
// inbox's window, by tx or by a transaction that committed. If another open transaction has received it, First waits for its
// end. After a rollback of tx the id is new again. One round trip.
//
// Errors: *penstock.FieldError (tx can continue), ErrNoInbox. At stricter isolation levels also 40001: then run tx again.
func (i *Inbox) First(ctx context.Context, tx pgx.Tx, id string) (bool, error) {
	fresh, err := i.FirstOf(ctx, tx, id)
	return len(fresh) == 1, err
}

// FirstOf is First for many ids, in one round trip. It returns those that are new, each once, in the given order.
func (i *Inbox) FirstOf(ctx context.Context, tx pgx.Tx, ids ...string) ([]string, error) {
	return i.box.FirstOf(ctx, pgTx{tx, i.store}, ids...)
}

// InOrder notes a message that has a key. It returns the messages to process now in tx, in this order: m, and those that were
// held back for it. It returns none if m is a duplicate, or if the message named by its header penstock-previous has not come.
// Then m is held back and can be acknowledged once tx has committed. No message is held for longer than wait, if Due is called
// regularly. Two round trips.
//
// Until tx ends, others that receive a message of the key wait, and so do those of a sixty-fourth of the other keys. So process
// the messages in tx and commit. tx must have the isolation level READ COMMITTED or SERIALIZABLE. Errors: those of First, and
// 25001 for another isolation level.
func (i *Inbox) InOrder(ctx context.Context, tx pgx.Tx, m penstock.Message, wait time.Duration) ([]penstock.Released, error) {
	return i.box.InOrder(ctx, pgTx{tx, i.store}, m, wait)
}

// Due returns messages whose predecessor did not arrive in time. For up to n keys it returns the message after the gap, with Gap
// and Missing set, and those that follow it.
func (i *Inbox) Due(ctx context.Context, tx pgx.Tx, n int) ([]penstock.Released, error) {
	return i.box.Due(ctx, pgTx{tx, i.store}, n)
}

func (s onTables) Turns() bool { return true }

func (s onTables) Turn(b *tables.Batch, box *tables.InboxRow, turn int) {
	b.Row(new(bool), "inbox_turn", box.Args(tables.Args{"turn": turn}), new(int16))
}

func (s onTables) See(b *tables.Batch, box *tables.InboxRow, ids []string, isNew func(id string)) {
	b.Rows(tables.Each(isNew), "inbox_see", box.Args(tables.Args{"ids": ids}))
}

func (s onTables) Forget(b *tables.Batch, box *tables.InboxRow, table string, args tables.Args, forgot func(at time.Time)) {
	b.Rows(tables.Each(forgot), "inbox_forget_"+table, box.Args(args))
}

// Stale implements tables.InboxDB. It is the error of a transaction that may read rows from before a lock that it waited for.
func (s onTables) Stale() error {
	return penstock.WithHint(&pgconn.PgError{Severity: "ERROR", Code: "25001", Message: "an inbox in order needs the isolation level read committed or serializable"},
		"begin the transaction with read committed")
}

func (s onTables) Duplicate(err error) bool { return pgerror.State(err) == "23505" }

func (s onTables) Explain(consumer string, err error) error {
	if state := pgerror.State(err); state == "42P01" || state == "3F000" {
		return penstock.WithHint(fmt.Errorf("inbox of %q: %w: %w", consumer, penstock.ErrNotMigrated, err), "call Migrate, or run: penstock migrate --profile portable")
	}
	return pgerror.Explain(err, nil)
}
