package adopt

import (
	"cmp"
	"context"
	"embed"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock/internal/pg"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

// statements are those of one mapping, with everything quoted.
type statements struct {
	read, claim     onward // the next rows
	list            onward // the same rows, without their content
	narrow          onward // the rows up to a place
	unplaced        string // empty if every row has a place
	scan            string
	load            lockable
	find            lockable // as load, without the content
	fields          []string // as load, of each field of the whole layout alone
	settle, discard string
	failed          string // empty if nothing of failures is mapped
	backlog         string
}

// onward is a statement that begins with the first row, and the same that begins behind a place.
type onward [2]string

// lockable is a statement about rows that are known by their ids, and the same that locks them, for claims.
type lockable [2]string

// behind is the one of the two that selects n rows behind the place, and its first parameters.
func (o onward) behind(p place, n int) (sql string, args []any) {
	if p == nil {
		return o[0], []any{inBinary, n}
	}
	return o[1], append([]any{inBinary, n}, p.args()...)
}

// list joins the results of f for each column.
func list(columns []*column, separator string, f func(i int, c *column) string) string {
	parts := make([]string, len(columns))
	for i, c := range columns {
		parts[i] = f(i, c)
	}
	return strings.Join(parts, separator)
}

func own(c *column) string { return "t." + quoted(c) }

func asText(c *column) string { return own(c) + "::text" }

// pending is the condition under which a row must be delivered, in the words in which a partial
// index has it.
func (m *mapping) pending() string {
	c := &m.config
	mark := ""
	if at := m.Find(c.Marks()); at != nil {
		mark = own(at)
	}
	return cmp.Or(c.Pending(mark, func(v Value) string { return pg.Literal(string(v)) }), "true")
}

// delivered are the assignments that mark a row; clear also takes back its error.
func (m *mapping) delivered(clear bool) string {
	c := &m.config
	var set string
	switch c.Delivered {
	case Mark:
		at := m.Find(c.Columns.ProcessedAt)
		set = quoted(at) + " = statement_timestamp()"
		if at.Type == "timestamp without time zone" {
			set += " at time zone 'UTC'"
		}
	case SetStatus:
		set = quoted(m.Find(c.Columns.Status)) + " = " + pg.Literal(string(c.Status.Delivered))
	}
	if e := m.Find(c.Columns.Error); clear && e != nil && !e.NotNull {
		set += ", " + quoted(e) + " = null"
	}
	return set
}

// placed leaves out the rows that have no place: no statement could continue behind one of them.
func (m *mapping) placed() string {
	return list(m.nullable, "", func(_ int, c *column) string { return " and " + own(c) + " is not null" })
}

// place compares a row with a place in the order that parameters from n on give.
func (m *mapping) place(operator string, n int) string {
	return " and (" + list(m.order, ", ", func(_ int, c *column) string { return own(c) }) + ") " + operator +
		" (" + list(m.order, ", ", func(i int, c *column) string { return param(c, n+i) }) + ")"
}

func param(c *column, n int) string { return "$" + strconv.Itoa(n) + "::" + c.Type }

// rowID is the key as one text: as _adopt_row.row_id is.
func (m *mapping) rowID() string {
	if len(m.key) == 1 {
		return asText(m.key[0])
	}
	return "json_build_array(" + list(m.key, ", ", func(_ int, c *column) string { return asText(c) }) + ")::text"
}

func newStatements(m *mapping, schema string) statements {
	order := list(m.order, ", ", func(_ int, c *column) string { return own(c) })
	scanOrder := order
	if m.random { // of all facts in the system columns, this is nearest to the order of commits
		scanOrder = "age(t.xmin) desc, t.cmin::text::bigint, t.ctid"
	}
	nulls := func(l *layout) string { return strings.Repeat(", null", len(l.fields)) } // which have the types of the columns that they stand above
	n := len(m.key)
	args := []string{
		"{table}", m.Source, "{archive}", m.archive, "{schema}", pgx.Identifier{schema}.Sanitize(),
		"{pending}", m.pending(), "{order}", order, "{scanorder}", scanOrder, "{rowid}", m.rowID(),
		"{wide}", m.whole.sql(), "{nulls}", nulls(m.whole), "{narrow}", m.placing.sql(),
		"{isnull}", list(m.nullable, " or ", func(_ int, c *column) string { return own(c) + " is null" }),
		"{arrays}", list(m.key, ", ", func(i int, c *column) string { return "$" + strconv.Itoa(i+1) + "::" + c.Type + "[]" }),
		"{errors}", "$" + strconv.Itoa(n+1) + "::text[], $" + strconv.Itoa(n+2) + "::int[]",
		"{xs}", list(m.key, ", ", func(i int, _ *column) string { return "k" + strconv.Itoa(i) }),
		"{same}", list(m.key, " and ", func(i int, c *column) string { return own(c) + " = x.k" + strconv.Itoa(i) }),
		"{failed}", m.failedSet(),
		"{all}", list(m.moved, ", ", func(_ int, c *column) string { return own(c) }),
		"{allnames}", list(m.moved, ", ", func(_ int, c *column) string { return quoted(c) }),
	}
	fill := func(name string, more ...string) string {
		return strings.NewReplacer(append(more, args...)...).Replace(pg.Statement(sqlFiles, name))
	}
	onward := func(name string, more ...string) onward {
		first, after := m.placed(), m.placed()+m.place(">", 2)
		return onward{
			fill(name, append(more, "{after}", first, "{upto}", m.place("<=", 2))...),
			fill(name, append(more, "{after}", after, "{upto}", m.place("<=", 2+len(m.order)))...),
		}
	}
	lockable := func(of *layout) (both lockable) {
		for i, lock := range []string{"", " for update of t skip locked"} {
			both[i] = fill("load", "{lock}", lock, "{wide}", of.sql())
		}
		return both
	}
	at := "null" // when a row was written, in UTC, the connection's time zone
	if m.createdAt != nil {
		at = own(m.createdAt)
	}
	s := statements{
		read:    onward("read"),
		claim:   onward("claim"),
		list:    onward("read", "{wide}", m.placing.sql(), "{nulls}", nulls(m.placing)),
		narrow:  onward("narrow"),
		scan:    fill("scan"),
		backlog: fill("backlog", "{at}", at+"::timestamptz"),
		load:    lockable(m.whole),
		find:    lockable(m.placing),
	}
	for i := range m.whole.fields {
		s.fields = append(s.fields, fill("load", "{lock}", "", "{wide}", m.whole.fields[i].sql))
	}
	if len(m.nullable) > 0 {
		s.unplaced = fill("unplaced")
	}
	settle := cmp.Or(map[Delivered]string{Delete: "settle_delete", Archive: "settle_archive"}[m.config.Delivered], "settle_mark")
	s.settle, s.discard = fill(settle, "{delivered}", m.delivered(true)), fill(settle, "{delivered}", m.delivered(false))
	if m.failedSet() != "" {
		s.failed = fill("failed")
	}
	return s
}

func (m *mapping) failedSet() string {
	var set []string
	if e := m.Find(m.config.Columns.Error); e != nil {
		value := "x.error"
		if e.Limit > 0 {
			value = "left(x.error, " + strconv.Itoa(e.Limit) + ")"
		}
		set = append(set, quoted(e)+" = "+value)
	}
	if a := m.Find(m.config.Columns.Attempts); a != nil {
		set = append(set, quoted(a)+" = x.attempts")
	}
	return strings.Join(set, ", ")
}

// prove makes the server check every statement of the mapping, before a subscription is made for
// it. A subscription whose mapping does not work would block the table for a corrected one.
func (t *Table) prove(ctx context.Context, st *statements) error {
	return t.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		for _, sql := range slices.Concat(st.read[:], st.list[:], st.claim[:], st.narrow[:], st.find[:], st.load[:],
			[]string{st.unplaced, st.scan, st.settle, st.discard, st.failed, st.backlog}) {
			if sql == "" {
				continue
			}
			if _, err := conn.Conn().PgConn().Prepare(ctx, "", sql, nil); err != nil {
				return err
			}
		}
		return nil
	})
}
