package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
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

// callers is a caller's transaction: one statement at a time, since its driver may not take several.
type callers struct {
	tables.Session
	store *Store
}

func (c callers) Run(ctx context.Context, b *tables.Batch) error {
	return tables.OneByOne(ctx, c.Session, b, c.store.rendered, scanTimes)
}

// scanTimes reads times also where the caller's driver does not (parseTime).
func scanTimes(rows *sql.Rows) tables.Scan {
	return func(dest ...any) error {
		for i, d := range dest {
			if t, is := d.(*time.Time); is {
				dest[i] = textTime{t}
			}
		}
		return rows.Scan(dest...)
	}
}

// textTime is a time that comes as one or as text, of UTC.
type textTime struct{ *time.Time }

// Scan implements sql.Scanner.
func (t textTime) Scan(src any) (err error) {
	switch v := src.(type) {
	case time.Time:
		*t.Time = v
	case []byte:
		*t.Time, err = time.Parse("2006-01-02 15:04:05.999999", string(v))
	default:
		err = fmt.Errorf("a time that is a %T", src)
	}
	return err
}

// First notes a message's id within tx and reports whether it is new. It is not new if it was received before, within the
// inbox's window, by tx or by a transaction that committed. If another open transaction has received it, First waits for its
// end. After a rollback of tx the id is new again.
//
// Errors: *penstock.FieldError (tx can continue), ErrNoInbox. After the server's errors 1213, 1205 and 1020 run tx again.
func (i *Inbox) First(ctx context.Context, tx Tx, id string) (bool, error) {
	fresh, err := i.FirstOf(ctx, tx, id)
	return len(fresh) == 1, err
}

// FirstOf is First for many ids. It returns those that are new, each once, in the given order.
func (i *Inbox) FirstOf(ctx context.Context, tx Tx, ids ...string) ([]string, error) {
	return i.box.FirstOf(ctx, callers{tx, i.store}, ids...)
}

// InOrder notes a message that has a key. It returns the messages to process now in tx, in this order: m, and those that were
// held back for it. It returns none if m is a duplicate, or if the message named by its header penstock-previous has not come.
// Then m is held back and can be acknowledged once tx has committed. No message is held for longer than wait, if Due is called
// regularly.
//
// Until tx ends, others that receive a message of the key wait, and so do those of a sixty-fourth of the other keys. So process
// the messages in tx and commit. Begin tx with READ COMMITTED. At REPEATABLE READ, the server's default, tx may see older rows
// than those that it has waited for. Then InOrder returns an error that explains it, and tx must run again.
func (i *Inbox) InOrder(ctx context.Context, tx Tx, m penstock.Message, wait time.Duration) ([]penstock.Released, error) {
	return i.box.InOrder(ctx, callers{tx, i.store}, m, wait)
}

// Due returns messages whose predecessor did not arrive in time. For up to n keys it returns the message after the gap, with Gap
// and Missing set, and those that follow it.
func (i *Inbox) Due(ctx context.Context, tx Tx, n int) ([]penstock.Released, error) {
	return i.box.Due(ctx, callers{tx, i.store}, n)
}

func (s onTables) Turns() bool { return true }

// Turn implements tables.InboxDB. Each transaction that takes a turn counts it. If the count in its snapshot differs from that of the
// locked row, the snapshot is older than the last turn.
func (s onTables) Turn(b *tables.Batch, box *tables.InboxRow, turn int) {
	var locked, seen int64
	args := box.Args(tables.Args{"turn": turn})
	b.Rows(func(scan tables.Scan) error { return scan(&locked) }, "inbox_turn", args)
	b.Rows(func(scan tables.Scan) error {
		err := scan(&seen)
		box.Stale = box.Stale || seen != locked
		return err
	}, "select taken from {schema}.turns where inbox_id = {inbox} and turn = {turn}", args)
	b.Do("update {schema}.turns set taken = taken + 1 where inbox_id = {inbox} and turn = {turn}", args)
}

func (s onTables) Stale() error {
	return penstock.WithHint(errors.New("another transaction has received messages of the key since this one's snapshot was taken"),
		"%s", hints[changed])
}

// See implements tables.InboxDB. Afterwards new ids have the token.
func (s onTables) See(b *tables.Batch, box *tables.InboxRow, ids []string, isNew func(id string)) {
	token := rand.Int64()
	for some := range slices.Chunk(slices.Compact(slices.Sorted(slices.Values(ids))), 1000) {
		args := box.Args(tables.Args{"ids": some, "token": token})
		rows := make([]string, len(some))
		for n, id := range some {
			name := fmt.Sprint("id", n)
			args[name], rows[n] = id, "({inbox}, {"+name+"}, utc_timestamp(6), {token})"
		}
		b.Do("insert into {schema}.received (inbox_id, id, at, token) values "+strings.Join(rows, ", ")+" on duplicate key update token = {schema}.received.token", args)
		b.Rows(tables.Each(isNew), "select id from {schema}.received where inbox_id = {inbox} and {id in ids} and token = {token}", args)
	}
}

func (s onTables) Forget(b *tables.Batch, box *tables.InboxRow, table string, args tables.Args, forgot func(at time.Time)) {
	var gone []string
	column := "id"
	if table == "key_heads" {
		column = "key_hash"
	}
	args = tables.Args{"table": tables.SQL(quoted(s.opts.Schema) + "." + table), "column": tables.SQL(column), "index": tables.SQL(table + "_at"), "from": time.Time{}}.With(args)
	if args["passing"] = tables.SQL(""); table == "received" {
		args["passing"] = tables.SQL("and not exists (select 1 from " + quoted(s.opts.Schema) + ".held h where h.inbox_id = o.inbox_id and h.id = o.id)")
	}
	args = box.Args(args)
	b.Rows(func(scan tables.Scan) error {
		var id string
		var at time.Time
		err := scan(&id, &at)
		gone = append(gone, id)
		forgot(at)
		return err
	}, "inbox_forget", args)
	*b = append(*b, tables.Statement{Text: "delete from {table} where inbox_id = {inbox} and {" + column + " in gone}", Args: args.With(tables.Args{"gone": &gone}), If: func() bool { return len(gone) > 0 }})
}

func (s onTables) Duplicate(err error) bool { return number(err) == duplicate }

func (s onTables) Explain(consumer string, err error) error {
	if n := number(err); n == noSuchTable || n == noSuchDatabase {
		return penstock.WithHint(fmt.Errorf("inbox of %q: %w: %w", consumer, penstock.ErrNotMigrated, err), "call Migrate, or run: penstock migrate")
	}
	return s.explain(err)
}
