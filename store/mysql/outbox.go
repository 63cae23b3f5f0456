package mysql

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/messageid"
	"github.com/penstock/penstock/internal/tables"
)

type outboxes = tables.Outboxes

// NewTable implements tables.OutboxDB and tables.QueueDB. It refuses a name whose table name is too long for MySQL, or that has capital letters on a server that
// keeps table names in lower case.
func (s onTables) NewTable(ctx context.Context, tx tables.Tx, kind, name string) error {
	if n := utf8.RuneCountInString(tableName(kind, name)); n > 64 {
		return &penstock.FieldError{Field: kind, Problem: fmt.Sprintf("%q would have a table whose name has %d characters, of which MySQL takes 64", name, n), Hint: "use letters, digits and underscores"}
	}
	var folds bool
	b := new(tables.Batch).Row(new(bool), "select @@lower_case_table_names <> 0", nil, &folds)
	if err := cmp.Or(tables.Free(ctx, tx, kind, name), tx.Run(ctx, b)); err != nil || !folds || name == strings.ToLower(name) {
		return err
	}
	return &penstock.FieldError{Field: kind, Problem: fmt.Sprintf("%q has capital letters, and this server takes names of tables in lower case", name), Hint: "use small letters"}
}

func (s onTables) MakeMessages(ctx context.Context, tx tables.Tx, outbox string) error {
	if err := s.DropMessages(ctx, tx, outbox); err != nil {
		return err
	}
	engine, err := s.engine(ctx)
	if err != nil {
		return err
	}
	text, _ := s.rendered("create_outbox", tables.Args{"table": tables.SQL(tableOf(s.opts.Schema, outbox)), "engine": engine, "unique": unique(tableName("outbox", outbox))})
	return s.define(ctx, text)
}

func (s onTables) DropMessages(ctx context.Context, _ tables.Tx, outbox string) error {
	return s.define(ctx, "drop table if exists "+tableOf(s.opts.Schema, outbox))
}

func (s onTables) Words(outbox string) map[string]tables.SQL {
	table := tables.SQL(tableOf(s.opts.Schema, outbox))
	words := maps.Clone(messageWords)
	words["table"], words["by_place"], words["by_id"] = table, table+" t force index (place)", table+" t force index (primary)"
	return words
}

// messageWords are how an outbox's messages are read, and the facts about them: by number.
var messageWords = map[string]tables.SQL{"beyond": "t.ts > {low}", "oldest": "t.ts", "parked_since": "e.ts", "entry": "e.seq = t.seq", "entries": "primary", "landed": "(t.seq not in ({in_flight}) or t.ts not in ({times}))",
	"order_t": "t.ts, t.seq", "order_m": "m.ts, m.seq", "more_t": "", "bucket": "0",
	"same_p": "t.seq = p.seq", "same_e": "t.seq = e.seq", "same_d": "t.seq = d.seq and t.ts = d.ts",
}

func (s onTables) MessagesBytes(ctx context.Context, outbox string) (n int64, err error) {
	b := new(tables.Batch).Row(new(bool), "select coalesce(sum(data_length + index_length), 0) from information_schema.tables where table_schema = {database} and table_name = {name}",
		tables.Args{"database": s.opts.Schema, "name": tableName("outbox", outbox)}, &n)
	return n, s.explain(s.ask(ctx, b))
}

// NewBuckets implements tables.OutboxDB: readers do not share a subscription.
func (s onTables) NewBuckets() int           { return 1 }
func (s onTables) PerSubscription() []string { return []string{"entries", "progress"} }

// Outbox publishes to one outbox. Safe for concurrent use.
type Outbox struct {
	store       *Store
	name, table string
}

// Outbox returns an outbox. It does not check that there is one.
func (s *Store) Outbox(name string) *Outbox { return &Outbox{s, name, tableOf(s.opts.Schema, name)} }

// Tx is a transaction of database/sql: a *sql.Tx, or a type that wraps one. A *sql.DB or a *sql.Conn does not compile here, because
// it commits each statement alone.
type Tx interface {
	tables.Session
	Rollback() error
}

// perStatement is how many messages one INSERT has at most: a prepared statement takes 65,535 arguments.
const perStatement = 10_000

// PublishTx writes messages within tx, in one statement for each 10,000. They are
// delivered if tx commits, and never if it rolls back. Errors: ErrNoOutbox, and
// *penstock.FieldError for a message that cannot be carried. In the latter case nothing
// is written and tx can continue.
func (o *Outbox) PublishTx(ctx context.Context, tx Tx, msgs ...penstock.Message) error {
	return o.write(ctx, tx, msgs)
}

func (o *Outbox) write(ctx context.Context, on tables.Session, msgs []penstock.Message) error {
	if err := messageid.Validate(msgs); err != nil {
		return err
	}
	return o.each(msgs, func(insert string, args []any) error {
		_, err := on.ExecContext(ctx, insert, args...)
		return o.orNone(err)
	})
}

func (o *Outbox) orNone(err error) error {
	if number(err) == noSuchTable {
		return tables.NoOutbox(o.name)
	}
	return err
}

// each hands over the statements that write messages.
func (o *Outbox) each(msgs []penstock.Message, write func(insert string, args []any) error) error {
	for some := range slices.Chunk(msgs, perStatement) {
		n := len(some)
		args := make([]any, 0, 5*n)
		for i := range some {
			m := &some[i]
			headers := []byte(nil)
			if len(m.Headers) > 0 {
				var err error
				if headers, err = json.Marshal(m.Headers); err != nil {
					return err
				}
			}
			args = append(args, orNull(m.ID), orNull(m.Key), []byte(m.Topic), headers, tables.NotNil(m.Payload))
		}
		if err := write("insert into "+o.table+" (id, `key`, topic, headers, payload) values "+strings.Repeat("(?, ?, ?, ?, ?), ", n-1)+"(?, ?, ?, ?, ?)", args); err != nil {
			return err
		}
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

// Publish implements driver.Store. Programs use Outbox.Publish.
func (s *Store) Publish(ctx context.Context, outbox string, msgs ...penstock.Message) error {
	return s.Outbox(outbox).Publish(ctx, msgs...)
}

// Publish writes messages in a separate transaction. If the answer is lost, it looks up whether they were written.
func (o *Outbox) Publish(ctx context.Context, msgs ...penstock.Message) error {
	s := o.store
	if len(msgs) == 0 { // it says so if there is no such outbox
		_, err := tables.FindOutbox(ctx, onTables{s}, onTables{s}, o.name, "")
		return err
	}
	if err := cmp.Or(s.guard.Ready(ctx), messageid.Validate(msgs)); err != nil {
		return err
	}
	return s.explain(s.attempts.Once(ctx, onTables{s}, &s.retries, tables.Noting{}, func(_ int64, first *tables.Batch) error {
		return s.once(ctx, func(t *tx) error {
			b, err := t.fill(ctx, first)
			if err != nil {
				return err
			}
			err = o.each(msgs, func(insert string, args []any) error {
				one := batch{}
				if one.add(insert, args...); one.size < packet {
					b.add(insert, args...)
					return t.empty(ctx, b)
				}
				// By itself: a statement that is too long as text the driver sends as a prepared statement, which is one.
				if b.text.Len() > 0 {
					if err := t.run(ctx, b); err != nil {
						return err
					}
					*b = batch{}
				}
				_, err := t.ExecContext(ctx, insert, args...)
				return err
			})
			if err == nil {
				err = t.finish(ctx, b)
			}
			return o.orNone(err)
		})
	}))
}
