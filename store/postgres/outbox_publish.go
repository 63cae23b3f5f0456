package postgres

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/messageid"
	"github.com/penstock/penstock/internal/retry"
	"github.com/penstock/penstock/internal/schema"
)

// Outbox publishes to one outbox. Safe for concurrent use.
type Outbox struct {
	store  *Store
	name   string
	table  string
	insert string
	one    string // inserts one message, which costs a quarter less than arrays of one
	inbox  string // that knows the ids of published messages; empty: all are published
}

const publishColumns = " (id, key, topic, headers, payload) "

// Outbox returns an outbox. It does not check that there is one.
func (s *Store) Outbox(name string) *Outbox {
	o := &Outbox{store: s, name: name, table: s.table(name)}
	o.insert = o.statement("select * from unnest($1::text[], $2::text[], $3::text[], $4::jsonb[], $5::bytea[])", 6)
	o.one = o.statement("values ($1, $2, $3, $4, $5)", 6)
	return o
}

// Once returns the outbox for messages that may be published again. A message with an id is published only if the id is new to an
// inbox, and noted there in the same statement. This also needs the privileges of the inbox's consumer. Publishing then can also
// return ErrNoInbox.
func (o *Outbox) Once(inbox string) *Outbox {
	once := *o
	once.inbox = inbox
	once.insert = once.statement("select * from unnest($1::text[], $2::text[], $3::text[], $4::jsonb[], $5::bytea[])", 6)
	return &once
}

// statement writes the rows of rows, a query. The inbox, if there is one, is the parameter of that number.
func (o *Outbox) statement(rows string, inbox int) string {
	if o.inbox == "" {
		return "insert into " + o.table + publishColumns + rows
	}
	// No order by: the rows come as they are given, and rows that are left out do not change that.
	return "with given" + publishColumns + "as materialized (" + rows + "), fresh as materialized (select i from " +
		o.store.table("inbox_many") + "($" + strconv.Itoa(inbox) + ", array(select id from given where id is not null)) i) " +
		"insert into " + o.table + publishColumns + "select * from given where id is null or id in (select i from fresh)"
}

// left is msgs without those whose ids are among them twice: a statement finds messages that were published
// before it.
func (o *Outbox) left(msgs []penstock.Message) []penstock.Message {
	if o.inbox == "" {
		return msgs
	}
	return messageid.Fresh(msgs, messageid.Given(msgs))
}

// args is args with the inbox, if there is one.
func (o *Outbox) args(args []any) []any {
	if o.inbox == "" {
		return args
	}
	return append(args, o.inbox)
}

// explain turns an error of a publish into an error on which the producer can act.
func (o *Outbox) explain(ctx context.Context, err error) error {
	if pg := (*pgconn.PgError)(nil); o.inbox != "" && errors.As(err, &pg) && pg.Code == "42P01" && strings.HasPrefix(pg.Message, "there is no inbox") {
		return o.store.Inbox(o.inbox).explain(err)
	}
	if sqlState(err) == "42P01" {
		look, cancel := context.WithTimeout(ctx, shortLook)
		defer cancel()
		if notReady := o.store.checkVersion(look); schema.Is(notReady) {
			return notReady
		}
	}
	return publishError(err, o.name)
}

// shortLook bounds the look why something is absent: the caller's transaction may have the pool's only connection.
const shortLook = time.Second

// SQLTx is a transaction of database/sql: a *sql.Tx, or a type that wraps one. A *sql.DB or a *sql.Conn does not compile here, because
// it commits each statement alone.
type SQLTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	Rollback() error
}

// PublishTx writes messages within tx, in one round trip. They are delivered if tx
// commits, and never if it rolls back. Errors: ErrNoOutbox, and *penstock.FieldError for a
// message that cannot be carried. In the latter case nothing is written and tx can
// continue. A *BufferedTx only buffers the messages and returns other errors when it writes
// them.
func (o *Outbox) PublishTx(ctx context.Context, tx pgx.Tx, msgs ...penstock.Message) error {
	return o.write(ctx, tx, msgs)
}

// write is PublishTx on a transaction or on a pool, where the statement is the transaction.
func (o *Outbox) write(ctx context.Context, on querier, msgs []penstock.Message) error {
	if len(msgs) == 0 {
		return nil
	}
	if err := messageid.Validate(msgs); err != nil {
		return err
	}
	if b, ok := on.(*BufferedTx); ok {
		return b.publish(ctx, o, msgs)
	}
	query, args, err := o.insertOf(msgs)
	if err != nil {
		return err
	}
	_, err = on.Exec(ctx, query, args...)
	return o.explain(ctx, err)
}

// insertOf is the statement that writes messages that are valid, and its parameters: of several, an array for each column.
func (o *Outbox) insertOf(msgs []penstock.Message) (string, []any, error) {
	if len(msgs) == 1 && o.inbox == "" {
		args, err := appendMessage(nil, &msgs[0])
		return o.one, args, err
	}
	msgs = o.left(msgs)
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
			return "", nil, messageid.At(err, i, len(msgs))
		}
		ids[i], keys[i], topics[i], headers[i], payloads[i] = orNull(m.ID), orNull(m.Key), m.Topic, text, notNil(m.Payload) // nil would be NULL
	}
	return o.insert, o.args([]any{ids, keys, topics, headers, payloads}), nil
}

// appendMessage adds the columns of one to args.
func appendMessage(args []any, m *penstock.Message) ([]any, error) {
	headers, err := encodeHeaders(m.Headers)
	return append(args, orNull(m.ID), orNull(m.Key), m.Topic, headers, notNil(m.Payload)), err
}

// PublishSQL is PublishTx for database/sql, with any PostgreSQL driver. One round
// trip per 1,000 messages.
func (o *Outbox) PublishSQL(ctx context.Context, tx SQLTx, msgs ...penstock.Message) error {
	if err := messageid.Validate(msgs); err != nil {
		return err
	}
	if b, ok := tx.(*BufferedSQLTx); ok {
		return b.TakeMessages(ctx, o, o.table, o.inbox, msgs)
	}
	const rows, columns = 1000, 5
	msgs = o.left(msgs)
	for start := 0; start < len(msgs); start += rows {
		part := msgs[start:min(start+rows, len(msgs))]
		args := make([]any, 0, len(part)*columns)
		var query strings.Builder
		query.WriteString("values ")
		for i := range part {
			if i > 0 {
				query.WriteByte(',')
			}
			n := len(args)
			fmt.Fprintf(&query, "($%d::text,$%d::text,$%d::text,$%d::jsonb,$%d::bytea)", n+1, n+2, n+3, n+4, n+5)
			var err error
			if args, err = appendMessage(args, &part[i]); err != nil {
				return messageid.At(err, start+i, len(msgs))
			}
		}
		if _, err := tx.ExecContext(ctx, o.statement(query.String(), len(args)+1), o.args(args)...); err != nil {
			return o.explain(ctx, err)
		}
	}
	return nil
}

// Publish writes messages in a separate transaction, which runs again after a conflict with another one. A producer's privileges are
// enough.
func (o *Outbox) Publish(ctx context.Context, msgs ...penstock.Message) error {
	err := retry.Few(ctx, func() error {
		switch {
		case o.inbox != "":
			return pgx.BeginTxFunc(ctx, o.store.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error { return o.PublishTx(ctx, tx, msgs...) })
		case len(msgs) >= copyFrom:
			return o.copy(ctx, msgs)
		}
		return o.write(ctx, o.store.pool, msgs)
	})
	if errors.Is(err, penstock.ErrNoOutbox) {
		if notReady := o.store.ready(ctx); schema.Is(notReady) {
			return notReady
		}
	}
	return err
}

// Publish implements driver.Store. Programs use Outbox.Publish.
func (s *Store) Publish(ctx context.Context, outbox string, msgs ...penstock.Message) error {
	return s.Outbox(outbox).Publish(ctx, msgs...)
}

// PublishOnce implements driver.OncePublisher. Programs use Outbox.Once.
func (s *Store) PublishOnce(ctx context.Context, inbox, outbox string, msgs ...penstock.Message) error {
	return s.Outbox(outbox).Once(inbox).Publish(ctx, msgs...)
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
