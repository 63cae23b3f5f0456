package check

import (
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/adopted"
)

// facts are the known facts about a table; findings are derived from them. A fact that could not be
// seen is zero, or nil if zero has a meaning.
type facts struct {
	cfg  adopted.Config
	opts Options

	table     tableFacts
	sizes     sizes
	columns   []column
	indexes   []index
	triggers  []trigger
	incoming  []reference
	leaves    []pgx.Identifier // of a partitioned table
	stats     *statistics
	width     *float64 // average bytes of a row's columns
	settings  map[string]string
	mayDelete bool
	archive   *archiveFacts

	sessions []session
	prepared []prepared
	slots    []slot
	standbys []standby

	sample *sample
	space  *space
	late   *lateness
	reads  reads
	name   string // for an index to create
}

type tableFacts struct {
	oid         uint32
	id          pgx.Identifier
	kind        string // r, p …
	persistence string // p, u, t
	hidesRows   bool   // by row security
	options     map[string]string
	version     int // 150018
	server      string
	blockSize   int
	role        string
	schemaUsage bool
}

func (t *tableFacts) partitioned() bool { return t.kind == "p" }

type sizes struct{ rows, indexes, total int64 }

type column struct {
	adopted.Column
	category   string // pg_type.typcategory
	number     int16
	length     int16  // -1 is any
	bound      int    // the most bytes of a varchar(n), 0 for no limit
	expression string // the default's
	cache      int64  // of the sequence that numbers it, 0 without one
	sequence   string // quoted
}

type index struct {
	oid       uint32
	id        pgx.Identifier
	valid     bool
	building  bool
	unique    bool // of all rows
	needed    bool // by a constraint, a replica identity …
	keys      []int16
	included  []int16
	signature []string // of the keys
	predicate string
	depends   []int16 // columns that it mentions anywhere
	bytes     int64
	entries   float64
	scans     int64
}

func (x *index) name() string { return x.id[len(x.id)-1] }

type trigger struct {
	name        string
	kind        int16
	definition  string
	function    string
	conditional bool
	constraint  bool
}

// The bits of pg_trigger.tgtype.
const (
	triggerBefore = 1 << 1
	triggerInsert = 1 << 2
	triggerDelete = 1 << 3
	triggerUpdate = 1 << 4
)

type reference struct {
	name    string
	table   pgx.Identifier
	columns []string
	action  string // a, r, c, n, d: the action on delete
	indexed bool
}

type statistics struct {
	known       bool // false before the first VACUUM or ANALYZE
	rows        int64
	live, dead  int64
	updates     int64
	hot         int64
	scans       int64
	vacuumedAgo *float64 // seconds; nil is never
}

type archiveFacts struct {
	exists    bool
	missing   []string // columns
	mayInsert bool
}

type session struct {
	pid      int32
	user     string
	app      string
	state    string
	seconds  *float64 // nil without the right to see it
	ageXacts int64
	query    *float64 // seconds since its last one began
	waitsFor []int32  // the sessions that have its lock or are before it in the queue; 0 is a prepared transaction
}

type prepared struct {
	gid      string
	owner    string
	seconds  float64
	ageXacts int64
}

type slot struct {
	name    string
	kind    string
	active  bool
	age     *int64
	catalog *int64
	wal     *float64
}

type standby struct {
	app  string
	age  *int64
	seen bool // by this role
}

// sample has the largest values of some rows.
type sample struct {
	rows    int64
	largest map[string]int64 // bytes by column
	ordered *bool            // of a uuid in the order: whether its versions are those that grow with time
}

// space has the sizes that pgstattuple measured.
type space struct {
	used    float64 // bytes of live rows
	free    float64
	indexes map[string]float64 // percent of the leaf pages in use
}

// lateness is how late waiting rows were committed, by commit timestamps.
type lateness struct {
	rows    int64
	behind  int64    // committed after a row that sorts behind them
	seconds *float64 // the longest time from the order column's value to the commit
}

// reads are the plans of the read. A plan is nil if there is none.
type reads struct {
	sql     string // of a batch
	natural *plan  // as the planner chooses, not run
	pinned  *plan  // as Penstock asks for it, not run
	first   *plan  // of one row, run
	batch   *plan  // run
	marked  *plan  // of one row from the first one on, run
	endless bool   // the read of one row exceeded the timeout of a query
}

func (f *facts) column(name string) *column {
	i := slices.IndexFunc(f.columns, func(c column) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &f.columns[i]
}

// removes is true if delivered rows leave the table.
func (f *facts) removes() bool { return f.cfg.Marks() == "" }

// waiting is the condition for rows to deliver, empty if all are to deliver.
func (f *facts) waiting() string {
	return f.cfg.Pending(quote(f.cfg.Marks()), func(v adopted.Value) string { return literal(string(v)) })
}

// tableName is the table's name, quoted.
func (f *facts) tableName() string { return f.table.id.Sanitize() }

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

func quoteAll(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = quote(name)
	}
	return strings.Join(quoted, ", ")
}

func literal(s string) string {
	quoted := "'" + strings.ReplaceAll(s, "'", "''") + "'"
	if strings.Contains(s, `\`) { // whatever standard_conforming_strings says
		return "E" + strings.ReplaceAll(quoted, `\`, `\\`)
	}
	return quoted
}
