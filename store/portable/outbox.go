package portable

import (
	"context"
	"maps"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/messageid"
	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/tables"
)

type outboxes = tables.Outboxes

func (s onTables) MakeMessages(ctx context.Context, tx tables.Tx, outbox string) error {
	if err := s.DropMessages(ctx, tx, outbox); err != nil {
		return err
	}
	return s.define(ctx, s.sql("create_outbox", outbox))
}

func (s onTables) DropMessages(ctx context.Context, _ tables.Tx, outbox string) error {
	return s.define(ctx, s.sql("drop table if exists {table}", outbox))
}

func (s onTables) Words(outbox string) map[string]tables.SQL {
	words := maps.Clone(messageWords)
	for _, of := range []string{"same_p", "same_e", "same_d"} {
		words[of] = tables.SQL(s.dialect().joins(string(words[of])))
	}
	words["table"] = tables.SQL(s.messages(outbox))
	return words
}

// messageWords are how an outbox's messages are read, and the facts about them: by number and time.
var messageWords = map[string]tables.SQL{
	"beyond": "t.ts > {low}", "entry": "e.seq = t.seq", "landed": "(t.seq <> all ({in_flight}::bigint[]) or t.ts <> all ({times}::timestamptz[]))",
	"order_t": "t.ts, t.seq", "order_c": "c.ts, c.seq", "order_p": "p.ts, p.seq", "order_m": "m.ts, m.seq", "more_t": "", "more_c": "", "more_p": "", "more_row": "", "bucket": "bucket",
	"same_p": "t.bucket = any (array[p.bucket]) and t.ts = p.ts and t.seq = p.seq", "same_e": "t.bucket = any (array[e.bucket]) and t.ts = e.ts and t.seq = e.seq", "same_d": "t.bucket = any (array[d.bucket]) and t.ts = d.ts and t.seq = d.seq",
	"rows": "unnest({buckets}::smallint[], {times}::timestamptz[], {seqs}::bigint[]) d(bucket, ts, seq)", "oldest": "t.ts", "parked_since": "e.ts",
}

// messages is the table with an outbox's messages.
func (s onTables) messages(outbox string) string {
	return pgx.Identifier{s.opts.Schema, tableOf(outbox)}.Sanitize()
}

func (s onTables) MessagesBytes(ctx context.Context, outbox string) (int64, error) {
	return s.bytes(ctx, s.messages(outbox))
}

func (s onTables) NewBuckets() int           { return s.opts.Buckets }
func (s onTables) PerSubscription() []string { return []string{"entries", "members", "progress"} }

// Outbox publishes to one outbox. Safe for concurrent use.
type Outbox struct {
	store        *Store
	name, insert string
	value        *any // by which the outbox is distributed
}

// Outbox returns an outbox. It does not check that there is one.
func (s *Store) Outbox(name string) *Outbox {
	return &Outbox{store: s, name: name, insert: s.sql("publish", name)}
}

// PublishTx writes messages within tx, in one statement. They are delivered if tx
// commits, and never if it rolls back. Errors: ErrNoOutbox, and *penstock.FieldError for
// a message that cannot be carried. In the latter case nothing is written and tx can
// continue.
func (o *Outbox) PublishTx(ctx context.Context, tx pgx.Tx, msgs ...penstock.Message) error {
	if len(msgs) == 0 {
		return nil
	}
	columns, err := columnsOf(msgs)
	if err != nil {
		return err
	}
	if o.value != nil {
		return o.insertRows(ctx, tx, columns)
	}
	_, err = tx.Exec(ctx, o.insert, columns...)
	return o.explain(err)
}

// columnsOf are messages as arguments of the statement.
func columnsOf(msgs []penstock.Message) ([]any, error) {
	ids, keys, headers := make([]*string, len(msgs)), make([]*string, len(msgs)), make([]*string, len(msgs))
	topics, payloads := make([]string, len(msgs)), make([][]byte, len(msgs))
	for i := range msgs {
		m := &msgs[i]
		if err := m.Validate(); err != nil {
			return nil, messageid.At(err, i, len(msgs))
		}
		ids[i], keys[i], topics[i], payloads[i] = orNull(m.ID), orNull(m.Key), m.Topic, tables.NotNil(m.Payload)
		headers[i] = tables.HeadersText(m.Headers)
	}
	return []any{ids, keys, topics, headers, payloads}, nil
}

func (o *Outbox) explain(err error) error {
	if pgerror.State(err) == "42P01" {
		return tables.NoOutbox(o.name)
	}
	return o.lacksValue(pgerror.Explain(err, nil))
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// Publish implements driver.Store. Programs use Outbox.Publish.
func (s *Store) Publish(ctx context.Context, outbox string, msgs ...penstock.Message) error {
	return s.Outbox(outbox).Publish(ctx, msgs...)
}

// Publish writes messages in a separate transaction, in one round trip. If the answer is lost, it looks up whether they were written.
func (o *Outbox) Publish(ctx context.Context, msgs ...penstock.Message) error {
	s := o.store
	if err := s.guard.Ready(ctx); err != nil {
		return err
	}
	if err := o.noTransaction(); err != nil {
		return err
	}
	if len(msgs) == 0 { // it says so if there is no such outbox
		_, err := tables.FindOutbox(ctx, onTables{s}, onTables{s}, o.name, "")
		return err
	}
	columns, err := columnsOf(msgs)
	if err != nil {
		return err
	}
	return s.explain(s.attempts.Once(ctx, onTables{s}, &s.retries, tables.Noting{}, func(_ int64, first *tables.Batch) error {
		b := s.pgBatch(first)
		b.Queue(o.insert, columns...)
		return o.explain(s.send(ctx, b))
	}))
}
