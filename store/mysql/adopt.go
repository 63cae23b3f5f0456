package mysql

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/adopted"
	"github.com/penstock/penstock/internal/tables"
)

// AdoptConfig describes an outbox table that Penstock did not create.
type AdoptConfig = adopted.Config

// Adopted is such a table, and the subscription that reads it.
type Adopted = tables.Adopted

// Adopt prepares a subscription over a table that Penstock did not create. The table is in the URL's database unless its name has another. Adopt
// does not connect: Check and Subscribe read the table's definition. A config that cannot be used here is a *penstock.FieldError. The config's
// margin and sweep replace those of opts.
func Adopt(url string, opts Options, subscription string, c AdoptConfig) (*Adopted, error) {
	c.SetDefaults()
	opts.Margin, opts.Sweep = c.Margin, c.Sweep
	s, err := Open(url, opts)
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
	var schema any
	if len(names) == 2 {
		schema = names[0]
	}
	table, in := names[len(names)-1], ""
	b, args := &tables.Batch{}, tables.Args{"in": schema, "name": table}
	b.Row(new(bool), "select table_schema from information_schema.tables where table_schema = coalesce({in}, database()) and table_name = {name} and table_type = 'BASE TABLE'", args, &in)
	b.Rows(func(scan tables.Scan) error {
		c := tables.Column{}
		var unsigned bool
		err := scan(&c.Name, &c.Type, &unsigned, &c.Collation, &c.NotNull, &c.Limit)
		c.Kind = kindOf(c.Type)
		if c.Kind == adopted.Bytes { // read as hexadecimal digits
			c.Limit *= 2
		}
		if unsigned {
			c.Type += " unsigned"
		}
		if !strings.ContainsAny(c.Name, "?{") { // which mean something in a statement
			r.Columns = append(r.Columns, c)
		}
		return err
	}, `select column_name, data_type, column_type like '%unsigned%', coalesce(collation_name, ''), is_nullable = 'NO', coalesce(least(character_maximum_length, 100000), 0)
		from information_schema.columns where table_schema = coalesce({in}, database()) and table_name = {name} order by ordinal_position`, args)
	b.Rows(func(scan tables.Scan) error {
		var index, column string
		var unique bool
		err := scan(&index, &unique, &column)
		r.Indexed(index, unique, column)
		return err
	}, `select index_name, non_unique = 0, case when sub_part is null then coalesce(column_name, '') else '' end
		from information_schema.statistics where table_schema = coalesce({in}, database()) and table_name = {name} order by index_name, seq_in_index`, args)
	if err := s.ask(ctx, b); err != nil || in == "" || strings.ContainsAny(table+in, "?{") {
		return nil, s.explain(err)
	}
	r.Source = quoted(in) + "." + quoted(table)
	return r, nil
}

// kindOf is the use of a column by its type.
func kindOf(typ string) adopted.Kind {
	switch typ {
	case "tinyint", "smallint", "mediumint", "int", "bigint":
		return adopted.Number
	case "datetime", "timestamp":
		return adopted.Time
	case "char", "varchar", "tinytext", "text", "mediumtext", "longtext":
		return adopted.Text
	case "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob":
		return adopted.Bytes
	case "json":
		return adopted.JSON
	}
	return adopted.Other
}

func (s onTables) Quote(name string) string { return quoted(name) }

// Literal implements tables.AdoptDialect. It is in hexadecimal, because a question mark would be an argument.
func (s onTables) Literal(text string) string {
	return "_utf8mb4 x'" + hex.EncodeToString([]byte(text)) + "'"
}

func (s onTables) AsText(c *tables.Column, value string) string {
	switch c.Kind {
	case adopted.Bytes:
		return "lower(hex(" + value + "))"
	case adopted.Text, adopted.JSON: // by way of bytes: JSON would be a value in an array and not its text
		return "convert(cast(convert(" + value + " using utf8mb4) as binary) using utf8mb4)"
	}
	return "cast(" + value + " as char character set utf8mb4)"
}

func (s onTables) AsBytes(c *tables.Column, value string) string {
	switch {
	case c == nil:
		return "x''"
	case c.Kind != adopted.Bytes:
		value = "cast(" + s.AsText(c, value) + " as binary)"
	}
	return "coalesce(" + value + ", x'')"
}

// AsTime implements tables.AdoptDialect. The time zone of connections is UTC.
func (s onTables) AsTime(c *tables.Column, value string) string {
	if c == nil {
		return "cast(null as datetime(6))"
	}
	return value
}

func (s onTables) AnyTime() string                               { return "timestamp'1970-01-01 00:00:00.000000'" }
func (s onTables) FromTime(_ *tables.Column, time string) string { return time }

func (s onTables) FromText(c *tables.Column, text string) string {
	switch {
	case c.Kind == adopted.Number && strings.HasSuffix(c.Type, "unsigned"):
		return "cast(" + text + " as unsigned)"
	case c.Kind == adopted.Number:
		return "cast(" + text + " as signed)"
	case c.Kind == adopted.Bytes:
		return "unhex(" + text + ")"
	case c.Type == "uuid":
		return "cast(convert(" + text + " using utf8mb4) as uuid)"
	case c.Collation != "":
		charset, _, _ := strings.Cut(c.Collation, "_")
		return "convert(convert(" + text + " using utf8mb4) using " + charset + ") collate " + c.Collation // which may be bytes
	}
	return text
}

func (s onTables) AsMicros(_ *tables.Column, value string) string {
	return "cast(timestampdiff(microsecond, timestamp'1970-01-01 00:00:00', " + value + ") as char character set utf8mb4)"
}

func (s onTables) Concat(parts []string) string { return "concat(" + strings.Join(parts, ", ") + ")" }

func (s onTables) Texts(parts []string) string {
	return "json_array(" + strings.Join(parts, ", ") + ")"
}

// Kept implements tables.AdoptDialect. It keeps bytes, because a collation may take different texts for equal.
func (s onTables) Kept(text string) string    { return "cast(" + text + " as binary)" }
func (s onTables) Target(name string) string  { return "r." + quoted(name) }
func (s onTables) Hint(i tables.Index) string { return " force index (" + quoted(i.Name) + ")" }
func (s onTables) Now(*tables.Column) string  { return "utc_timestamp(6)" }

// Cut implements tables.AdoptDialect. A question mark replaces characters that the column's character set may not have, because a strict
// server refuses them.
func (s onTables) Cut(c *tables.Column, text string) string {
	lacks := `[^\t\n -~]`
	switch charset, _, _ := strings.Cut(c.Collation, "_"); charset {
	case "utf8", "utf8mb3", "ucs2":
		lacks = `[^\x{0}-\x{ffff}]`
	case "utf8mb4", "utf16", "utf16le", "utf32":
		lacks = ""
	}
	if lacks != "" {
		text = "regexp_replace(" + text + ", " + s.Literal(lacks) + ", " + s.Literal("?") + ")"
	}
	return fmt.Sprintf("left(%s, %d)", text, c.Limit)
}

func (s onTables) AdoptedWords(alone bool) map[string]tables.SQL {
	words := map[string]tables.SQL{"beyond": "t.ord > {low}", "oldest": "t.written", "parked_since": "e.since", "entry": "e.row_id = t.row_id", "entries": "entries_row", "landed": "t.row_id not in ({rows_in_flight})",
		"order_t": "t.ord, t.tie", "order_m": "m.ord, m.tie", "more_t": ", t.ord, t.tie, t.row_id", "bucket": "0"}
	if !alone {
		words["entry"] += " and e.ts = t.ts"
		words["landed"] = "(t.row_id not in ({rows_in_flight}) or t.ts not in ({times}))"
	}
	return words
}

// rowsOf is a table d of messages: numbers, and times, because after a loss of messages with a server another one may have the number. Of an adopted
// table's rows it also has their ids, and the other facts about them.
func rowsOf(of tables.Args) (text string, args []any) {
	times, seqs, ids := of["times"].([]time.Time), of["seqs"].([]int64), of["row_ids"].([]string)
	if of["source"] == nil {
		b := []byte("json_table('[")
		for i, seq := range seqs {
			if i > 0 {
				b = append(b, ',')
			}
			b = fmt.Appendf(b, `[%d,"%s"]`, seq, times[i].UTC().Format("2006-01-02 15:04:05.000000"))
		}
		return string(b) + "]', '$[*]' columns (seq bigint path '$[0]', ts datetime(6) path '$[1]')) d", nil
	}
	errs, _ := of["errors"].([]string)
	attempts, _ := of["attempts"].([]int64)
	rows := make([][]any, len(ids))
	for i, id := range ids {
		rows[i] = []any{strings.Trim(at(times[i]), "'"), seqs[i], id}
		if errs != nil {
			rows[i] = append(rows[i], errs[i], attempts[i])
		}
	}
	b, _ := json.Marshal(rows)
	return "json_table(?, '$[*]' columns (ts datetime(6) path '$[0]', seq bigint path '$[1]', row_id varchar(700) character set utf8mb4 path '$[2]', error text character set utf8mb4 path '$[3]', attempts bigint path '$[4]')) d", []any{string(b)}
}
