package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/penstock/penstock/internal/tables"
)

// micros is the server's time, in microseconds.
const micros = "timestampdiff(microsecond, timestamp'1970-01-01 00:00:00', utc_timestamp(6))"

// everywhere are the words that any statement may have. now is when a row is inserted: utc_timestamp is when the statement began, for example the one whose
// trigger inserts. If the local clock changes while a statement runs, it does so by half an hour at least.
var everywhere = tables.Args{
	"allowed":       tables.SQL(statements["may_settle"]),
	"blocked":       tables.SQL("(" + statements["blocked"] + ")"),
	"valid_headers": tables.SQL(statements["valid_headers"]),
	"clock":         tables.SQL("utc_timestamp(6)"),
	"clock_micros":  tables.SQL(micros),
	"collate":       tables.SQL(""),
	"now":           tables.SQL("utc_timestamp(6) + interval mod(timestampdiff(microsecond, now(6), sysdate(6)) + 7200000000, 1800000000) microsecond"),
}

// nested are the arguments that have words in braces. The others have names, which may contain braces.
var nested = map[string]bool{"allowed": true, "beyond": true, "ended": true, "from": true, "landed": true}

// rendered is a statement as it is sent: numbers and times stand in it, and a question mark for a text.
func (s *Store) rendered(statement string, with tables.Args) (text string, args []any) {
	if found, ok := statements[statement]; ok {
		statement = found
	}
	statement = tables.Parts(statement, statements, with)
	var fill func(name string) (string, bool)
	fill = func(name string) (string, bool) {
		if of, is := strings.CutPrefix(name, "these_"); is {
			return these(with[of].([]int64)), true
		}
		if name == "rows" {
			rows, more := rowsOf(with)
			args = append(args, more...)
			return rows, true
		}
		column, in, is := tables.In(name)
		if !is {
			in = name
		}
		value, ok := with[in]
		if !ok {
			if name == "schema" {
				return quoted(s.opts.Schema), true
			}
			var known bool
			if value, known = everywhere[name]; !known {
				return "", false
			}
		}
		if part, is := value.(tables.SQL); is {
			if !ok || nested[name] {
				return tables.Render(string(part), fill), true
			}
			return string(part), true
		}
		written, more := literal(value)
		args = append(args, more...)
		if is {
			written = column + " in (" + written + ")"
		}
		return written, true
	}
	text = tables.Render(statement, fill)
	return text, args
}

// literal is how a value stands in a statement.
func literal(value any) (text string, args []any) {
	if v := reflect.ValueOf(value); v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return "null", nil
		}
		value = v.Elem().Interface()
	}
	switch v := value.(type) {
	case nil:
		return "null", nil
	case string:
		return "?", []any{[]byte(v)}
	case []byte:
		return "?", []any{v}
	case time.Time:
		return at(v), nil
	case []int64:
		return list(v), nil
	case []time.Time:
		written := at(time.Time{}) // when nothing was
		for _, t := range v {
			written += ", " + at(t)
		}
		return written, nil
	case []string:
		return texts(v)
	}
	return fmt.Sprint(value), nil
}

// put has a statement of a batch executed.
func (b *batch) put(s *Store, st tables.Statement) {
	text, args := s.rendered(st.Text, st.Args)
	switch {
	case text == "":
	case st.Read != nil:
		b.read(func(rows *sql.Rows) error { return st.Read(rows.Scan) }, text, args...)
	case st.Count != nil:
		b.add(text, args...)
		b.read(func(rows *sql.Rows) error { return rows.Scan(st.Count) }, "select row_count()")
	default:
		b.add(text, args...)
	}
}

// fill sends large values already.
func (t *tx) fill(ctx context.Context, all *tables.Batch) (*batch, error) {
	b := &batch{}
	for _, st := range *all {
		if err := t.empty(ctx, b); err != nil {
			return nil, err
		}
		t.patient = t.patient || st.Text == "patient"
		b.put(t.store, st)
	}
	return b, nil
}

// Run implements tables.Runner.
func (t *tx) Run(ctx context.Context, all *tables.Batch) error {
	b, err := t.fill(ctx, all)
	if err != nil || b.text.Len() == 0 {
		return err
	}
	return t.run(ctx, b)
}

// Finish implements tables.Tx. The commit is a part of the batch.
func (t *tx) Finish(ctx context.Context, all *tables.Batch) error {
	b, err := t.fill(ctx, all)
	if err != nil {
		return err
	}
	return t.finish(ctx, b)
}

// onTables is a store for the parts that all dialects share: its methods are those of tables.OutboxDB, QueueDB, InboxDB
// and AdoptDB.
type onTables struct{ *Store }

var (
	_ tables.AdoptDB = onTables{} // and OutboxDB
	_ tables.QueueDB = onTables{}
	_ tables.InboxDB = onTables{}
)

func (s onTables) Run(ctx context.Context, all *tables.Batch) error {
	if err := s.guard.Ready(ctx); err != nil {
		return err
	}
	return s.explain(s.ask(ctx, all))
}

func (s onTables) Send(ctx context.Context, fill func(b *tables.Batch)) error {
	return s.Within(ctx, func(t tables.Tx) error {
		b := &tables.Batch{}
		fill(b)
		return t.Finish(ctx, b)
	})
}

func (s onTables) Within(ctx context.Context, fn func(tx tables.Tx) error) error {
	return s.tx(ctx, func(t *tx) error { return fn(t) })
}

func (s onTables) Ready(ctx context.Context) error { return s.guard.Ready(ctx) }
func (s onTables) Missing(err error) bool          { return number(err) == noSuchTable }
