package mysql

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/tables"
)

// outbox is one row of the outboxes.
type outbox = tables.Outbox

// validTable adds to what every store asks of a name that its table must have one.
func validTable(kind, name string) error {
	if n := utf8.RuneCountInString(tableName(kind, name)); n > 64 {
		return &penstock.FieldError{Field: kind, Problem: fmt.Sprintf("%q would have a table whose name has %d characters, of which MySQL takes 64", name, n), Hint: "use letters, digits and underscores"}
	}
	return nil
}

// CreateOutbox implements penstock.Store. The row is there when the table is: DDL commits by itself.
func (s *Store) CreateOutbox(ctx context.Context, name string) error {
	if err := cmp.Or(penstock.ValidateOutboxName(name), validTable("outbox", name)); err != nil {
		return err
	}
	return s.tx(ctx, func(t *tx) error {
		if err := s.nameFree(ctx, t, "outbox", name); err != nil {
			return err
		}
		b := &batch{}
		b.add(s.sql("insert into {schema}.outboxes (name, uid, buckets) values (?, ?, {buckets})", "", words{"buckets": s.opts.Buckets}), []byte(name), strings.ToLower(rand.Text()[:12]))
		switch err := t.run(ctx, b); {
		case number(err) == duplicate:
			return fmt.Errorf("%w: %q", penstock.ErrOutboxExists, name)
		case err != nil:
			return err
		}
		// A table that is there is left from somebody who died on the way.
		if err := s.define(ctx, s.sql("drop table if exists {table}", name, nil)); err != nil {
			return err
		}
		return s.define(ctx, s.sql("create_outbox", name, words{"buckets": s.opts.Buckets}))
	})
}

// nameFree is an error if an outbox or a queue has the name, which is to be one of kind, or if the server takes its table for that of another, in lower
// case. Nobody else makes one until the transaction ends: its lock is on a row of the version.
func (s *Store) nameFree(ctx context.Context, t *tx, kind, name string) error {
	var folds bool
	var has string
	b := &batch{}
	b.read(func(rows *sql.Rows) error { return rows.Scan(new(int)) }, s.sql("select version from {schema}.version where version = {version} for update", "", words{"version": version}))
	b.read(func(rows *sql.Rows) error { return rows.Scan(&folds) }, "select @@lower_case_table_names <> 0")
	b.read(func(rows *sql.Rows) error { return rows.Scan(&has) },
		s.sql("select 'outbox' from {schema}.outboxes where name = ? union all select 'queue' from {schema}.queues where name = ?", "", nil), []byte(name), []byte(name))
	if err := t.run(ctx, b); err != nil {
		return err
	}
	if has != "" {
		return tables.Taken(kind, name, has)
	}
	if !folds || name == strings.ToLower(name) {
		return nil
	}
	return &penstock.FieldError{Field: kind, Problem: fmt.Sprintf("%q has capital letters, and this server takes names of tables in lower case", name), Hint: "use small letters"}
}

// DropOutbox implements penstock.Store.
func (s *Store) DropOutbox(ctx context.Context, name string) error {
	return s.tx(ctx, func(t *tx) error {
		box, err := s.findOutbox(ctx, t, name, "for update")
		if err != nil {
			return err
		}
		b := &batch{}
		s.lockSubscriptions(b, &box)
		for _, statement := range []string{
			"delete from {schema}.entries where subscription_id in (select id from {schema}.subscriptions where outbox_id = {outbox})",
			"delete from {schema}.progress where subscription_id in (select id from {schema}.subscriptions where outbox_id = {outbox})",
			"delete from {schema}.subscriptions where outbox_id = {outbox}",
			"delete from {schema}.outboxes where id = {outbox}",
		} {
			b.add(s.sql(statement, "", words{"outbox": box.ID}))
		}
		if err := t.run(ctx, b); err != nil {
			return err
		}
		return s.define(ctx, s.sql("drop table if exists {table}", name, nil))
	})
}

// lockSubscriptions waits for whoever settles, and has others wait.
func (s *Store) lockSubscriptions(b *batch, box *outbox) (ids *[]int64) {
	ids = new([]int64)
	b.read(func(rows *sql.Rows) error {
		var id int64
		err := rows.Scan(&id)
		*ids = append(*ids, id)
		return err
	}, s.sql("select id from {schema}.subscriptions where outbox_id = {outbox} order by id for update", "", words{"outbox": box.ID}))
	return ids
}

// runner is a transaction, or the store for what needs none.
type runner interface {
	run(ctx context.Context, b *batch) error
}

func (s *Store) run(ctx context.Context, b *batch) error { return s.ask(ctx, b) }

func (s *Store) findOutbox(ctx context.Context, on runner, name, lock string) (outbox, error) {
	box := outbox{Name: name}
	var age int64
	there := false
	b := &batch{}
	b.read(func(rows *sql.Rows) error {
		there = true
		return rows.Scan(&box.ID, &box.IDs.UID, &box.Buckets, &age, &box.Retention.Bytes)
	}, s.sql("select id, uid, buckets, keep_age, keep_bytes from {schema}.outboxes where name = ? "+lock, "", nil), []byte(name))
	err := on.run(ctx, b)
	box.Retention.Age = time.Duration(age)
	if err == nil && !there {
		err = tables.NoOutbox(name)
	}
	return box, err
}

// Outbox publishes to one outbox. It holds no connection: the transaction is the
// caller's. Safe for concurrent use.
type Outbox struct{ name, table string }

// NewOutbox names an outbox in a database ("" for penstock); it does not look
// whether there is one.
func NewOutbox(schema, name string) *Outbox {
	if schema == "" {
		schema = DefaultSchema
	}
	return &Outbox{name, tableOf(schema, name)}
}

// Tx is what Publish needs of a transaction; *sql.Tx, *sql.Conn and *sql.DB have it.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// perStatement is how many messages one INSERT has at most: a prepared statement takes 65,535 arguments.
const perStatement = 10_000

// Publish writes messages within tx: they are delivered if tx commits, and never
// if it rolls back. One statement for each 10,000. Errors: *penstock.FieldError for a message
// that cannot be carried (then nothing is written and tx goes on), ErrNoOutbox.
func (o *Outbox) Publish(ctx context.Context, tx Tx, msgs ...penstock.Message) error {
	for i := range msgs {
		if err := msgs[i].Validate(); err != nil {
			return fmt.Errorf("message %d of %d: %w", i+1, len(msgs), err)
		}
	}
	for len(msgs) > 0 {
		n := min(len(msgs), perStatement)
		args := make([]any, 0, 5*n)
		for i := range msgs[:n] {
			m := &msgs[i]
			payload, headers := m.Payload, []byte(nil)
			if payload == nil {
				payload = []byte{} // nil would be NULL
			}
			if len(m.Headers) > 0 {
				var err error
				if headers, err = json.Marshal(m.Headers); err != nil {
					return err
				}
			}
			args = append(args, orNull(m.ID), orNull(m.Key), []byte(m.Topic), headers, payload)
		}
		_, err := tx.ExecContext(ctx, "insert into "+o.table+" (id, `key`, topic, headers, payload) values "+strings.Repeat("(?, ?, ?, ?, ?), ", n-1)+"(?, ?, ?, ?, ?)", args...)
		switch {
		case number(err) == noSuchTable:
			return tables.NoOutbox(o.name)
		case err != nil:
			return err
		}
		msgs = msgs[n:]
	}
	return nil
}

// orNull: an empty text is NULL.
func orNull(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}

// Publish implements penstock.Store.
func (s *Store) Publish(ctx context.Context, outbox string, msgs ...penstock.Message) error {
	if len(msgs) == 0 { // it says so if there is no such outbox
		if err := s.use(ctx); err != nil {
			return err
		}
		_, err := s.findOutbox(ctx, s, outbox, "")
		return s.explain(err)
	}
	return s.tx(ctx, func(t *tx) error {
		if len(msgs) > perStatement {
			if err := t.run(ctx, &batch{}); err != nil {
				return err
			}
		}
		return NewOutbox(s.opts.Schema, outbox).Publish(ctx, t.Conn, msgs...)
	})
}

func isNoOutbox(err error) bool { return errors.Is(err, penstock.ErrNoOutbox) }
