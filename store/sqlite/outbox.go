package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/messageid"
	"github.com/penstock/penstock/internal/tables"
)

// Table returns the quoted name of the table with an outbox's messages, for plain
// INSERTs: penstock_outbox_ and the outbox's name. SQLite takes orders and Orders for
// the same table. So a name with capitals gets a suffix that marks them: Orders is in
// "penstock_outbox_Orders~1". A name with a ~ gets one as well.
func Table(outbox string) string { return quotedName("penstock_outbox_", outbox) }

func quotedName(prefix, of string) string {
	name := prefix + of
	var capitals uint64 // bit i: byte i is a capital letter; names have at most 48 bytes
	for i := range len(of) {
		if c := of[i]; 'A' <= c && c <= 'Z' {
			capitals |= 1 << (i & 63)
		}
	}
	if capitals != 0 || strings.ContainsRune(of, '~') {
		name += "~" + strconv.FormatUint(capitals, 16)
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

// CreateOutbox implements driver.Store. After it, an application can insert into
// Table(name).
func (s *Store) CreateOutbox(ctx context.Context, name string) error {
	if err := penstock.ValidateOutboxName(name); err != nil {
		return err
	}
	return s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if err := tables.NameFree(ctx, onOurs(tx), "outbox", name); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `insert into penstock_outboxes (name, uid, created_at) values (?, ?, ?)`,
			name, messageid.NewUID(), time.Now().UnixMicro()); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, on(Table(name), statement("create_outbox")))
		return err
	})
}

// DropOutbox implements driver.Store.
func (s *Store) DropOutbox(ctx context.Context, name string) error {
	var box outbox
	err := s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var err error
		if box, err = findOutbox(ctx, tx, name); err != nil {
			return err
		}
		ids, err := readColumn[int64](ctx, tx, `select id from penstock_subscriptions where outbox_id = ?`, box.id)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if err := (subscription{box, id}).drop(ctx, tx); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, `delete from penstock_outboxes where id = ?`, box.id); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, on(Table(name), `drop table {table}`))
		return err
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		delete(s.sizes, box.ids.UID)
		delete(s.ledgers, box.ids.UID)
	}
	return err
}

// outbox is one row of penstock_outboxes.
type outbox struct {
	id        int64
	name      string
	ids       messageid.Outbox
	retention admin.Retention
}

// querier is a transaction or a pool.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func findOutbox(ctx context.Context, q querier, name string) (outbox, error) {
	box := outbox{name: name}
	err := q.QueryRowContext(ctx, `select id, uid, retention_age, retention_bytes from penstock_outboxes where name = ?`, name).
		Scan(&box.id, &box.ids.UID, &box.retention.Age, &box.retention.Bytes)
	if errors.Is(err, sql.ErrNoRows) {
		return box, noOutbox(name)
	}
	return box, err
}

// extent is where an outbox's messages are: the first and the last seq, and
// first = last + 1 without any. Probes of both ends of the table.
func (o outbox) extent(ctx context.Context, q querier) (first, last int64, err error) {
	err = q.QueryRowContext(ctx, on(Table(o.name), `select coalesce((select min(seq) from {table}), 0), coalesce((select max(seq) from {table}), 0)`)).Scan(&first, &last)
	if err != nil || last != 0 {
		return first, last, err
	}
	// Empty: the sequence's register remembers how far it came.
	err = q.QueryRowContext(ctx, `select coalesce((select seq from sqlite_sequence where name = ?), 0)`, unquoted(Table(o.name))).Scan(&last)
	return last + 1, last, err
}

// unquoted is a quoted name without its quotes, as SQLite's own tables write it.
func unquoted(quoted string) string {
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `""`, `"`)
}
