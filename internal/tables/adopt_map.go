package tables

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock/penstock/internal/adopted"
)

type (
	// Relation is a table that Penstock did not create, Column one of its columns, Index one of its
	// indexes.
	Relation = adopted.Relation
	Column   = adopted.Column
	Index    = adopted.Index
)

// AdoptDialect is how the columns of an adopted table stand in SQL.
type AdoptDialect interface {
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
	// AdoptedWords are how rows and the facts about them are read: alone if the id identifies a row, not with its time.
	AdoptedWords(alone bool) map[string]SQL
	// Hint has a table read along an index, where the server needs the hint.
	Hint(i Index) string
	// Now is the present time for a column.
	Now(c *Column) string
	// Cut is a text with no more characters than the column holds.
	Cut(c *Column, text string) string
}

// mapped is a description that was compared with its table.
type mapped struct {
	on        AdoptDialect
	config    *adopted.Config
	of        *Relation
	id, order *Column
	alone     bool // the id alone identifies a row
	identity  Index
	parts     adopted.Parts
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
	c := t.config
	if misfits := c.Misfits(of, map[string]adopted.Kind{"id": ^(adopted.Time | adopted.JSON), "headers": adopted.Text | adopted.JSON, "status": ^(adopted.Time | adopted.Bytes | adopted.JSON)}); len(misfits) > 0 {
		return nil, misfits[0]
	}
	m := &mapped{on: t.on, config: &c, of: of, id: of.Find(c.Columns.ID)}
	if err := m.place(); err != nil {
		return nil, err
	}
	m.parts, err = c.Parts(of)
	return m, err
}

// longestID is how long an id may be that is kept with the facts about its row, in characters.
const longestID = 700

// place finds the order of the rows, the columns that identify one, and the indexes without which each read would walk over the whole table.
func (m *mapped) place() error {
	names := m.config.OrderColumns()
	if len(names) > 2 || len(names) == 2 && names[1] != m.id.Name {
		return adopted.Field("columns.order", fmt.Sprintf("has the columns %s", strings.Join(names, ", ")), "on this database rows are read by one column, ties by the id: name a time or a number")
	}
	if m.order = m.of.Find(names[0]); m.order.Kind != adopted.Time && m.order.Kind != adopted.Number {
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
	if !m.alone && (!both || m.order.Kind == adopted.Number) {
		return adopted.Field("columns.id", fmt.Sprintf("is the column %q, and no unique index says that it identifies a row of %s", m.id.Name, m.of.Source), "create a unique index on (%s)", m.on.Quote(m.id.Name))
	}
	if len(m.readable()) == 0 {
		wants := []string{m.on.Quote(m.order.Name)}
		if mark := m.of.Find(m.config.Marks()); mark != nil {
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

// readable are the indexes along which rows are read in order, those first that leave out delivered rows.
func (m *mapped) readable() (all []Index) {
	mark := m.config.Marks()
	for _, behind := range []bool{true, false} {
		for _, i := range m.of.Indexes {
			columns := i.Columns
			if mark != "" && len(columns) > 1 && columns[0] == mark {
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

// column is a column of the table itself.
func (m *mapped) column(c *Column) string { return "r." + m.on.Quote(c.Name) }

// text is a column as a text, NULL without one.
func (m *mapped) text(name string) string {
	if c := m.of.Find(name); c != nil {
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

// pending is the condition under which a row must be delivered.
func (m *mapped) pending() string {
	mark := ""
	if c := m.of.Find(m.config.Marks()); c != nil {
		mark = m.column(c)
	}
	return cmp.Or(m.config.Pending(mark, m.status), "1 = 1")
}

// status is a value of the status column, which may be a number that stands for a boolean.
func (m *mapped) status(v adopted.Value) string {
	if m.of.Find(m.config.Columns.Status).Kind == adopted.Number {
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

// set has the assignments that mark a delivered row.
func (m *mapped) set() string {
	c := m.config
	var set string
	switch c.Delivered {
	case adopted.Mark:
		at := m.of.Find(c.Columns.ProcessedAt)
		set = m.on.Target(at.Name) + " = " + m.on.Now(at)
	case adopted.SetStatus:
		set = m.on.Target(c.Columns.Status) + " = " + m.status(c.Status.Delivered)
	}
	return set
}

// failed has the assignments of a failure, empty if nothing of it is mapped.
func (m *mapped) failed() string {
	var set []string
	if e := m.of.Find(m.config.Columns.Error); e != nil {
		text := "d.error"
		if e.Limit > 0 {
			text = m.on.Cut(e, text)
		}
		set = append(set, m.on.Target(e.Name)+" = "+text)
	}
	if a := m.of.Find(m.config.Columns.Attempts); a != nil {
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
	created := m.of.Find(cmp.Or(c.Columns.CreatedAt, m.order.Name))
	written, micros := m.on.AsTime(nil, ""), missing
	if created.Kind == adopted.Time {
		written = m.on.AsTime(created, m.column(created))
	}
	if created != m.order {
		micros = m.on.AsMicros(created, m.column(created))
	}
	place := missing // of a number it is read from its text
	at := m.on.AnyTime()
	if m.order.Kind == adopted.Number {
		place = m.on.AsText(m.order, m.column(m.order))
	} else {
		at = m.on.AsTime(m.order, m.column(m.order))
	}
	texts := []string{m.on.AsText(m.id, m.column(m.id)), place, micros, m.text(c.Columns.Headers), m.text(c.Columns.Tracing)}
	for _, t := range m.parts.Headers {
		texts = append(texts, m.expanded(t, true))
	}
	payload := m.on.AsBytes(nil, "")
	if p := m.of.Find(c.Columns.Payload); p != nil {
		payload = m.on.AsBytes(p, m.column(p))
	}
	words["source"] = SQL(m.of.Source)
	kept := func(t adopted.Template) string { return m.on.Kept(m.expanded(t, false)) }
	table := func(hint string) SQL {
		return SQL(fmt.Sprintf(`(select 0 as bucket, %s as ts, 0 as seq, %s as id, %s as %s, %s as topic, %s as headers, %s as payload,
			%s as ord, %s as tie, %s as row_id, %s as written from %s r%s where %s)`,
			at, kept(m.parts.MessageID), kept(m.parts.Key), m.on.Quote("key"), kept(m.parts.Topic), m.on.Texts(texts), payload,
			m.column(m.order), m.column(m.id), m.on.Kept(m.on.AsText(m.id, m.column(m.id))), written, m.of.Source, hint, m.pending()))
	}
	words["table"], words["by_place"], words["by_id"] = table(""), table(m.on.Hint(m.readable()[0]))+" t", table(m.on.Hint(m.identity))+" t"
	words["hint"] = SQL(m.on.Hint(m.identity))
	words["set"], words["failed"] = SQL(m.set()), SQL(m.failed())
	words["forgiven"] = words["set"]
	if e := m.of.Find(c.Columns.Error); e != nil && !e.NotNull {
		words["forgiven"] += SQL(", " + m.on.Target(e.Name) + " = null")
	}
	return words
}
