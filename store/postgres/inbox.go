package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/messageid"
)

// Inbox is one consumer's inbox. It holds no connection: the caller begins the transaction.
// If the caller processes only new messages, its writes in that transaction take effect
// once. Safe for concurrent use.
type Inbox struct {
	consumer string
	first    string
	many     string
	manyOf   string
	inOrder  string
	due      string
	dueOf    string
}

// Inbox returns a consumer's inbox. It does not check that there is one.
func (s *Store) Inbox(consumer string) *Inbox {
	own := s.table
	const columns = "select message_id, key, headers::text, payload, gap, missing, late from "
	return &Inbox{
		consumer: consumer,
		first:    "select " + own("inbox") + "($1, $2)",
		many:     "select * from " + own("inbox_many") + "($1, $2::text[])",
		manyOf:   "select * from " + own("inbox_many") + "($1, array(select e from jsonb_array_elements_text($2::jsonb) with ordinality j(e, n) order by n))",
		inOrder:  columns + own("inbox_in_order_bytes") + "($1, $2, $3, $4, $5::jsonb, $6::bytea, $7 * interval '1 microsecond')",
		due:      columns + own("inbox_due") + "($1, $2)",
		dueOf:    columns + own("inbox_due") + "($1, $2, $3)",
	}
}

// First notes a message's id within tx and reports whether it is new. It is not new if it
// was received before, within the inbox's window, by tx or by a transaction that committed.
// If another open transaction has received it, First waits for its end. After a rollback
// of tx the id is new again.
//
// Errors: *penstock.FieldError (tx can continue), ErrNoInbox. At REPEATABLE READ and
// SERIALIZABLE also 40001: then run tx again.
func (i *Inbox) First(ctx context.Context, tx pgx.Tx, id string) (bool, error) {
	if err := validReceivedID(id); err != nil {
		return false, err
	}
	isNew, err := one[bool](ctx, tx, i.first, i.consumer, id)
	return isNew, i.explain(err)
}

// FirstOf is First for many ids, in one round trip. It returns those that are new, each
// once, in the given order.
func (i *Inbox) FirstOf(ctx context.Context, tx pgx.Tx, ids ...string) ([]string, error) {
	if err := validReceivedIDs(ids); err != nil || len(ids) == 0 {
		return nil, err
	}
	fresh, err := list(ctx, tx, pgx.RowTo[string], i.many, i.consumer, ids)
	return fresh, i.explain(err)
}

// InOrder notes a message that has a key. It returns the messages to process now in tx, in
// this order: m, and those that were held back for it. It returns none if m is a duplicate,
// or if the message named by its header penstock-previous has not come. Then m is held back
// and can be acknowledged once tx has committed. No message is held for longer than wait,
// if Due is called regularly.
//
// Until tx ends, others that receive a message of the key wait, so process the messages in
// tx and commit. tx must have the isolation level READ COMMITTED. Errors: those of First,
// and 25001 for another isolation level.
func (i *Inbox) InOrder(ctx context.Context, tx pgx.Tx, m penstock.Message, wait time.Duration) ([]penstock.Released, error) {
	args, err := i.received(&m, wait)
	if err != nil {
		return nil, err
	}
	return i.released(ctx, tx, i.inOrder, args...)
}

// Due returns messages whose predecessor did not arrive in time. For up to n keys it returns
// the message after the gap, with Gap and Missing set, and those that follow it.
func (i *Inbox) Due(ctx context.Context, tx pgx.Tx, n int) ([]penstock.Released, error) {
	return i.released(ctx, tx, i.due, i.consumer, n)
}

// received is a message as parameters of inbox_in_order.
func (i *Inbox) received(m *penstock.Message, wait time.Duration) ([]any, error) {
	if err := penstock.ValidateReceived(m); err != nil {
		return nil, err
	}
	headers, err := encodeHeaders(m.Headers)
	if err != nil {
		return nil, err
	}
	return []any{i.consumer, m.Key, m.ID, orNull(m.Headers[penstock.HeaderPrevious]), headers, notNil(m.Payload), wait.Microseconds()}, nil
}

func (i *Inbox) released(ctx context.Context, tx pgx.Tx, sql string, args ...any) ([]penstock.Released, error) {
	all, err := list(ctx, tx, func(row pgx.CollectableRow) (penstock.Released, error) { return scanReleased(row.Scan) }, sql, args...)
	return all, i.explain(err)
}

func scanReleased(scan func(...any) error) (r penstock.Released, err error) {
	var headers zeronull.Text
	if err := scan(&r.ID, (*zeronull.Text)(&r.Key), &headers, &r.Payload, &r.Gap, (*zeronull.Text)(&r.Missing), &r.Late); err != nil {
		return r, err
	}
	if headers != "" {
		r.Headers, err = decodeHeaders([]byte(headers))
	}
	return r, err
}

func validReceivedID(id string) error {
	return penstock.ValidateReceived(&penstock.Message{ID: id})
}

func validReceivedIDs(ids []string) error {
	for n, id := range ids {
		if err := validReceivedID(id); err != nil {
			return messageid.At(err, n, len(ids))
		}
	}
	return nil
}

// explain translates the server's refusal for an inbox's caller. Hints that the
// SQL functions give are kept.
func (i *Inbox) explain(err error) error {
	var (
		pg     *pgconn.PgError
		hinted *penstock.HintError
	)
	if errors.As(err, &hinted) || !errors.As(err, &pg) {
		return explain(err)
	}
	switch pg.Code {
	case "42P01":
		return penstock.WithHint(fmt.Errorf("%w: of %q", penstock.ErrNoInbox, i.consumer), "%s", cmp.Or(pg.Hint, "its owner creates it with create_inbox"))
	case "42883", "3F000":
		return penstock.WithHint(fmt.Errorf("inbox of %q: %w: %w", i.consumer, penstock.ErrNotMigrated, err), "call Migrate, or run: penstock migrate")
	case "42501":
		return penstock.WithHint(err, "%s", strings.Replace(grantHint(err), "CONSUMER", i.consumer, 1))
	}
	if pg.Hint != "" {
		return penstock.WithHint(err, "%s", pg.Hint)
	}
	return explain(err)
}
