package adopted

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock/penstock/internal/shell"
)

// Relation is a table that Penstock did not create, as it is in its database.
type Relation struct {
	Source  string // qualified and quoted, as in SQL
	Columns []Column
	Indexes []Index
}

// Column is a column of the table.
type Column struct {
	Name, Type         string // as SQL writes it; of a domain, its base type
	Kind               Kind
	Collation          string // of a text, in MySQL's dialect
	NotNull, Generated bool
	Limit              int  // of characters, 0 without one
	NoSelect, NoUpdate bool // for this role
}

// Kind shows how a column can be used.
type Kind uint16

// The kinds.
const (
	Other  Kind = 1 << iota
	Number      // an integer
	Time
	Text
	Bytes
	JSON
	UUID
	Bool
	Enum
	Compound // for example, an array, which has no useful order
)

// PostgresKind is the kind of a PostgreSQL type, by its name from format_type and its category in
// pg_type.
func PostgresKind(typ, category string) Kind {
	switch typ {
	case "smallint", "integer", "bigint":
		return Number
	case "timestamp with time zone", "timestamp without time zone":
		return Time
	case "bytea":
		return Bytes
	case "json", "jsonb":
		return JSON
	case "uuid":
		return UUID
	case "xml":
		return Compound
	case `"char"`:
		return Other
	}
	return cmp.Or(map[string]Kind{"S": Text, "B": Bool, "E": Enum, "A": Compound, "G": Compound}[category], Other)
}

// PostgresKinds are the kinds that Misfits accepts on PostgreSQL.
var PostgresKinds = map[string]Kind{"id": UUID | Number | Text, "status": Text | Number | Enum | Bool}

// Index is an index of the table.
type Index struct {
	Name    string
	Columns []string // of expressions: none
	Unique  bool     // for all rows
}

// Indexed adds a column of an index, in order of the indexes' names.
func (r *Relation) Indexed(index string, unique bool, column string) {
	if n := len(r.Indexes); n == 0 || r.Indexes[n-1].Name != index {
		r.Indexes = append(r.Indexes, Index{Name: index, Unique: unique})
	}
	last := &r.Indexes[len(r.Indexes)-1]
	last.Columns = append(last.Columns, column)
}

// Find returns the column of a name, or nil.
func (r *Relation) Find(name string) *Column {
	i := slices.IndexFunc(r.Columns, func(c Column) bool { return c.Name == name })
	if name == "" || i < 0 {
		return nil
	}
	return &r.Columns[i]
}

// Use is a column that a field of the description names, and the role may read.
func (r *Relation) Use(field, name string) (*Column, error) {
	c := r.Find(name)
	switch {
	case c == nil:
		var names []string
		for _, c := range r.Columns {
			names = append(names, c.Name)
		}
		return nil, Field(field, fmt.Sprintf("is the column %q, which %s does not have", name, r.Source), "its columns are %s", strings.Join(names, ", "))
	case c.NoSelect:
		return nil, r.Forbids("select")
	}
	return c, nil
}

// Forbids is the error of a role that lacks a right.
func (r *Relation) Forbids(right string) error {
	what := map[string]string{"delete": "delete from", "insert": "insert into"}[right]
	if what == "" {
		what = right
	}
	return Field("table", fmt.Sprintf("is %s, and this role may not %s it", r.Source, what), "grant it: grant %s on %s to the role that Penstock connects as", right, r.Source)
}

// Misfits are the mapped columns that the table lacks, that may not be used, or whose type does not fit. kinds has, by field, the types that a
// database accepts in addition to the usual ones or instead of them. A column that the table lacks and that only a preset names is removed from
// the description.
func (c *Config) Misfits(of *Relation, kinds map[string]Kind) (errs []error) {
	cols := &c.Columns
	for _, name := range c.optional {
		for _, column := range []*string{&cols.Error, &cols.Tracing} {
			if *column == name && of.Find(name) == nil {
				*column = ""
			}
		}
	}
	for _, f := range []struct {
		field, column, types string
		kinds                Kind
		written              bool
	}{
		{"id", cols.ID, "uuid, bigint, integer or text", 0, false},
		{"key", cols.Key, "", 0, false}, {"topic", cols.Topic, "", 0, false},
		{"payload", cols.Payload, "jsonb, json, text or bytes", Text | Bytes | JSON, false},
		{"headers", cols.Headers, "jsonb or json", JSON, false},
		{"tracing", cols.Tracing, "text", Text, false},
		{"created_at", cols.CreatedAt, "timestamp", Time, false},
		{"processed_at", cols.ProcessedAt, "timestamp", Time, c.Delivered == Mark},
		{"status", cols.Status, "text, integer, boolean or an enum", 0, c.Delivered == SetStatus},
		{"error", cols.Error, "text", Text, true},
		{"attempts", cols.Attempts, "integer", Number, true},
	} {
		if f.column == "" {
			continue
		}
		if takes, more := kinds[f.field]; more {
			f.kinds = takes
		}
		found, err := of.Use("columns."+f.field, f.column)
		switch {
		case err != nil:
		case f.kinds != 0 && found.Kind&f.kinds == 0:
			err = Field("columns."+f.field, fmt.Sprintf("is the column %q of type %s", f.column, found.Type), "map a column of type %s", f.types)
		case f.written && (found.NoUpdate || found.Generated):
			err = of.Forbids("update")
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	for _, name := range c.OrderColumns() {
		if _, err := of.Use("columns.order", name); err != nil && name != cols.ID {
			errs = append(errs, err)
		}
	}
	for _, t := range c.Templates() {
		parsed, _ := ParseTemplate(t.Text) // Validate has parsed it
		for _, name := range parsed.Columns() {
			if _, err := of.Use(t.Field, name); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errs
}

// Parts are the parsed templates of a description that fits.
type Parts struct {
	Topic, Key, MessageID Template
	HeaderNames           []string
	Headers               []Template // columns of the templates
}

// Parts parses the templates. A plain number as id is unique only within its table.
func (c *Config) Parts(of *Relation) (p Parts, err error) {
	if c.MessageID == "" {
		c.MessageID = ColumnTemplate(c.Columns.ID)
		if of.Find(c.Columns.ID).Kind == Number {
			id := c.TableIdentifier()
			c.MessageID = LiteralTemplate(id[len(id)-1]+"-") + c.MessageID
		}
	}
	for _, t := range c.Templates() {
		parsed, err := ParseTemplate(t.Text)
		if err != nil { // Validate has parsed it
			return p, Field(t.Field, err.Error(), "correct it")
		}
		switch {
		case t.Header != "":
			p.HeaderNames, p.Headers = append(p.HeaderNames, t.Header), append(p.Headers, parsed)
		case t.Field == "topic":
			p.Topic = parsed
		case t.Field == "key":
			p.Key = parsed
		default:
			p.MessageID = parsed
		}
	}
	return p, nil
}

// Marks is the column that distinguishes delivered rows, or empty if they are removed.
func (c *Config) Marks() string {
	switch c.Delivered {
	case Mark:
		return c.Columns.ProcessedAt
	case SetStatus:
		return c.Columns.Status
	}
	return ""
}

// Pending is the condition for rows to deliver, in the words of a partial index. It is empty if all rows should be delivered. mark is the
// distinguishing column, as SQL.
func (c *Config) Pending(mark string, literal func(Value) string) string {
	switch c.Delivered {
	case Mark:
		return mark + " is null"
	case SetStatus:
		values := make([]string, len(c.Status.Pending))
		for i, v := range c.Status.Pending {
			values[i] = literal(v)
		}
		if len(values) == 1 {
			return mark + " = " + values[0]
		}
		return mark + " in (" + strings.Join(values, ", ") + ")"
	}
	return ""
}

// Shares is the error for a subscription over a table in which another one removes rows or marks a
// column.
func (c *Config) Shares(source, other, othersMark string) error {
	if othersMark != "" && othersMark == c.Marks() {
		return Field("delivered", fmt.Sprintf("marks the column %q of %s, and so does the subscription %q", othersMark, source, other),
			"give each its own column, or drop the other one: penstock subscription drop %s", shell.Word(other))
	}
	return Field("delivered", fmt.Sprintf("would share %s with the subscription %q, and one of the two takes rows away", source, other),
		"mark rows instead, each subscription in its own column, or drop the other one: penstock subscription drop %s", shell.Word(other))
}

// Moves is the error for a subscription whose table has changed while rows of the old table are recorded.
func Moves(subscription, was, source string) error {
	return Field("table", fmt.Sprintf("is %s, but the subscription %q has rows of %s parked or dead", source, subscription, was), "choose another name for the subscription, or drop it")
}
