package postgres

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/messageid"
)

// Outbox publishes to one outbox. It holds no connection: the transaction is the
// caller's. Safe for concurrent use.
type Outbox struct {
	name   string
	table  string
	insert string
}

// NewOutbox names an outbox in a schema ("" for the default); it does not look
// whether there is one.
func NewOutbox(schema, name string) *Outbox {
	if schema == "" {
		schema = DefaultSchema
	}
	table := pgx.Identifier{schema, name}.Sanitize()
	return &Outbox{
		name:  name,
		table: table,
		insert: "insert into " + table + " (id, key, topic, headers, payload) " +
			"select * from unnest($1::text[], $2::text[], $3::text[], $4::jsonb[], $5::bytea[])",
	}
}

// PgxTx is what Publish needs of a pgx transaction; pgx.Tx, *pgx.Conn and
// *pgxpool.Pool have it.
type PgxTx interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// SQLTx is what PublishSQL needs of a database/sql transaction; *sql.Tx,
// *sql.Conn and *sql.DB have it.
type SQLTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Publish writes messages within tx: they are delivered if tx commits, and never
// if it rolls back. One round trip. Errors: *penstock.FieldError for a message
// that cannot be carried (then nothing is written and tx goes on), ErrNoOutbox. A *BufferedTx
// only takes the messages; other errors come when it writes them.
func (o *Outbox) Publish(ctx context.Context, tx PgxTx, msgs ...penstock.Message) error {
	if len(msgs) == 0 {
		return nil
	}
	if err := validMessages(msgs); err != nil {
		return err
	}
	if b, ok := tx.(*BufferedTx); ok {
		return b.publish(ctx, o, msgs)
	}
	args, err := columnsOf(msgs)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, o.insert, args...)
	return publishError(err, o.name)
}

// columnsOf makes the parameters of an insert out of messages that are valid, an array for each column.
func columnsOf(msgs []penstock.Message) ([]any, error) {
	var (
		ids      = make([]*string, len(msgs))
		keys     = make([]*string, len(msgs))
		topics   = make([]string, len(msgs))
		headers  = make([]*string, len(msgs))
		payloads = make([][]byte, len(msgs))
	)
	for i := range msgs {
		m := &msgs[i]
		text, err := encodeHeaders(m.Headers)
		if err != nil {
			return nil, at(err, i, len(msgs))
		}
		ids[i], keys[i], topics[i], headers[i], payloads[i] = orNull(m.ID), orNull(m.Key), m.Topic, text, m.Payload
		if payloads[i] == nil {
			payloads[i] = []byte{} // nil would be NULL
		}
	}
	return []any{ids, keys, topics, headers, payloads}, nil
}

// PublishSQL is Publish for database/sql, with any PostgreSQL driver. One round
// trip per 1,000 messages.
func (o *Outbox) PublishSQL(ctx context.Context, tx SQLTx, msgs ...penstock.Message) error {
	if err := validMessages(msgs); err != nil {
		return err
	}
	if b, ok := tx.(*BufferedSQLTx); ok {
		return b.TakeMessages(ctx, o, o.table, msgs)
	}
	const rows, columns = 1000, 5
	for start := 0; start < len(msgs); start += rows {
		part := msgs[start:min(start+rows, len(msgs))]
		args := make([]any, 0, len(part)*columns)
		var query strings.Builder
		query.WriteString("insert into " + o.table + " (id, key, topic, headers, payload) values ")
		for i := range part {
			m := &part[i]
			text, err := encodeHeaders(m.Headers)
			if err != nil {
				return at(err, start+i, len(msgs))
			}
			if i > 0 {
				query.WriteByte(',')
			}
			n := len(args)
			fmt.Fprintf(&query, "($%d,$%d,$%d,$%d::jsonb,$%d)", n+1, n+2, n+3, n+4, n+5)
			payload := m.Payload
			if payload == nil {
				payload = []byte{}
			}
			args = append(args, orNull(m.ID), orNull(m.Key), m.Topic, text, payload)
		}
		if _, err := tx.ExecContext(ctx, query.String(), args...); err != nil {
			return publishError(err, o.name)
		}
	}
	return nil
}

// Publish writes messages in one transaction of its own. It needs no more than a
// producer's privileges.
func (s *Store) Publish(ctx context.Context, outbox string, msgs ...penstock.Message) error {
	err := NewOutbox(s.schema, outbox).Publish(ctx, s.pool, msgs...)
	if errors.Is(err, penstock.ErrNoOutbox) {
		if notReady := s.ready(ctx); errors.Is(notReady, penstock.ErrNotMigrated) {
			return notReady
		}
	}
	return err
}

// PublishOnce implements penstock.OncePublisher. It needs the privileges of a producer and of the inbox's consumer.
func (s *Store) PublishOnce(ctx context.Context, inbox, outbox string, msgs ...penstock.Message) error {
	if err := validMessages(msgs); err != nil {
		return err
	}
	return pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		fresh, err := s.Inbox(inbox).FirstOf(ctx, tx, messageid.Given(msgs)...)
		if err != nil {
			return err
		}
		return NewOutbox(s.schema, outbox).Publish(ctx, tx, messageid.Fresh(msgs, fresh)...)
	})
}

// validMessages checks all before the first is written.
func validMessages(msgs []penstock.Message) error {
	for i := range msgs {
		if err := msgs[i].Validate(); err != nil {
			return at(err, i, len(msgs))
		}
	}
	return nil
}

// encodeHeaders makes them JSON text, nil for none.
func encodeHeaders(headers map[string]string) (*string, error) {
	if len(headers) == 0 {
		return nil, nil
	}
	text, err := json.Marshal(headers)
	if err != nil {
		return nil, err
	}
	s := string(text)
	return &s, nil
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// at says which of several messages an error is about.
func at(err error, i, n int) error {
	if n == 1 {
		return err
	}
	return fmt.Errorf("message %d of %d: %w", i+1, n, err)
}
