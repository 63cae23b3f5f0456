package portable

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock/internal/pg"
	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/tables"
)

// micros is the server's time, in microseconds.
const micros = "(extract(epoch from clock_timestamp()) * 1000000)::bigint"

// rendered is a statement as it is sent, with numbered arguments.
func (s *Store) rendered(statement string, with tables.Args) (text string, args []any) {
	numbers := map[string]string{}
	number := func(name string) string {
		if numbers[name] == "" {
			switch v := with[name].(type) { // nil would be NULL
			case []int64:
				args = append(args, orEmpty(v))
			case []string:
				args = append(args, orEmpty(v))
			case []time.Time:
				args = append(args, orEmpty(v))
			case []int16:
				args = append(args, orEmpty(v))
			default:
				args = append(args, v)
			}
			numbers[name] = fmt.Sprint("$", len(args))
		}
		return numbers[name]
	}
	_, isDistributed := with["tenant"]
	of := func(name string) string { return distributed(isDistributed, name) }
	text = strings.NewReplacer("{blocked}", "("+s.text("blocked")+")", "{backlog}", s.text(of("backlog"))).Replace(tables.Parts(s.text(of(statement)), s.dialect().statements, with))
	var fill func(name string) (string, bool)
	fill = func(name string) (string, bool) {
		if column, list, is := tables.In(name); is {
			return column + " = any (" + number(list) + ")", true
		}
		if v, is := with[name].(tables.SQL); is {
			if slices.Contains([]string{"rows", "there", "allowed", "lease", "beyond", "landed"}, name) { // which have their own arguments
				return tables.Render(string(v), fill), true
			}
			return string(v), true
		}
		if _, ok := with[name]; ok {
			return number(name), true
		}
		switch name {
		case "schema":
			return s.schema, true
		case "ids":
			return pg.Literal(s.schema + ".job_ids"), true
		case "clock":
			return "clock_timestamp()", true
		case "clock_micros":
			return micros, true
		}
		return "", false
	}
	text = tables.Render(text, fill)
	if planned[statement] {
		s.planned.Store(text, nil)
	}
	return text, args
}

// pgBatch is a batch in the dialect.
func (s *Store) pgBatch(b *tables.Batch) *pgx.Batch {
	out := &pgx.Batch{}
	for _, st := range *b {
		text, args := s.rendered(st.Text, st.Args)
		q := out.Queue(text, args...)
		switch {
		case st.Read != nil:
			q.Query(each(st.Read))
		case st.Count != nil:
			q.Exec(func(c pgconn.CommandTag) error {
				*st.Count = c.RowsAffected()
				return nil
			})
		}
	}
	return out
}

// pgTx is a transaction for the parts that all dialects share, the caller's or one of ours.
type pgTx struct {
	pgx.Tx
	store *Store
}

func (t pgTx) Run(ctx context.Context, b *tables.Batch) error {
	if len(*b) == 0 {
		return nil
	}
	return t.SendBatch(ctx, t.store.pgBatch(b)).Close()
}

func (t pgTx) Finish(ctx context.Context, b *tables.Batch) error { return t.Run(ctx, b) }

// onTables is a store for the parts that all dialects share: its methods are those of tables.OutboxDB, QueueDB, InboxDB
// and AdoptDB.
type onTables struct{ *Store }

var (
	_ tables.AdoptDB = onTables{} // and OutboxDB
	_ tables.QueueDB = onTables{}
	_ tables.InboxDB = onTables{}
)

func (s onTables) Run(ctx context.Context, b *tables.Batch) error {
	return s.Send(ctx, func(all *tables.Batch) { *all = *b })
}

// Send implements tables.DB. Statements that are sent together are one transaction.
func (s onTables) Send(ctx context.Context, fill func(b *tables.Batch)) error {
	if err := s.guard.Ready(ctx); err != nil {
		return err
	}
	return s.explain(s.guard.Newer(ctx, s.retries.Do(ctx, func() error {
		b := &tables.Batch{}
		fill(b)
		return s.send(ctx, s.pgBatch(b))
	})))
}

func (s onTables) Within(ctx context.Context, fn func(tx tables.Tx) error) error {
	return s.tx(ctx, func(tx pgx.Tx) error { return fn(pgTx{tx, s.Store}) })
}

func (s onTables) Ready(ctx context.Context) error { return s.guard.Ready(ctx) }
func (s onTables) Missing(err error) bool          { return pgerror.State(err) == "42P01" }
