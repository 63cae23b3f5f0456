package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/messageid"
	"github.com/penstock/penstock/internal/tables"
)

// Outbox publishes to one outbox. Safe for concurrent use.
type Outbox struct {
	store *Store
	name  string
	inbox string // that knows the ids of published messages; empty: all are published
}

// Outbox returns an outbox. It does not check that there is one.
func (s *Store) Outbox(name string) *Outbox { return &Outbox{store: s, name: name} }

// Once returns the outbox for messages that may be published again. A message with an id is published only if the id is new to an
// inbox, and noted there. Publishing then can also return ErrNoInbox.
func (o *Outbox) Once(inbox string) *Outbox { return &Outbox{o.store, o.name, inbox} }

// Tx is a transaction of database/sql, with any SQLite driver: a *sql.Tx, or a type that wraps one. A *sql.DB or a *sql.Conn does
// not compile here, because it commits each statement alone. After BEGIN on a *sql.Conn, pass a struct that embeds the
// connection and has a method Rollback.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	Rollback() error
}

// PublishTx writes messages inside the application's transaction, with any SQLite
// driver. They are sent once it has committed, and never if it rolls back. All
// messages are checked before the first one is written; a *penstock.FieldError says
// which cannot be carried. After any other error roll back, because some of the
// messages may have been written. A *BufferedTx only buffers the messages and returns
// other errors when it writes them.
//
// Begin the transaction with BEGIN IMMEDIATE: _txlock=immediate in the DSN of most
// drivers, or use OpenDB. A transaction that reads first and writes later fails with
// SQLITE_BUSY if another one wrote in between.
func (o *Outbox) PublishTx(ctx context.Context, tx Tx, msgs ...penstock.Message) error {
	if err := messageid.Validate(msgs); err != nil {
		return err
	}
	if b, ok := tx.(*BufferedTx); ok {
		return b.TakeMessages(ctx, o, o.name, o.inbox, msgs)
	}
	if o.inbox != "" {
		fresh, err := o.store.Inbox(o.inbox).FirstOf(ctx, tx, messageid.Given(msgs)...)
		if err != nil {
			return err
		}
		msgs = messageid.Fresh(msgs, fresh)
	}
	insert := `insert into ` + Table(o.name) + ` (id, key, topic, headers, payload) values (?, ?, ?, ?, ?)`
	var args []any
	for len(msgs) > 0 {
		n := chunk(msgs)
		args = args[:0]
		for i := range msgs[:n] {
			args = appendRow(args, &msgs[i])
		}
		if _, err := tx.ExecContext(ctx, insert+strings.Repeat(`, (?, ?, ?, ?, ?)`, n-1), args...); err != nil {
			return explainTx(fmt.Sprintf("publish to outbox %q", o.name), err, penstock.ErrNoOutbox, func() error {
				_, err := tables.FindOutbox(ctx, onTables{o.store}, onOurs(tx), o.name, "")
				return err
			})
		}
		msgs = msgs[n:]
	}
	return nil
}

// Chunks stay below the 999 parameters that old SQLite libraries allow, and
// below some megabytes, because drivers copy parameters.
const (
	chunkRows  = 150
	chunkBytes = 4 << 20
)

// chunk is how many of msgs go into one statement, at least one.
func chunk(msgs []penstock.Message) int {
	size := 0
	for i := range msgs {
		if size += len(msgs[i].Payload); i > 0 && size > chunkBytes || i == chunkRows {
			return i
		}
	}
	return len(msgs)
}

func appendRow(args []any, m *penstock.Message) []any {
	return append(args, orNull(m.ID), orNull(m.Key), m.Topic, tables.HeadersText(m.Headers), tables.NotNil(m.Payload))
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// explainTx explains why a write in the application's transaction failed. look looks for what it is about, and none is the error that this is not there.
func explainTx(what string, err, none error, look func() error) error {
	if errors.Is(err, none) {
		return err
	}
	if noSuchTable(err) {
		switch found := look(); {
		case errors.Is(found, none):
			return found
		case noSuchTable(found):
			return penstock.WithHint(fmt.Errorf("%s: %w", what, penstock.ErrNotMigrated), "call Migrate, or run penstock migrate, on this database file")
		}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Publish writes messages in a separate transaction. When it has returned they survive a power cut.
func (o *Outbox) Publish(ctx context.Context, msgs ...penstock.Message) error {
	if len(msgs) == 0 {
		return o.store.guard.Ready(ctx)
	}
	return o.store.write(ctx, func(ctx context.Context, tx *sql.Tx) error { return o.PublishTx(ctx, tx, msgs...) })
}

// Publish implements driver.Store. Programs use Outbox.Publish.
func (s *Store) Publish(ctx context.Context, outbox string, msgs ...penstock.Message) error {
	return s.Outbox(outbox).Publish(ctx, msgs...)
}

// PublishOnce implements driver.OncePublisher. Programs use Outbox.Once.
func (s *Store) PublishOnce(ctx context.Context, inbox, outbox string, msgs ...penstock.Message) error {
	return s.Outbox(outbox).Once(inbox).Publish(ctx, msgs...)
}
