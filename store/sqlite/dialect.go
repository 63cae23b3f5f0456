package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	driver "modernc.org/sqlite"
	code "modernc.org/sqlite/lib"

	"github.com/penstock/penstock/internal/tables"
)

// spelled is how tables are called here. A writer has the file alone, so no row is locked.
var spelled = strings.NewReplacer("{schema}.key_heads", "penstock_heads", "{schema}.", "penstock_", " for update", "", "'1970-01-01'", "0")

// rendered is a statement as it is sent: arguments in it are parameters with numbers. Times are microseconds.
func rendered(statement string, with tables.Args, now time.Time) (text string, args []any) {
	if found, ok := texts[statement]; ok {
		statement = found
	} else {
		statement = spelled.Replace(statement)
	}
	statement = tables.Parts(statement, texts, with)
	numbers := map[string]string{}
	text = tables.Render(statement, func(name string) (string, bool) {
		column, of, list := tables.In(name)
		if !list {
			of = name
		}
		value, ok := with[of]
		switch {
		case ok:
		case of == "clock", of == "clock_micros":
			value = now
		case of == "collate":
			return "", true
		default:
			return "", false
		}
		if text, is := value.(tables.SQL); is {
			return string(text), true
		}
		if numbers[of] == "" {
			args = append(args, bound(value))
			numbers[of] = "?" + strconv.Itoa(len(args))
		}
		if list {
			return column + " in (select value from json_each(" + numbers[of] + "))", true
		}
		return numbers[of], true
	})
	return text, args
}

// bound is a value as any driver takes it.
func bound(value any) any {
	switch v := value.(type) {
	case time.Time:
		return v.UnixMicro()
	case []byte, nil:
		return value
	}
	switch v := reflect.ValueOf(value); v.Kind() {
	case reflect.Slice:
		if v.IsNil() {
			return "[]"
		}
		switch list := value.(type) {
		case []string:
			return jsonOf(list)
		case []time.Time:
			micros := make([]int64, len(list))
			for i, at := range list {
				micros[i] = at.UnixMicro()
			}
			value = micros
		}
		list, _ := json.Marshal(value) // of numbers, strings and histories: cannot fail
		return string(list)
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return bound(v.Elem().Interface())
	}
	return value
}

// jsonOf is a list of texts. Bytes that are not UTF-8, as a plain INSERT may have put them into a key, stay
// as they are.
func jsonOf(texts []string) string {
	list := []byte{'['}
	for i, text := range texts {
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, '"')
		for j := range len(text) {
			switch c := text[j]; {
			case c == '"' || c == '\\':
				list = append(list, '\\', c)
			case c < ' ':
				list = fmt.Appendf(list, "\\u%04x", c)
			default:
				list = append(list, c)
			}
		}
		list = append(list, '"')
	}
	return string(append(list, ']'))
}

// idle are statements of other dialects that have nothing to do here: Judge and triggers delete rows, no answer is lost and no plan forced.
var idle = map[string]bool{tables.LockNames: true, "patient": true, "hold_turns": true, "by_index": true, "give_up": true, "hold_seqs": true, "cancel_leases": true, "cancel_tries": true, "end_tries": true, "end_leases": true, "revive_tries": true, "run_now": true, "hold_unique": true, "forget_start": true, "end_discarded_entries": true}

// onTx is a transaction, the application's or one of ours, for the parts that are the same on all plain tables: one statement at a time. It is one moment.
type onTx struct {
	Tx
	at time.Time
}

// onOurs begins now.
func onOurs(tx Tx) onTx { return onTx{tx, time.Now()} }

func (t onTx) Run(ctx context.Context, b *tables.Batch) error {
	if i := slices.IndexFunc(*b, func(st tables.Statement) bool { return st.Text == "cancel_waiting" }); i >= 0 {
		before, behind := (*b)[:i], (*b)[i+1:]
		err := t.Run(ctx, &before)
		if err == nil {
			err = t.cancelWaiting(ctx, (*b)[i].Args)
		}
		if err == nil {
			err = t.Run(ctx, &behind)
		}
		return err
	}
	return tables.OneByOne(ctx, t, b, func(text string, args tables.Args) (string, []any) {
		if idle[text] {
			return "", nil
		}
		return rendered(text, args, t.at)
	}, scanned)
}

func (t onTx) Finish(ctx context.Context, b *tables.Batch) error { return t.Run(ctx, b) }

// scanned reads microseconds where a time is asked for, and does not copy bytes once more.
func scanned(rows *sql.Rows) tables.Scan {
	return func(dest ...any) error {
		for i, d := range dest {
			switch t := d.(type) {
			case *time.Time:
				dest[i] = atTime(func(at time.Time) { *t = at })
			case **time.Time:
				dest[i] = atTime(func(at time.Time) { *t = &at })
			case *[]byte:
				dest[i] = (*payload)(t)
			}
		}
		return rows.Scan(dest...)
	}
}

// payload keeps the driver's slice. database/sql would copy it once more, for
// drivers that use it again; this one makes a fresh slice for each row.
type payload []byte

func (p *payload) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*p = nil
	case []byte:
		if *p = v; v == nil {
			*p = []byte{}
		}
	case string: // who publishes by INSERT may leave text in the column
		*p = []byte(v)
	default: // or a number
		*p = fmt.Append(nil, v)
	}
	return nil
}

// atTime takes microseconds since 1970, the text of a JSON, or NULL.
type atTime func(at time.Time)

// Scan implements sql.Scanner.
func (set atTime) Scan(src any) error {
	switch v := src.(type) {
	case nil:
	case int64:
		set(time.UnixMicro(v).UTC())
	case string: // one that was written by hand is none
		if at, err := time.Parse(time.RFC3339Nano, v); err == nil {
			set(at)
		}
	default:
		return fmt.Errorf("a time that is a %T", src)
	}
	return nil
}

// onTables is a store for the parts that are the same on all plain tables: its methods are those of tables.OutboxDB, QueueDB, InboxDB
// and Waker.
type onTables struct{ *Store }

var _ tables.InboxDB = onTables{}

// Run implements tables.Runner. It reads in one snapshot.
func (s onTables) Run(ctx context.Context, b *tables.Batch) error {
	return s.read(ctx, func(ctx context.Context, tx *sql.Tx) error { return onOurs(tx).Run(ctx, b) })
}

func (s onTables) Send(ctx context.Context, fill func(b *tables.Batch)) error {
	return s.Within(ctx, func(tx tables.Tx) error {
		b := &tables.Batch{}
		fill(b)
		return tx.Run(ctx, b)
	})
}

func (s onTables) Within(ctx context.Context, fn func(tx tables.Tx) error) error {
	return s.write(ctx, func(_ context.Context, tx *sql.Tx) error { return fn(onOurs(tx)) })
}

func (s onTables) Ready(ctx context.Context) error { return s.guard.Ready(ctx) }
func (s onTables) Missing(err error) bool          { return noSuchTable(err) }

func (s onTables) Duplicate(err error) bool {
	var e *driver.Error
	return errors.As(err, &e) && (e.Code() == code.SQLITE_CONSTRAINT_UNIQUE || e.Code() == code.SQLITE_CONSTRAINT_PRIMARYKEY)
}
