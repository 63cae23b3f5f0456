package tables

import (
	"context"
	"database/sql"
	"maps"
	"strings"
)

// Args are the values for the braces in a statement, by name.
type Args map[string]any

// SQL is an argument that is a part of the statement's text.
type SQL string

// With returns these and others.
func (a Args) With(more Args) Args {
	all := maps.Clone(a)
	maps.Copy(all, more)
	return all
}

// Statement is one of a Batch.
type Statement struct {
	Text  string // a name of the dialect's statements, or a text that all dialects have
	Args  Args
	Read  func(Scan) error // each row, nil if it returns none
	Count *int64           // how many rows it has changed, nil if no caller asks
	If    func() bool      // where each is a round trip: whether it has anything to do, nil if it has
}

// Batch is statements that go to the server in one round trip.
type Batch []Statement

// Do has a statement executed. As the others, it returns the batch.
func (b *Batch) Do(text string, args Args) *Batch { return b.add(Statement{Text: text, Args: args}) }

// Rows has a statement executed that returns rows; each is called for each of them.
func (b *Batch) Rows(each func(Scan) error, text string, args Args) *Batch {
	return b.add(Statement{Text: text, Args: args, Read: each})
}

// Lock has a statement executed that locks rows.
func (b *Batch) Lock(text string, args Args) *Batch {
	return b.Rows(func(Scan) error { return nil }, text, args)
}

// Row has a statement executed that may return a row, and reports whether it did.
func (b *Batch) Row(there *bool, text string, args Args, dest ...any) *Batch {
	return b.Rows(func(scan Scan) error {
		*there = true
		return scan(dest...)
	}, text, args)
}

// Counted has a statement executed, and returns how many rows it has changed.
func (b *Batch) Counted(n *int64, text string, args Args) *Batch {
	return b.add(Statement{Text: text, Args: args, Count: n})
}

func (b *Batch) add(st Statement) *Batch {
	*b = append(*b, st)
	return b
}

// All collects rows of one column.
func All[T any](into *[]T) func(Scan) error {
	return Each(func(v T) { *into = append(*into, v) })
}

// Each hands over rows of one column.
func Each[T any](each func(T)) func(Scan) error {
	return func(scan Scan) error {
		var v T
		if err := scan(&v); err != nil {
			return err
		}
		each(v)
		return nil
	}
}

// Runner runs batches: a transaction, or a store, where each statement may be one.
type Runner interface {
	Run(ctx context.Context, b *Batch) error
}

// Session has the methods of a transaction of database/sql, or of a connection.
type Session interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// OneByOne runs a batch, each statement in a round trip, as the dialect renders it; an empty text is none. reads scans a row as the dialect does.
func OneByOne(ctx context.Context, on Session, b *Batch, rendered func(text string, args Args) (string, []any), reads func(*sql.Rows) Scan) error {
	one := func(st *Statement) error {
		text, args := rendered(st.Text, st.Args)
		if text == "" {
			return nil
		}
		if st.Read == nil {
			done, err := on.ExecContext(ctx, text, args...)
			if err == nil && st.Count != nil {
				*st.Count, err = done.RowsAffected()
			}
			return err
		}
		rows, err := on.QueryContext(ctx, text, args...)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for scan := reads(rows); rows.Next(); {
			if err := st.Read(scan); err != nil {
				return err
			}
		}
		return rows.Err()
	}
	for i := range *b {
		if st := &(*b)[i]; st.If == nil || st.If() {
			if err := one(st); err != nil {
				return err
			}
		}
	}
	return nil
}

// Tx is a transaction.
type Tx interface {
	Runner
	// Finish runs the last batch, where the dialect can do that with the commit.
	Finish(ctx context.Context, b *Batch) error
}

// DB runs the operations that are the same in every dialect. Its errors have the next step.
type DB interface {
	Runner
	// Send runs a batch as one transaction, in one round trip, again where the database asks for that.
	Send(ctx context.Context, fill func(b *Batch)) error
	// Within runs fn in a transaction, again where the database asks for that.
	Within(ctx context.Context, fn func(tx Tx) error) error
	// Ready is an error if the store cannot be used.
	Ready(ctx context.Context) error
	// Missing: the error means that a table is not there.
	Missing(err error) bool
	// Duplicate: the error means that a row with this key is there.
	Duplicate(err error) bool
}

// In splits the name of a list, "column in names", which stands for one of them.
func In(name string) (column, list string, ok bool) { return strings.Cut(name, " in ") }

// Render fills in the braces, as fill says.
func Render(text string, fill func(name string) (string, bool)) string {
	var b strings.Builder
	b.Grow(len(text))
	for {
		open := strings.IndexByte(text, '{')
		if open < 0 {
			break
		}
		b.WriteString(text[:open])
		text = text[open:]
		end := strings.IndexByte(text, '}')
		if end < 0 {
			break
		}
		if with, ok := fill(text[1:end]); ok {
			b.WriteString(with)
			text = text[end+1:]
			continue
		}
		b.WriteByte('{')
		text = text[1:]
	}
	b.WriteString(text)
	return b.String()
}
