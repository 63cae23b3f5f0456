package portable

import (
	"context"
	"fmt"
	"strings"
	"time"

	"crypto/rand"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/tables"
)

// outbox is one row of the outboxes.
type outbox = tables.Outbox

// CreateOutbox implements penstock.Store. The row is locked while the table is made, by another connection: DDL is in no transaction.
func (s *Store) CreateOutbox(ctx context.Context, name string) error {
	if err := penstock.ValidateOutboxName(name); err != nil {
		return err
	}
	return s.tx(ctx, func(tx pgx.Tx) error {
		if err := s.nameFree(ctx, tx, "outbox", name); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, s.sql("insert into {schema}.outboxes (name, uid, buckets) values ($1, $2, $3)", ""), name, strings.ToLower(rand.Text()[:12]), s.opts.Buckets); err != nil {
			return err
		}
		// A table that is there is left from somebody who died on the way.
		if err := s.define(ctx, s.sql("drop table if exists {table}", name)); err != nil {
			return err
		}
		return s.define(ctx, s.sql("create_outbox", name))
	})
}

// DropOutbox implements penstock.Store.
func (s *Store) DropOutbox(ctx context.Context, name string) error {
	return s.tx(ctx, func(tx pgx.Tx) error {
		box, err := s.findOutbox(ctx, tx, name, "for update")
		if err != nil {
			return err
		}
		for _, statement := range []string{
			"select from {schema}.subscriptions where outbox_id = $1 for update",
			"delete from {schema}.entries where subscription_id in (select id from {schema}.subscriptions where outbox_id = $1)",
			"delete from {schema}.members where subscription_id in (select id from {schema}.subscriptions where outbox_id = $1)",
			"delete from {schema}.progress where subscription_id in (select id from {schema}.subscriptions where outbox_id = $1)",
			"delete from {schema}.subscriptions where outbox_id = $1",
			"delete from {schema}.outboxes where id = $1",
		} {
			if _, err := tx.Exec(ctx, s.sql(statement, ""), box.ID); err != nil {
				return err
			}
		}
		return s.define(ctx, s.sql("drop table if exists {table}", name))
	})
}

// querier is a transaction or the pool.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func (s *Store) findOutbox(ctx context.Context, q querier, name, lock string) (outbox, error) {
	box := outbox{Name: name}
	var age int64
	err := q.QueryRow(ctx, s.sql("select id, uid, buckets, keep_age, keep_bytes from {schema}.outboxes where name = $1 "+lock, ""), name).
		Scan(&box.ID, &box.IDs.UID, &box.Buckets, &age, &box.Retention.Bytes)
	box.Retention.Age = time.Duration(age)
	if isNoRows(err) {
		return box, tables.NoOutbox(name)
	}
	return box, err
}

// Outbox publishes to one outbox. It holds no connection: the transaction is the
// caller's. Safe for concurrent use.
type Outbox struct{ name, insert string }

// NewOutbox names an outbox in a schema ("" for the default); it does not look
// whether there is one.
func NewOutbox(schema, name string) *Outbox {
	if schema == "" {
		schema = DefaultSchema
	}
	return &Outbox{name, strings.ReplaceAll(statements["publish"], "{table}", pgx.Identifier{schema, tableOf(name)}.Sanitize())}
}

// Tx is what Publish needs of a pgx transaction; pgx.Tx, *pgx.Conn and *pgxpool.Pool have it.
type Tx = interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Publish writes messages within tx: they are delivered if tx commits, and never
// if it rolls back. One statement. Errors: *penstock.FieldError for a message
// that cannot be carried (then nothing is written and tx goes on), ErrNoOutbox.
func (o *Outbox) Publish(ctx context.Context, tx Tx, msgs ...penstock.Message) error {
	if len(msgs) == 0 {
		return nil
	}
	ids, keys, headers := make([]*string, len(msgs)), make([]*string, len(msgs)), make([]*string, len(msgs))
	topics, payloads := make([]string, len(msgs)), make([][]byte, len(msgs))
	for i := range msgs {
		m := &msgs[i]
		if err := m.Validate(); err != nil {
			return fmt.Errorf("message %d of %d: %w", i+1, len(msgs), err)
		}
		ids[i], keys[i], topics[i], payloads[i] = orNull(m.ID), orNull(m.Key), m.Topic, tables.NotNil(m.Payload)
		var err error
		if headers[i], err = tables.HeadersText(m.Headers); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, o.insert, ids, keys, topics, headers, payloads)
	if pgerror.State(err) == "42P01" {
		return tables.NoOutbox(o.name)
	}
	return pgerror.Explain(err, nil)
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// Publish implements penstock.Store: one statement, which is a transaction.
func (s *Store) Publish(ctx context.Context, outbox string, msgs ...penstock.Message) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	o := NewOutbox(s.opts.Schema, outbox)
	if len(msgs) == 0 { // it says so if there is no such outbox
		_, err := s.findOutbox(ctx, s.pool, outbox, "")
		return s.explain(err)
	}
	return s.explain(s.retries.Do(ctx, func() error { return o.Publish(ctx, s.pool, msgs...) }))
}
