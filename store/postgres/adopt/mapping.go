package adopt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/adopted"
	"github.com/penstock/penstock/internal/pg"
)

// column is one of the user's table.
type column struct {
	name      string
	typ       string // as SQL writes it; of a domain, what is under it
	category  string // pg_type.typcategory
	notNull   bool
	limit     int // of a varchar, 0: none
	generated bool
	read      bool // privileges
	write     bool
}

func (c *column) quoted() string { return pgx.Identifier{c.name}.Sanitize() }

func (c *column) isText() bool { return c.category == "S" && c.typ != `"char"` }

func (c *column) isInt() bool {
	return slices.Contains([]string{"smallint", "integer", "bigint"}, c.typ)
}

func (c *column) isTime() bool { return strings.HasPrefix(c.typ, "timestamp ") }

// mapping is a Config that was compared with the database.
type mapping struct {
	config  Config
	source  string // the table, qualified and quoted
	archive string
	oid     uint32
	columns []column
	key     []*column // what identifies a row: unique
	order   []*column // the total order
	random  bool      // ids come in no order, and nothing else gives one
	rls     bool

	payload, headers, tracing, createdAt *column
	topic, keys, messageID               adopted.Template
	headerNames                          []string
	headerTemplates                      []adopted.Template
	wanted                               []*column // that templates need

	whole, placing *layout // a row, and only its id and place
}

// relation finds a table.
type relation struct {
	oid            uint32
	source, kind   string
	delete, insert bool
	rls            bool
}

func findRelation(ctx context.Context, q querier, of string, id pgx.Identifier) (r relation, err error) {
	err = q.QueryRow(ctx, pg.Statement(sqlFiles, "relation"), id.Sanitize()).Scan(&r.oid, &r.source, &r.kind, &r.delete, &r.insert, &r.rls)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return r, adopted.Field(of, fmt.Sprintf("is %s, which this role does not see in this database", id.Sanitize()), "check the schema and the case of the name, and that the role may use the schema")
	case err != nil:
		return r, explain(err)
	case r.kind != "r" && r.kind != "p":
		return r, adopted.Field(of, fmt.Sprintf("is %s, which is no table", r.source), "name the table itself: a view's rows cannot be settled")
	}
	return r, nil
}

func readColumns(ctx context.Context, q querier, oid uint32) ([]column, error) {
	rows, err := q.Query(ctx, pg.Statement(sqlFiles, "columns"), oid)
	if err != nil {
		return nil, explain(err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c column, err error) {
		err = row.Scan(&c.name, &c.typ, &c.category, &c.notNull, &c.limit, &c.generated, &c.read, &c.write)
		switch c.typ { // these words alone mean a length of 1
		case "character":
			c.typ = "bpchar"
		case "bit":
			c.typ = `"bit"`
		}
		return c, err
	})
	return all, explain(err)
}

// newMapping compares the config with the table. Errors are *penstock.FieldError where
// the config does not fit.
func newMapping(ctx context.Context, q querier, c *Config) (*mapping, error) {
	rel, err := findRelation(ctx, q, "table", c.TableIdentifier())
	if err != nil {
		return nil, err
	}
	m := &mapping{source: rel.source, oid: rel.oid, rls: rel.rls}
	if m.columns, err = readColumns(ctx, q, rel.oid); err != nil {
		return nil, err
	}
	m.dropOptional(c)
	if err := m.checkColumns(c); err != nil {
		return nil, err
	}
	if err := m.checkStatus(ctx, q, c); err != nil {
		return nil, err
	}
	if (c.Delivered == Delete || c.Delivered == Archive) && !rel.delete {
		return nil, forbidden("delete from", rel.source)
	}
	if err := m.findKey(ctx, q, c); err != nil {
		return nil, err
	}
	if c.Delivered == Archive {
		if err := m.checkArchive(ctx, q, c); err != nil {
			return nil, err
		}
	}
	if err := m.compile(c); err != nil {
		return nil, err
	}
	m.whole, m.placing = m.wide(), m.narrow()
	return m, nil
}

func forbidden(what, where string) error {
	return adopted.Field("table", fmt.Sprintf("is %s, and this role may not %s it", where, what), "grant it: grant %s on %s to the role that Penstock connects as", strings.Fields(what)[0], where)
}

// dropOptional forgets columns that only the preset has named and the table lacks.
func (m *mapping) dropOptional(c *Config) {
	for _, name := range c.Optional() {
		if m.find(name) != nil {
			continue
		}
		for _, f := range []*string{&c.Columns.Tracing, &c.Columns.Error} {
			if *f == name {
				*f = ""
			}
		}
	}
}

func (m *mapping) find(name string) *column {
	for i := range m.columns {
		if m.columns[i].name == name {
			return &m.columns[i]
		}
	}
	return nil
}

func (m *mapping) missing(of, name string) error {
	var names []string
	for i := range m.columns {
		names = append(names, m.columns[i].name)
	}
	return adopted.Field(of, fmt.Sprintf("is the column %q, which %s does not have", name, m.source), "its columns are %s", strings.Join(names, ", "))
}

// use finds a mapped column that may be read, of a type that fits.
func (m *mapping) use(of, name string, fits func(*column) bool, types string) (*column, error) {
	if name == "" {
		return nil, nil
	}
	c := m.find(name)
	switch {
	case c == nil:
		return nil, m.missing(of, name)
	case !fits(c):
		return nil, adopted.Field(of, fmt.Sprintf("is the column %q of type %s", name, c.typ), "map a column of type %s", types)
	case !c.read:
		return nil, forbidden("select", m.source)
	}
	return c, nil
}

func anyType(*column) bool { return true }

// checkColumns looks at every mapped column.
func (m *mapping) checkColumns(c *Config) (err error) {
	isJSON := func(c *column) bool { return c.typ == "jsonb" || c.typ == "json" }
	cols := &c.Columns
	for _, f := range []struct {
		name, column string
		into         **column
		fits         func(*column) bool
		types        string
		written      bool
	}{
		{"id", cols.ID, nil, func(c *column) bool { return c.typ == "uuid" || c.isInt() || c.isText() }, "uuid, bigint, integer or text", false},
		{"key", cols.Key, nil, anyType, "", false},
		{"topic", cols.Topic, nil, anyType, "", false},
		{"payload", cols.Payload, &m.payload, func(c *column) bool { return isJSON(c) || c.isText() || c.typ == "bytea" }, "jsonb, json, text or bytea", false},
		{"headers", cols.Headers, &m.headers, isJSON, "jsonb or json", false},
		{"tracing", cols.Tracing, &m.tracing, (*column).isText, "text", false},
		{"created_at", cols.CreatedAt, &m.createdAt, (*column).isTime, "timestamp with time zone", false},
		{"processed_at", cols.ProcessedAt, nil, (*column).isTime, "timestamp with time zone", c.Delivered == Mark},
		{"status", cols.Status, nil, func(c *column) bool { return c.isText() || c.isInt() || c.category == "E" || c.category == "B" }, "text, integer, boolean or an enum", c.Delivered == SetStatus},
		{"error", cols.Error, nil, (*column).isText, "text", true},
		{"attempts", cols.Attempts, nil, (*column).isInt, "integer", true},
	} {
		found, err := m.use("columns."+f.name, f.column, f.fits, f.types)
		if err != nil {
			return err
		}
		if found != nil && f.written && (!found.write || found.generated) {
			return forbidden("update", m.source)
		}
		if f.into != nil {
			*f.into = found
		}
	}
	for _, name := range c.OrderColumns() {
		found, err := m.use("columns.order", name, func(c *column) bool { return !isJSON(c) && c.category != "A" && c.category != "G" && c.typ != "xml" }, "a time or a number")
		if err != nil {
			return err
		}
		m.order = append(m.order, found)
		if m.createdAt == nil && found.isTime() {
			m.createdAt = found
		}
	}
	if !m.find(cols.ID).notNull {
		return adopted.Field("columns.id", fmt.Sprintf("is the column %q, which may be NULL", cols.ID), "alter table %s alter column %s set not null", m.source, m.find(cols.ID).quoted())
	}
	return nil
}

// findKey chooses the unique index that identifies a row.
func (m *mapping) findKey(ctx context.Context, q querier, c *Config) error {
	rows, err := q.Query(ctx, pg.Statement(sqlFiles, "unique"), m.oid)
	if err != nil {
		return explain(err)
	}
	indexes, err := pgx.CollectRows(rows, pgx.RowTo[[]string])
	if err != nil {
		return explain(err)
	}
	var best []string
	for _, names := range indexes {
		usable := slices.Contains(names, c.Columns.ID)
		for _, name := range names {
			usable = usable && slices.Contains(c.OrderColumns(), name) && m.find(name).notNull
		}
		if usable && (best == nil || len(names) < len(best)) {
			best = names
		}
	}
	if best == nil {
		id := m.find(c.Columns.ID).quoted()
		return adopted.Field("columns.id", fmt.Sprintf("is the column %q, and no unique index says that it identifies a row of %s", c.Columns.ID, m.source),
			"create unique index concurrently on %s (%s)", m.source, id)
	}
	for _, name := range best {
		m.key = append(m.key, m.find(name))
	}
	return nil
}

// checkArchive makes sure that the archive takes the rows.
func (m *mapping) checkArchive(ctx context.Context, q querier, c *Config) error {
	rel, err := findRelation(ctx, q, "archive", c.ArchiveIdentifier())
	if err != nil {
		return err
	}
	if rel.oid == m.oid {
		return adopted.Field("archive", "is the table itself", "name another table")
	}
	if !rel.insert {
		return forbidden("insert into", rel.source)
	}
	m.archive = rel.source
	columns, err := readColumns(ctx, q, rel.oid)
	if err != nil {
		return err
	}
	for i := range m.columns {
		own := &m.columns[i]
		if own.generated {
			continue
		}
		at := slices.IndexFunc(columns, func(c column) bool { return c.name == own.name })
		if at < 0 {
			return adopted.Field("archive", fmt.Sprintf("is %s, which has no column %q", rel.source, own.name), "alter table %s add column %s %s", rel.source, own.quoted(), own.typ)
		}
		if columns[at].typ != own.typ {
			return adopted.Field("archive", fmt.Sprintf("is %s, where the column %q is %s and not %s", rel.source, own.name, columns[at].typ, own.typ), "give it the type it has in %s", m.source)
		}
	}
	return nil
}

// compile parses the templates. A number alone identifies a row of its table only.
func (m *mapping) compile(c *Config) error {
	if c.MessageID == "" {
		c.MessageID = adopted.ColumnTemplate(c.Columns.ID)
		if m.find(c.Columns.ID).isInt() {
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
			found, err := m.use(t.Field, name, anyType, "")
			if err != nil {
				return err
			}
			if !slices.Contains(m.wanted, found) {
				m.wanted = append(m.wanted, found)
			}
		}
		parsed.Bind(func(name string) int {
			return slices.IndexFunc(m.wanted, func(c *column) bool { return c.name == name })
		})
		switch t.Field {
		case "topic":
			m.topic = parsed
		case "key":
			m.keys = parsed
		case "message_id":
			m.messageID = parsed
		default:
			m.headerNames = append(m.headerNames, t.Header)
			m.headerTemplates = append(m.headerTemplates, parsed)
		}
	}
	return nil
}

// sampleIDs decides whether the ids come in an order at all, where nothing else gives
// one: a uuid of version 7 begins with the time, one of version 4 with nothing.
func (m *mapping) sampleIDs(ctx context.Context, q querier, c *Config) error {
	id := m.find(c.Columns.ID)
	if m.random = false; !c.OrderByID() || id.isInt() {
		return nil
	}
	m.random = true
	if id.typ != "uuid" {
		return nil
	}
	var timed, all int
	err := q.QueryRow(ctx, fmt.Sprintf("select count(*) filter (where substr(i, 15, 1) = '7'), count(*) from (select %s::text as i from %s limit 100) s", id.quoted(), m.source)).Scan(&timed, &all)
	m.random = all == 0 || timed < all
	return explain(err)
}
