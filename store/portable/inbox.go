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

// InboxTx is what an inbox needs of a transaction: a pgx.Tx, or a *pgx.Conn on which one was begun.
type InboxTx interface {
	Tx
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// Inbox is one consumer's inbox. It holds no connection: the transaction is the caller's, and what it writes takes effect
// once if it goes on only with what is new. Safe for concurrent use.
type Inbox struct {
	store *Store
	box   *tables.Inbox
}

// Inbox names a consumer's inbox; it does not look whether there is one.
func (s *Store) Inbox(consumer string) *Inbox {
	return &Inbox{s, tables.NewInbox(onTables{s}, consumer)}
}

// callers is a caller's transaction.
type callers struct {
	InboxTx
	store *Store
}

// Run implements tables.Runner.
func (c callers) Run(ctx context.Context, b *tables.Batch) error {
	return c.SendBatch(ctx, c.store.pgBatch(b)).Close()
}

// First notes a message's id within tx and says whether it is new: false means that it has been received before, within the
// inbox's window, by a transaction that committed, or by tx itself. If another transaction that is still open has received
// it, First waits for its end. Roll tx back and the id is new again. One round trip.
//
// Errors: *penstock.FieldError (tx goes on), ErrNoInbox; where an isolation level wants it 40001, to be run again.
func (i *Inbox) First(ctx context.Context, tx InboxTx, id string) (bool, error) {
	fresh, err := i.FirstOf(ctx, tx, id)
	return len(fresh) == 1, err
}

// FirstOf is First for many ids, in one round trip. It returns those that are new, in the order given, each once.
func (i *Inbox) FirstOf(ctx context.Context, tx InboxTx, ids ...string) ([]string, error) {
	return i.box.FirstOf(ctx, callers{tx, i.store}, ids...)
}

// InOrder notes a message that has a key and returns what may be processed now, within tx and in this order: nothing if m is
// a duplicate, or if the message named by its header penstock-previous has not come; then m is held back, and it can be
// acknowledged once tx has committed. Otherwise m, and what was held back for it. Nothing is held for longer than wait, if
// Due is called now and then. Two round trips.
//
// A transaction that has received a message of a key keeps others of that key waiting, and a sixty-fourth of the other keys,
// so process what it returns in tx and commit. tx has to be of the isolation level read committed or serializable. Errors:
// as First has, 25001 for another isolation level.
func (i *Inbox) InOrder(ctx context.Context, tx InboxTx, m penstock.Message, wait time.Duration) ([]penstock.Released, error) {
	return i.box.InOrder(ctx, callers{tx, i.store}, m, wait)
}

// Due returns messages that have waited in vain for the one before them: of up to n keys the message after the gap, with Gap
// and Missing set, and what follows it.
func (i *Inbox) Due(ctx context.Context, tx InboxTx, n int) ([]penstock.Released, error) {
	return i.box.Due(ctx, callers{tx, i.store}, n)
}

// Turns implements tables.InboxDialect.
func (s onTables) Turns() bool { return true }

// Turn implements tables.InboxDialect.
func (s onTables) Turn(b *tables.Batch, box *tables.InboxRow, turn int) {
	b.Row(new(bool), "inbox_turn", box.Args(tables.Args{"turn": turn}), new(int16))
}

// See implements tables.InboxDialect.
func (s onTables) See(b *tables.Batch, box *tables.InboxRow, ids []string, isNew func(id string)) {
	b.Rows(tables.Each(isNew), "inbox_see", box.Args(tables.Args{"ids": ids}))
}

// Forget implements tables.InboxDialect.
func (s onTables) Forget(b *tables.Batch, box *tables.InboxRow, table string, args tables.Args, forgot func(at time.Time)) {
	b.Rows(tables.Each(forgot), "inbox_forget_"+table, box.Args(args))
}

// Stale implements tables.InboxDialect: what the transaction reads behind a lock may be from before it.
func (s onTables) Stale() error {
	return penstock.WithHint(&pgconn.PgError{Severity: "ERROR", Code: "25001", Message: "an inbox in order needs the isolation level read committed or serializable"},
		"begin the transaction with read committed")
}

// Duplicate implements tables.DB.
func (s onTables) Duplicate(err error) bool { return pgerror.State(err) == "23505" }

// Explain implements tables.InboxDialect.
func (s onTables) Explain(consumer string, err error) error {
	if state := pgerror.State(err); state == "42P01" || state == "3F000" {
		return penstock.WithHint(fmt.Errorf("inbox of %q: %w: %w", consumer, penstock.ErrNotMigrated, err), "run: penstock migrate --profile portable")
	}
	return pgerror.Explain(err, nil)
}
