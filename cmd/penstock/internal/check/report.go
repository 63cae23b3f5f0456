package check

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

// Report is the result of one check of a table. The gravest findings come first, and within a
// severity they have a fixed order.
type Report struct {
	Table   Table  `json:"table"`
	Reading string `json:"reading"` // the statement that was explained; empty if there is none

	Findings []Finding `json:"findings"`
	// Unseen lists the checks that were not possible, because of the role, the server or the time.
	Unseen []Unseen `json:"unseen"`
}

// Table has the table's figures. Rows and dead rows are the server's estimates, or -1 if it has
// none.
type Table struct {
	Schema     string `json:"schema"`
	Name       string `json:"name"`
	Server     string `json:"server"` // such as 15.18
	Rows       int64  `json:"rows"`
	DeadRows   int64  `json:"dead_rows"`
	Bytes      int64  `json:"bytes"`       // without indexes and large values
	IndexBytes int64  `json:"index_bytes"` // all indexes together
	TotalBytes int64  `json:"total_bytes"` // with everything
}

// Clean is true if nothing is worse than a note.
func (r *Report) Clean() bool { return r.Count(Warning)+r.Count(Critical) == 0 }

// Count returns how many findings are of that severity.
func (r *Report) Count(s Severity) (n int) {
	for i := range r.Findings {
		if r.Findings[i].Severity == s {
			n++
		}
	}
	return n
}

func (r *Report) sort() {
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return slices.Index(gravest, a.Severity) - slices.Index(gravest, b.Severity) })
}

// Severity of a finding.
type Severity = doctor.Severity

const (
	// Note: worth knowing; no action is needed.
	Note Severity = "note"
	// Warning: it costs time or space, and will cost more as the table grows.
	Warning = doctor.Warning
	// Critical: Penstock cannot work with the table, or messages can be lost or sent in a wrong order.
	Critical = doctor.Critical
)

// gravest is the order of a report.
var gravest = []Severity{Critical, Warning, Note}

// Finding is one result of a check.
type Finding struct {
	Severity Severity `json:"severity"`
	// Code names the kind of finding for programs. It does not change between
	// versions; see the constants.
	Code string `json:"code"`
	// Title is one line. Detail describes the consequences for the outbox, and how Penstock acts
	// about them.
	Title  string `json:"title"`
	Detail string `json:"detail"`

	Evidence Evidence `json:"evidence,omitzero"`
	// Fix has the statements in the order in which to run them. Each statement shows whether Fix offers
	// it.
	Fix []Statement `json:"fix,omitempty"`
}

// Evidence is the basis of the finding.
type Evidence struct {
	Figures []Figure `json:"figures,omitempty"`
	// Plan is an excerpt of the plan, line by line.
	Plan []string `json:"plan,omitempty"`
}

// Figure is one measured or estimated value.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit,omitempty"`
}

// The units of figures. Plain numbers have none.
const (
	Bytes   = "bytes"
	Pages   = "pages" // of the server's block size, usually 8 KiB
	Rows    = "rows"
	Seconds = "s"
	Percent = "%"
)

// Statement is SQL to run unchanged, outside of a transaction.
type Statement struct {
	SQL string `json:"sql"`
	// Concurrently: writers and readers continue meanwhile.
	Concurrently bool `json:"concurrently,omitempty"`
	// Risk is its cost or danger; empty if there is next to none.
	Risk string `json:"risk,omitempty"`
	// By shows which roles may run it; empty if the owner of the table may.
	By string `json:"by,omitempty"`
	// Creates is the index that it creates. Fix runs only such statements.
	Creates *Index `json:"creates,omitempty"`
	// Alternative statements replace the ones before them: run one or the other. Fix does not offer
	// them.
	Alternative bool `json:"alternative,omitempty"`
}

// Index names an index.
type Index struct {
	Schema string `json:"schema"`
	Name   string `json:"name"`
}

// Unseen is something that could not be checked.
type Unseen struct {
	What string `json:"what"`
	Why  string `json:"why"`
	Hint string `json:"hint,omitempty"`
}

// The codes of findings.
const (
	CodeColumn          = "column"            // the mapping names a column that is missing
	CodePermission      = "permission"        // the role lacks a right that Penstock needs
	CodeRowSecurity     = "row-security"      // policies may hide rows from the role
	CodeUnlogged        = "unlogged"          // a crash empties the table
	CodeNoKey           = "no-key"            // no unique index finds a row by its id
	CodePartitioned     = "partitioned"       // the table is partitioned
	CodeReferenced      = "referenced"        // foreign keys point at rows that will be deleted
	CodeMissingIndex    = "missing-index"     // no index gives the waiting rows in order
	CodeTieBreak        = "index-without-id"  // it does, except among rows of the same time
	CodeNotPartial      = "index-not-partial" // it does, but walks over delivered rows
	CodePlanUnstable    = "plan-unstable"     // the planner would not choose it
	CodeContentTooBig   = "content-too-big"   // an index that includes the contents refuses inserts
	CodeInvalidIndex    = "invalid-index"     // left by a failed attempt
	CodeDuplicateIndex  = "duplicate-index"   // two alike
	CodeUnusedIndex     = "unused-index"      // never read
	CodeMarkedIndexed   = "mark-is-indexed"   // marking a row writes to every index
	CodeDeadPrefix      = "dead-prefix"       // the read begins with dead rows
	CodeDeadRows        = "dead-rows"         // the read meets them everywhere
	CodeRandomOrder     = "random-order"      // the order column does not follow time
	CodeCommitOrder     = "commit-order"      // the order column is not the order of commits
	CodeSequenceCache   = "sequence-cache"    // connections draw numbers in advance
	CodeLocalTime       = "local-time"        // a timestamp without time zone
	CodeRowTrigger      = "row-trigger"       // a trigger runs for each row
	CodeBloat           = "bloat"             // the table is larger than its rows
	CodeIndexBloat      = "index-bloat"       // an index is larger than its entries
	CodeAutovacuumOff   = "autovacuum-off"    //
	CodeAutovacuumLate  = "autovacuum-late"   // it waits for too many dead rows
	CodeVacuumBehind    = "vacuum-behind"     // dead rows beyond the number that autovacuum waits for
	CodeOldSnapshot     = "old-snapshot"      // a transaction holds back vacuum
	CodePrepared        = "prepared"          // so does a prepared transaction
	CodeReplicationSlot = "replication-slot"  // so does a slot, or it retains WAL
	CodeStandby         = "standby-feedback"  // so does a query on a standby
)

// lineWidth is where text is broken. Statements and plans are not broken: users copy them.
const lineWidth = 100

// WriteText writes the report for people. The JSON form is the report itself.
func (r *Report) WriteText(w io.Writer) error {
	t := &text{}
	r.head(t)
	for i := range r.Findings {
		r.Findings[i].write(t)
	}
	if len(r.Unseen) > 0 {
		t.line("")
		t.line("Not seen:")
		for _, u := range r.Unseen {
			s := u.What + ": " + u.Why
			if u.Hint != "" {
				s += " (" + u.Hint + ")"
			}
			t.wrap("  ", s)
		}
	}
	_, err := io.WriteString(w, t.String())
	return err
}

func (r *Report) head(t *text) {
	rows := "a number of rows that is not known before a VACUUM or ANALYZE"
	if r.Table.Rows >= 0 {
		rows = "about " + terminal.Plural(r.Table.Rows, "row")
	}
	if r.Table.DeadRows > 0 {
		rows += ", " + number(float64(r.Table.DeadRows)) + " dead"
	}
	t.wrap("", fmt.Sprintf("%s.%s on PostgreSQL %s: %s, %s, and %s of indexes", r.Table.Schema, r.Table.Name, r.Table.Server,
		rows, bytes(float64(r.Table.Bytes)), bytes(float64(r.Table.IndexBytes))))
	var counts []string
	for _, s := range gravest {
		if n := r.Count(s); n > 0 && s != Critical {
			counts = append(counts, terminal.Plural(int64(n), string(s)))
		} else if n > 0 {
			counts = append(counts, number(float64(n))+" critical")
		}
	}
	switch {
	case len(counts) == 0:
		t.line("nothing to report")
	case r.Clean():
		t.line(strings.Join(counts, ", ") + ": nothing to do")
	default:
		t.line(strings.Join(counts, ", "))
	}
}

func (f *Finding) write(t *text) {
	t.line("")
	t.wrap("", fmt.Sprintf("%s  %s [%s]", strings.ToUpper(string(f.Severity)), f.Title, f.Code))
	t.wrap("  ", f.Detail)
	for _, figure := range f.Evidence.Figures {
		t.line("    " + figure.Name + ": " + value(figure))
	}
	for _, line := range f.Evidence.Plan {
		t.line("    | " + line)
	}
	for i, s := range f.Fix {
		switch {
		case s.Alternative && i > 0:
			t.line("  or:")
		case i == 0:
			t.line("  to run:")
		}
		t.line("    " + s.SQL + ";")
		if s.By != "" {
			t.wrap("      -- ", s.By)
		}
		if s.Risk != "" {
			t.wrap("      -- ", s.Risk)
		}
	}
}

// value writes a figure for people.
func value(f Figure) string {
	switch f.Unit {
	case Bytes:
		return bytes(f.Value)
	case Seconds:
		return span(f.Value)
	case Percent:
		return fmt.Sprintf("%.0f %%", f.Value)
	}
	if f.Value != math.Trunc(f.Value) {
		return strconv.FormatFloat(f.Value, 'g', 3, 64)
	}
	return number(f.Value)
}

// bytes writes a size for people.
func bytes(n float64) string {
	for _, unit := range []string{"bytes", "KiB", "MiB", "GiB"} {
		if n < 10_000 {
			return number(n) + " " + unit
		}
		n /= 1024
	}
	return number(n) + " TiB"
}

// number writes a count with thousands separators.
func number(v float64) string { return terminal.Count(int64(math.Round(v))) }

// text collects the output, without control characters that a terminal would obey: names come from
// the database.
type text struct{ strings.Builder }

func (t *text) line(s string) {
	t.WriteString(shell.Visible(s) + "\n")
}

// wrap writes words in lines that begin with indent.
func (t *text) wrap(indent, s string) {
	for line := range strings.SplitSeq(terminal.Wrap(indent+strings.Join(strings.Fields(s), " "), indent, lineWidth), "\n") {
		t.line(line)
	}
}
