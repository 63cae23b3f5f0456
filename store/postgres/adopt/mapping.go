package adopt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock/internal/adopted"
	"github.com/penstock/penstock/internal/pg"
)

// column is one of the user's table.
type column = adopted.Column

func quoted(c *column) string { return pgx.Identifier{c.Name}.Sanitize() }

// mapping is a Config that was compared with the database.
type mapping struct {
	config Config
	relation
	archive  string
	key      []*column // the columns that identify a row: unique
	order    []*column // the total order
	nullable []*column // of these, those that may be NULL
	moved    []*column // to the archive
	random   bool      // ids come in no order, and nothing else gives one

	payload, headers, tracing, createdAt *column
	parts                                adopted.Parts
	wanted                               []*column // that they need

	whole, placing *layout // a row, and only its id and place
}

// relation is what the server says of a table, and what this role may do there.
type relation struct {
	adopted.Relation
	oid            uint32
	kind           string
	delete, insert bool
	rls            bool
}

func findRelation(ctx context.Context, q querier, of string, id pgx.Identifier) (r relation, err error) {
	err = q.QueryRow(ctx, pg.Statement(sqlFiles, "relation"), id.Sanitize()).Scan(&r.oid, &r.Source, &r.kind, &r.delete, &r.insert, &r.rls)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return r, adopted.Field(of, fmt.Sprintf("is %s, which this role does not see in this database", id.Sanitize()), "check the schema and the case of the name, and that the role may use the schema")
	case err != nil:
		return r, err
	case r.kind != "r" && r.kind != "p":
		return r, adopted.Field(of, fmt.Sprintf("is %s, which is not a table", r.Source), "name the table itself: a view's rows cannot be settled")
	}
	rows, _ := q.Query(ctx, pg.Statement(sqlFiles, "columns"), r.oid)
	r.Columns, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (c column, err error) {
		var category string
		err = row.Scan(&c.Name, &c.Type, &category, &c.NotNull, &c.Limit, &c.Generated, &c.NoSelect, &c.NoUpdate)
		c.Kind = adopted.PostgresKind(c.Type, category)
		switch c.Type { // these words alone mean a length of 1
		case "character":
			c.Type = "bpchar"
		case "bit":
			c.Type = `"bit"`
		}
		return c, err
	})
	return r, err
}

// newMapping compares the config with the table. Errors are *penstock.FieldError where
// the config does not fit.
func newMapping(ctx context.Context, q querier, c Config) (*mapping, error) {
	rel, err := findRelation(ctx, q, "table", c.TableIdentifier())
	if err != nil {
		return nil, err
	}
	m := &mapping{config: c, relation: rel}
	if misfits := m.config.Misfits(&m.Relation, adopted.PostgresKinds); len(misfits) > 0 {
		return nil, misfits[0]
	}
	for _, check := range []func(context.Context, querier) error{m.choose, m.checkStatus, m.findKey, m.checkArchive, m.sampleIDs} {
		if err := check(ctx, q); err != nil {
			return nil, err
		}
	}
	if m.parts, err = m.config.Parts(&m.Relation); err != nil {
		return nil, err
	}
	m.bind()
	m.whole, m.placing = m.wide(), m.narrow()
	return m, nil
}

// choose finds the columns of the order, and those of the message.
func (m *mapping) choose(context.Context, querier) error {
	c, cols := &m.config, &m.config.Columns
	m.payload, m.headers, m.tracing, m.createdAt = m.Find(cols.Payload), m.Find(cols.Headers), m.Find(cols.Tracing), m.Find(cols.CreatedAt)
	for _, name := range c.OrderColumns() {
		found := m.Find(name)
		if found.Kind&(adopted.JSON|adopted.Compound) != 0 {
			return adopted.Field("columns.order", fmt.Sprintf("is the column %q of type %s", name, found.Type), "map a time or a number")
		}
		if m.order = append(m.order, found); !found.NotNull {
			m.nullable = append(m.nullable, found)
		}
		if m.createdAt == nil && found.Kind == adopted.Time {
			m.createdAt = found
		}
	}
	if id := m.Find(cols.ID); !id.NotNull {
		return adopted.Field("columns.id", fmt.Sprintf("is the column %q, which may be NULL", cols.ID), "alter table %s alter column %s set not null", m.Source, quoted(id))
	}
	if (c.Delivered == Delete || c.Delivered == Archive) && !m.delete {
		return m.Forbids("delete")
	}
	return nil
}

// findKey chooses the unique index that identifies a row.
func (m *mapping) findKey(ctx context.Context, q querier) error {
	c := &m.config
	rows, _ := q.Query(ctx, pg.Statement(sqlFiles, "unique"), m.oid)
	indexes, err := pgx.CollectRows(rows, pgx.RowTo[[]string])
	if err != nil {
		return err
	}
	var best []string
	for _, names := range indexes {
		usable := slices.Contains(names, c.Columns.ID)
		for _, name := range names {
			usable = usable && slices.Contains(c.OrderColumns(), name) && m.Find(name).NotNull
		}
		if usable && (best == nil || len(names) < len(best)) {
			best = names
		}
	}
	if best == nil {
		id := quoted(m.Find(c.Columns.ID))
		return adopted.Field("columns.id", fmt.Sprintf("is the column %q, and no unique index says that it identifies a row of %s", c.Columns.ID, m.Source),
			"create unique index concurrently on %s (%s)", m.Source, id)
	}
	for _, name := range best {
		m.key = append(m.key, m.Find(name))
	}
	return nil
}

// checkArchive makes sure that the archive takes the rows.
func (m *mapping) checkArchive(ctx context.Context, q querier) error {
	c := &m.config
	if c.Delivered != Archive {
		return nil
	}
	rel, err := findRelation(ctx, q, "archive", c.ArchiveIdentifier())
	if err != nil {
		return err
	}
	if rel.oid == m.oid {
		return adopted.Field("archive", "is the table itself", "name another table")
	}
	if !rel.insert {
		return rel.Forbids("insert")
	}
	m.archive = rel.Source
	for i := range m.Columns {
		own := &m.Columns[i]
		if own.Generated {
			continue
		}
		m.moved = append(m.moved, own)
		switch there := rel.Find(own.Name); {
		case there == nil:
			return adopted.Field("archive", fmt.Sprintf("is %s, which has no column %q", rel.Source, own.Name), "alter table %s add column %s %s", rel.Source, quoted(own), own.Type)
		case there.Type != own.Type:
			return adopted.Field("archive", fmt.Sprintf("is %s, where the column %q is %s and not %s", rel.Source, own.Name, there.Type, own.Type), "give it the type it has in %s", m.Source)
		}
	}
	return nil
}

// bind has the templates know where the columns are that they need.
func (m *mapping) bind() {
	at := func(name string) int {
		c := m.Find(name)
		if !slices.Contains(m.wanted, c) {
			m.wanted = append(m.wanted, c)
		}
		return slices.Index(m.wanted, c)
	}
	for _, t := range append([]adopted.Template{m.parts.Topic, m.parts.Key, m.parts.MessageID}, m.parts.Headers...) {
		t.Bind(at)
	}
}

// sampleIDs decides whether the ids come in an order at all, if nothing else gives one. A uuid of
// version 7 begins with the time, and one of version 4 is random.
func (m *mapping) sampleIDs(ctx context.Context, q querier) error {
	id := m.Find(m.config.Columns.ID)
	if !m.config.OrderByID() || id.Kind == adopted.Number {
		return nil
	}
	m.random = true
	if id.Type != "uuid" {
		return nil
	}
	var timed, all int
	err := q.QueryRow(ctx, fmt.Sprintf("select count(*) filter (where substr(i, 15, 1) = '7'), count(*) from (select %s::text as i from %s limit 100) s", quoted(id), m.Source)).Scan(&timed, &all)
	m.random = all == 0 || timed < all
	return err
}

// checkStatus makes sure that the values are of the status column's type, and that a
// delivered row is not a pending one.
func (m *mapping) checkStatus(ctx context.Context, q querier) error {
	c := &m.config
	if c.Delivered != SetStatus {
		return nil
	}
	status := m.Find(c.Columns.Status)
	typed := func(v Value) string { return pg.Literal(string(v)) + "::" + status.Type }
	for i, v := range append([]Value{c.Status.Delivered}, c.Status.Pending...) {
		of := "status.delivered"
		if i > 0 {
			of = fmt.Sprintf("status.pending[%d]", i-1)
		}
		// Texts may differ where values do not: 0 and 00, f and false.
		var same bool
		err := q.QueryRow(ctx, "select "+typed(v)+" = "+typed(c.Status.Delivered)).Scan(&same)
		var wrong *pgconn.PgError
		switch {
		case errors.As(err, &wrong) && strings.HasPrefix(wrong.Code, "22"):
			return m.wrongStatus(ctx, q, of, v, status)
		case err != nil:
			return err
		case status.Limit > 0 && utf8.RuneCountInString(string(v)) > status.Limit:
			return adopted.Field(of, fmt.Sprintf("is %q, and the column %q takes %d characters", v, status.Name, status.Limit), "use a shorter value")
		case same && i > 0:
			return adopted.Field("status.delivered", fmt.Sprintf("is %q, as pending rows have it", c.Status.Delivered), "choose a value that is not in status.pending")
		}
	}
	return nil
}

// wrongStatus shows which values there are.
func (m *mapping) wrongStatus(ctx context.Context, q querier, of string, v Value, status *column) error {
	hint := "write a whole number"
	switch status.Kind {
	case adopted.Bool:
		hint = "write true or false: status.pending has the value of rows before they are delivered, status.delivered the value after that"
	case adopted.Enum:
		var labels []string
		if err := q.QueryRow(ctx, "select enum_range(null::"+status.Type+")::text[]").Scan(&labels); err != nil {
			return err
		}
		hint = "write one of " + strings.Join(labels, ", ")
	}
	return adopted.Field(of, fmt.Sprintf("is %q, which the column %q of type %s cannot be", v, status.Name, status.Type), "%s", hint)
}
