package tables

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock/penstock/internal/adopted"
)

// Relation is a table that somebody else made.
type Relation struct {
	Source  string // qualified and quoted, as in SQL
	Columns []Column
	Indexes []Index
}

// Column is one of its columns.
type Column struct {
	Name, Type string
	Kind       Kind
	Collation  string // of a text, in MySQL's dialect
	NotNull    bool
	Limit      int // of characters, 0 without one
}

// Kind is what an adopted table's column is good for.
type Kind uint8

// The kinds.
const (
	Other  Kind = iota
	Number      // an integer
	Time
	Text
	Bytes
	JSON
)

// Index is one of its indexes.
type Index struct {
	Name    string
	Columns []string // of expressions none
	Unique  bool     // for all rows
}

// Dialect is how the columns of an adopted table stand in SQL.
type Dialect interface {
	Quote(name string) string
	Literal(text string) string
	AsText(c *Column, value string) string  // NULL if it is
	AsBytes(c *Column, value string) string // a payload, empty if it is NULL; or nil: empty
	AsTime(c *Column, value string) string  // as the store's own times are; of nil: NULL
	AnyTime() string
	AsMicros(c *Column, value string) string // since 1970, as a text
	Concat(parts []string) string
	Texts(parts []string) string // a JSON array of texts
	Kept(text string) string     // as the store keeps texts
	Target(name string) string   // in a SET
	// FromText makes a column's value of its text, and FromTime of a time of the store's.
	FromText(c *Column, text string) string
	FromTime(c *Column, time string) string
	// AdoptedWords are how rows are read and what is known of them: alone if the id identifies a row, not with its time.
	AdoptedWords(alone bool) map[string]SQL
	// Hint has a table read along an index, where the server has to be told.
	Hint(i Index) string
	// Now is the present time for a column.
	Now(c *Column) string
	// Cut is a text with so many characters at most.
	Cut(c *Column, text string) string
}

// mapped is a description that was compared with its table.
type mapped struct {
	on          Dialect
	config      *adopted.Config
	of          *Relation
	id, order   *Column
	alone       bool // the id alone identifies a row
	identity    Index
	headerNames []string
	templates   map[string]adopted.Template
	inOrder     []adopted.Template // of headers
}

func (t *Adopted) compare(ctx context.Context) (*mapped, error) {
	id := []string(t.config.TableIdentifier())
	of, err := t.on.LookAt(ctx, id)
	if err != nil {
		return nil, err
	}
	if of == nil {
		return nil, adopted.Field("table", fmt.Sprintf("is %q, which this role does not see in this database", t.config.Table), "check the schema and the case of the name, and that the role may use the table")
	}
	c := t.config // what the table lacks and only a preset has named is left out
	m := &mapped{on: t.on, config: &c, of: of, templates: map[string]adopted.Template{}}
	for _, name := range c.Optional() {
		if m.find(name) == nil {
			for _, column := range []*string{&c.Columns.Error, &c.Columns.Tracing} {
				if *column == name {
					*column = ""
				}
			}
		}
	}
	if err := m.columns(); err != nil {
		return nil, err
	}
	if err := m.place(); err != nil {
		return nil, err
	}
	return m, m.compile()
}

// find is the column of a name, nil if there is none.
func (m *mapped) find(name string) *Column {
	i := slices.IndexFunc(m.of.Columns, func(c Column) bool { return c.Name == name })
	if name == "" || i < 0 {
		return nil
	}
	return &m.of.Columns[i]
}

// use is a column that a field of the description names.
func (m *mapped) use(field, name string) (*Column, error) {
	c := m.find(name)
	if c == nil {
		var names []string
		for _, c := range m.of.Columns {
			names = append(names, c.Name)
		}
		return nil, adopted.Field(field, fmt.Sprintf("is the column %q, which %s does not have", name, m.of.Source), "its columns are %s", strings.Join(names, ", "))
	}
	return c, nil
}

func (m *mapped) columns() error {
	cols := &m.config.Columns
	for _, f := range []struct {
		name, column, types string
		kinds               []Kind
	}{
		{"id", cols.ID, "integer, uuid or text", []Kind{Number, Text, Other, Bytes}},
		{"key", cols.Key, "", nil}, {"topic", cols.Topic, "", nil},
		{"payload", cols.Payload, "jsonb, json, text or bytes", []Kind{Text, Bytes, JSON}},
		{"headers", cols.Headers, "json", []Kind{Text, JSON}},
		{"tracing", cols.Tracing, "text", []Kind{Text}},
		{"created_at", cols.CreatedAt, "a time", []Kind{Time}},
		{"processed_at", cols.ProcessedAt, "a time", []Kind{Time}},
		{"status", cols.Status, "text, integer, boolean or an enum", []Kind{Text, Number, Other}},
		{"error", cols.Error, "text", []Kind{Text}},
		{"attempts", cols.Attempts, "integer", []Kind{Number}},
	} {
		if f.column == "" {
			continue
		}
		c, err := m.use("columns."+f.name, f.column)
		if err != nil {
			return err
		}
		if f.kinds != nil && !slices.Contains(f.kinds, c.Kind) {
			return adopted.Field("columns."+f.name, fmt.Sprintf("is the column %q of type %s", f.column, c.Type), "map a column of type %s", f.types)
		}
	}
	m.id = m.find(cols.ID)
	return nil
}

// longestID is how long an id may be that is kept with what is known of its row, in characters.
const longestID = 700

// place finds the order of the rows, what identifies one, and the indexes without which each read would walk over the whole table.
func (m *mapped) place() (err error) {
	names := m.config.OrderColumns()
	if len(names) > 2 || len(names) == 2 && names[1] != m.id.Name {
		return adopted.Field("columns.order", fmt.Sprintf("has the columns %s", strings.Join(names, ", ")), "on this database rows are read by one column, ties by the id: name a time or a number")
	}
	if m.order, err = m.use("columns.order", names[0]); err != nil {
		return err
	}
	if m.order.Kind != Time && m.order.Kind != Number {
		return adopted.Field("columns.order", fmt.Sprintf("is the column %q of type %s", m.order.Name, m.order.Type), "on this database rows are read in order of a time or a number: name the column that has it")
	}
	for _, c := range []*Column{m.id, m.order} {
		if !c.NotNull {
			return adopted.Field("columns.order", fmt.Sprintf("has the column %q, which may be NULL: a row without a place would never be read", c.Name), "make it not null")
		}
	}
	if m.id.Limit > longestID {
		return adopted.Field("columns.id", fmt.Sprintf("is the column %q, of up to %d characters", m.id.Name, m.id.Limit), "map one of at most %d, or make it shorter", longestID)
	}
	both := false
	for _, i := range m.of.Indexes {
		switch {
		case !i.Unique || m.alone || !slices.Contains(i.Columns, m.id.Name):
		case len(i.Columns) == 1:
			m.alone, m.identity = true, i
		case len(i.Columns) == 2 && slices.Contains(i.Columns, m.order.Name):
			both, m.identity = true, i
		}
	}
	if !m.alone && (!both || m.order.Kind == Number) {
		return adopted.Field("columns.id", fmt.Sprintf("is the column %q, and no unique index says that it identifies a row of %s", m.id.Name, m.of.Source), "create a unique index on (%s)", m.on.Quote(m.id.Name))
	}
	if len(m.readable()) == 0 {
		wants := []string{m.on.Quote(m.order.Name)}
		if mark := m.find(cmp.Or(m.config.Columns.ProcessedAt, m.config.Columns.Status)); mark != nil && m.config.Delivered != adopted.Delete {
			wants = slices.Insert(wants, 0, m.on.Quote(mark.Name))
		}
		if m.order != m.id {
			wants = append(wants, m.on.Quote(m.id.Name))
		}
		return adopted.Field("columns.order", fmt.Sprintf("is the column %q, and no index of %s begins with it: each read would walk over the whole table", m.order.Name, m.of.Source),
			"create an index on %s (%s)", m.of.Source, strings.Join(wants, ", "))
	}
	return nil
}

// readable are the indexes along which rows are read in order, those first that leave out what was delivered.
func (m *mapped) readable() (all []Index) {
	mark := m.config.Columns.ProcessedAt
	if m.config.Delivered == adopted.SetStatus {
		mark = m.config.Columns.Status
	}
	for _, behind := range []bool{true, false} {
		for _, i := range m.of.Indexes {
			columns := i.Columns
			if m.config.Delivered != adopted.Delete && len(columns) > 1 && columns[0] == mark {
				if behind && columns[1] == m.order.Name {
					all = append(all, i)
				}
				continue
			}
			if !behind && len(columns) > 0 && columns[0] == m.order.Name {
				all = append(all, i)
			}
		}
	}
	return all
}

// compile parses the templates. A number alone identifies a row of its table only.
func (m *mapped) compile() error {
	c := m.config
	if c.MessageID == "" {
		c.MessageID = adopted.ColumnTemplate(c.Columns.ID)
		if m.id.Kind == Number {
			id := c.TableIdentifier()
			c.MessageID = adopted.LiteralTemplate(id[len(id)-1]+"-") + c.MessageID
		}
	}
	for _, t := range c.Templates() {
		parsed, err := adopted.ParseTemplate(t.Text)
		if err != nil { // Validate has parsed it
			return adopted.Field(t.Field, err.Error(), "correct it")
		}
		for _, name := range parsed.Columns() {
			if _, err := m.use(t.Field, name); err != nil {
				return err
			}
		}
		if t.Header == "" {
			m.templates[t.Field] = parsed
			continue
		}
		m.headerNames, m.inOrder = append(m.headerNames, t.Header), append(m.inOrder, parsed)
	}
	return nil
}

// column is a column of the table itself.
func (m *mapped) column(c *Column) string { return "r." + m.on.Quote(c.Name) }

// text is a column as a text, NULL without one.
func (m *mapped) text(name string) string {
	if c := m.find(name); c != nil {
		return m.on.AsText(c, m.column(c))
	}
	return missing
}

// missing is a text that is NULL.
const missing = "cast(null as char)"

// expanded is the text of a template, NULL if nulls and a column is NULL, which is empty otherwise.
func (m *mapped) expanded(t adopted.Template, nulls bool) string {
	parts := []string{m.on.Literal("")}
	for _, p := range t {
		switch {
		case !p.Column:
			parts = append(parts, m.on.Literal(p.Text))
		case nulls:
			parts = append(parts, m.text(p.Text))
		default:
			parts = append(parts, "coalesce("+m.text(p.Text)+", "+m.on.Literal("")+")")
		}
	}
	return m.on.Concat(parts)
}

// pending is the condition under which a row is to be delivered.
func (m *mapped) pending() string {
	switch c := m.config; c.Delivered {
	case adopted.Mark:
		return m.column(m.find(c.Columns.ProcessedAt)) + " is null"
	case adopted.SetStatus:
		values := make([]string, len(c.Status.Pending))
		for i, v := range c.Status.Pending {
			values[i] = m.status(v)
		}
		if len(values) == 1 {
			return m.column(m.find(c.Columns.Status)) + " = " + values[0]
		}
		return m.column(m.find(c.Columns.Status)) + " in (" + strings.Join(values, ", ") + ")"
	}
	return "1 = 1"
}

// status is a value of the status column, which may be a number that stands for a boolean.
func (m *mapped) status(v adopted.Value) string {
	if m.find(m.config.Columns.Status).Kind == Number {
		v = cmp.Or(map[adopted.Value]adopted.Value{"false": "0", "true": "1"}[v], v)
	}
	return m.on.Literal(string(v))
}

// settles is the statement that settles rows.
func (m *mapped) settles() string {
	if m.config.Delivered == adopted.Delete {
		return "adopt_delete"
	}
	return "adopt_mark"
}

// set is what marks a delivered row.
func (m *mapped) set() string {
	c := m.config
	var set string
	switch c.Delivered {
	case adopted.Mark:
		at := m.find(c.Columns.ProcessedAt)
		set = m.on.Target(at.Name) + " = " + m.on.Now(at)
	case adopted.SetStatus:
		set = m.on.Target(c.Columns.Status) + " = " + m.status(c.Status.Delivered)
	}
	return set
}

// failed is what a failure sets, empty if nothing of it is mapped.
func (m *mapped) failed() string {
	var set []string
	if e := m.find(m.config.Columns.Error); e != nil {
		text := "d.error"
		if e.Limit > 0 {
			text = m.on.Cut(e, text)
		}
		set = append(set, m.on.Target(e.Name)+" = "+text)
	}
	if a := m.find(m.config.Columns.Attempts); a != nil {
		set = append(set, m.on.Target(a.Name)+" = d.attempts")
	}
	return strings.Join(set, ", ")
}

// words stand in the statements about an outbox's messages.
func (m *mapped) words() map[string]SQL {
	c := m.config
	words := m.on.AdoptedWords(m.alone)
	for _, of := range []string{"p", "e", "d"} {
		words["same_"+of] = SQL("t.tie = " + m.on.FromText(m.id, of+".row_id"))
		if !m.alone {
			words["same_"+of] += SQL(" and t.ord = " + m.on.FromTime(m.order, of+".ts"))
		}
	}
	for word, of := range map[string]string{"row": "r.", "source_row": m.of.Source + "."} { // the table, or where none may be given another name
		words[word] = SQL(of + m.on.Quote(m.id.Name) + " = " + m.on.FromText(m.id, "d.row_id"))
		if !m.alone {
			words[word] += SQL(" and " + of + m.on.Quote(m.order.Name) + " = " + m.on.FromTime(m.order, "d.ts"))
		}
	}
	created := m.find(cmp.Or(c.Columns.CreatedAt, m.order.Name))
	written, micros := m.on.AsTime(nil, ""), missing
	if created.Kind == Time {
		written = m.on.AsTime(created, m.column(created))
	}
	if created != m.order {
		micros = m.on.AsMicros(created, m.column(created))
	}
	place := missing // of a number it is read from its text
	at := m.on.AnyTime()
	if m.order.Kind == Number {
		place = m.on.AsText(m.order, m.column(m.order))
	} else {
		at = m.on.AsTime(m.order, m.column(m.order))
	}
	texts := []string{m.on.AsText(m.id, m.column(m.id)), place, micros, m.text(c.Columns.Headers), m.text(c.Columns.Tracing)}
	for _, t := range m.inOrder {
		texts = append(texts, m.expanded(t, true))
	}
	payload := m.on.AsBytes(nil, "")
	if p := m.find(c.Columns.Payload); p != nil {
		payload = m.on.AsBytes(p, m.column(p))
	}
	words["source"] = SQL(m.of.Source)
	kept := func(of string) string { return m.on.Kept(m.expanded(m.templates[of], false)) }
	table := func(hint string) SQL {
		return SQL(fmt.Sprintf(`(select 0 as bucket, %s as ts, 0 as seq, %s as id, %s as %s, %s as topic, %s as headers, %s as payload,
			%s as ord, %s as tie, %s as row_id, %s as written from %s r%s where %s)`,
			at, kept("message_id"), kept("key"), m.on.Quote("key"), kept("topic"), m.on.Texts(texts), payload,
			m.column(m.order), m.column(m.id), m.on.Kept(m.on.AsText(m.id, m.column(m.id))), written, m.of.Source, hint, m.pending()))
	}
	words["table"], words["by_place"], words["by_id"] = table(""), table(m.on.Hint(m.readable()[0]))+" t", table(m.on.Hint(m.identity))+" t"
	words["hint"] = SQL(m.on.Hint(m.identity))
	words["set"], words["failed"] = SQL(m.set()), SQL(m.failed())
	words["forgiven"] = words["set"]
	if e := m.find(c.Columns.Error); e != nil && !e.NotNull {
		words["forgiven"] += SQL(", " + m.on.Target(e.Name) + " = null")
	}
	return words
}
