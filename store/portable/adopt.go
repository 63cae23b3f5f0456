package portable

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/adopted"
	"github.com/penstock/penstock/internal/pg"
	"github.com/penstock/penstock/internal/tables"
)

// AdoptConfig describes an outbox table that Penstock did not create.
type AdoptConfig = adopted.Config

// Adopted is such a table, and the subscription that reads it.
type Adopted = tables.Adopted

// Adopt prepares a subscription over a table that Penstock did not create. It does not connect: Check and Subscribe read the table's
// definition. A config that cannot be used here is a *penstock.FieldError. The config's margin and sweep replace those of opts.
func Adopt(ctx context.Context, url string, opts Options, subscription string, c AdoptConfig) (*Adopted, error) {
	c.SetDefaults()
	opts.Margin, opts.Sweep = c.Margin, c.Sweep
	s, err := Open(ctx, url, opts)
	if err != nil {
		return nil, err
	}
	return tables.NewAdopted(onTables{s}, subscription, c, s.Close)
}

func (s onTables) Source(req driver.Subscribe) (tables.AdoptedSource, *tables.Reader) {
	src := s.newSource(req)
	return src, src.Reader
}

func (s onTables) LookAt(ctx context.Context, names []string) (*tables.Relation, error) {
	r := &tables.Relation{}
	name := pgx.Identifier(names).Sanitize()
	var schema, table string
	b := &pgx.Batch{}
	b.Queue(s.text("adopt_relation"), name).QueryRow(func(row pgx.Row) error { return row.Scan(&schema, &table) })
	b.Queue(s.text("adopt_columns"), name).Query(each(func(scan tables.Scan) error {
		var c tables.Column
		var category string
		err := scan(&c.Name, &c.Type, &category, &c.NotNull, &c.Limit)
		c.Kind = adopted.PostgresKind(c.Type, category)
		r.Columns = append(r.Columns, c)
		return err
	}))
	b.Queue(s.text("adopt_indexes"), name).Query(each(func(scan tables.Scan) error {
		var index, column string
		var unique bool
		err := scan(&index, &unique, &column)
		r.Indexed(index, unique, column)
		return err
	}))
	err := s.send(ctx, b)
	if isNoRows(err) {
		return nil, nil
	}
	r.Source = pgx.Identifier{schema, table}.Sanitize()
	return r, s.explain(err)
}

func (s onTables) Quote(name string) string   { return pgx.Identifier{name}.Sanitize() }
func (s onTables) Literal(text string) string { return pg.Literal(text) }

func (s onTables) AsText(c *tables.Column, value string) string {
	if c.Type == "timestamp with time zone" { // whatever the session's time zone
		return "((" + value + " at time zone 'UTC')::text || '+00')"
	}
	return value + "::text"
}

func (s onTables) AsBytes(c *tables.Column, value string) string {
	switch {
	case c == nil:
		return "''::bytea"
	case c.Kind == adopted.Bytes:
		return "coalesce(" + value + ", ''::bytea)"
	}
	return "coalesce(convert_to(" + value + "::text, 'UTF8'), ''::bytea)"
}

func (s onTables) AsTime(c *tables.Column, value string) string {
	switch {
	case c == nil:
		return "null::timestamptz"
	case strings.HasSuffix(c.Type, "without time zone"):
		return "(" + value + " at time zone 'UTC')"
	}
	return value
}

func (s onTables) AnyTime() string                               { return "timestamptz '1970-01-01 00:00:00+00'" }
func (s onTables) FromTime(c *tables.Column, time string) string { return s.AsTime(c, time) }
func (s onTables) FromText(c *tables.Column, text string) string { return text + "::" + c.Type }

func (s onTables) AsMicros(_ *tables.Column, value string) string {
	return "(extract(epoch from " + value + ") * 1000000)::bigint::text"
}

func (s onTables) Concat(parts []string) string { return "(" + strings.Join(parts, " || ") + ")" }

func (s onTables) Texts(parts []string) string {
	return "json_build_array(" + strings.Join(parts, ", ") + ")"
}

func (s onTables) Kept(text string) string     { return text }
func (s onTables) Target(name string) string   { return s.Quote(name) }
func (s onTables) Hint(tables.Index) string    { return "" }
func (s onTables) Now(c *tables.Column) string { return s.AsTime(c, "clock_timestamp()") }

func (s onTables) Cut(c *tables.Column, text string) string {
	return fmt.Sprintf("left(%s, %d)", text, c.Limit)
}

func (s onTables) AdoptedWords(alone bool) map[string]tables.SQL {
	words := map[string]tables.SQL{"beyond": "t.ord > {low}", "oldest": "t.written", "parked_since": "e.since", "entry": "e.row_id = t.row_id and e.row_id <> ''",
		"landed": "t.row_id <> all ({in_flight}::text[])",
		"more_t": ", t.ord, t.tie, t.row_id", "more_c": ", c.ord, c.tie, c.row_id", "more_p": ", p.ord, p.tie", "more_row": "", "bucket": "bucket",
		"rows": "unnest({times}::timestamptz[], {seqs}::bigint[], {row_ids}::text[]) d(ts, seq, row_id)",
	}
	if !alone {
		words["entry"] += " and e.ts = t.ts"
		words["landed"] = "(t.row_id <> all ({in_flight}::text[]) or t.ts <> all ({times}::timestamptz[]))"
	}
	for _, of := range []string{"t", "c", "p", "m"} {
		words["order_"+of] = tables.SQL(of + ".ord, " + of + ".tie")
	}
	return words
}
