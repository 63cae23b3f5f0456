package check

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Types that grow with time if something numbers or dates the rows.
var ordering = []string{"timestamp with time zone", "timestamp without time zone", "date", "smallint", "integer", "bigint", "numeric", "xid8"}

// Functions of a default that return when a transaction began, and when it writes.
var (
	transactionTime = regexp.MustCompile(`(?i)\b(now|transaction_timestamp)\(\)|\b(CURRENT_TIMESTAMP|LOCALTIMESTAMP|CURRENT_DATE)\b`)
	writingTime     = regexp.MustCompile(`(?i)\b(clock_timestamp|statement_timestamp|timeofday)\(\)`)
)

// findOrder compares the order of rows with the order of their commits.
func findOrder(f *facts) (found []Finding) {
	c := f.column(f.cfg.OrderColumns()[0])
	if c == nil {
		return nil
	}
	if f.isRandom(c) {
		return append(found, f.randomOrder(c))
	}
	found = append(found, f.commitOrder(c))
	for _, name := range f.cfg.OrderColumns() {
		if c := f.column(name); c != nil && c.cache > 1 && (name != f.cfg.Columns.ID || len(f.cfg.OrderColumns()) == 1) {
			found = append(found, sequenceCache(c))
		}
	}
	if c.Type == "timestamp without time zone" {
		found = append(found, Finding{Severity: Note, Code: CodeLocalTime,
			Title: fmt.Sprintf("the order column %s has no time zone", quote(c.Name)),
			Detail: "Writers whose sessions have different time zones write times hours apart, and where a zone has summer time an hour comes twice in autumn: " +
				"rows then sort behind delivered ones, and only the sweep finds them. Write UTC in all sessions, or use timestamptz.",
			Fix: []Statement{{SQL: fmt.Sprintf("alter table %s alter column %s type timestamptz using %s at time zone 'UTC'", f.tableName(), quote(c.Name), quote(c.Name)),
				Risk: "writes the table and its indexes anew; it cannot be read or written meanwhile; only right if the times are UTC"}}})
	}
	return found
}

// isRandom: a uuid that is not derived from the time, or text.
func (f *facts) isRandom(c *column) bool {
	if c.Type == "uuid" {
		switch {
		case strings.Contains(c.expression, "uuidv7("): // PostgreSQL 18
			return false
		case f.sample != nil && f.sample.ordered != nil:
			return !*f.sample.ordered
		}
		return true
	}
	return !slices.Contains(ordering, c.Type)
}

func (f *facts) randomOrder(c *column) Finding {
	find := Finding{Severity: Warning, Code: CodeRandomOrder,
		Title: fmt.Sprintf("the order column %s (%s) says nothing about time", quote(c.Name), c.Type),
		Fix: []Statement{{SQL: fmt.Sprintf("alter table %s add column seq bigint generated always as identity", f.tableName()),
			Risk: "writes the table anew; it cannot be read or written meanwhile; rows that are there are numbered as they lie"}}}
	if len(f.cfg.OrderColumns()) == 1 {
		find.Detail = "New rows sort before old ones, so no low-water mark can stand among them: each look for new rows is at all that wait, " +
			"and they are sent in the order of their transactions only as far as PostgreSQL remembers it. "
	} else {
		find.Detail = "New rows sort before old ones, below any low-water mark, and are found by the sweep only. "
		if f.cfg.Key != "" && f.cfg.Ordered() {
			find.Severity = Critical
			find.Detail += "Messages of one key go out in a wrong order. "
		}
	}
	find.Detail += "Map columns.order to a time or a number that grows; if the table has none, it needs one."
	return find
}

// commitOrder reports problems of reading by the column, and how Penstock handles them. It is
// a warning if rows were committed later than the margin.
func (f *facts) commitOrder(c *column) Finding {
	margin := f.cfg.Margin
	find := Finding{Severity: Note, Code: CodeCommitOrder, Title: fmt.Sprintf("the order of %s is not the order of commits", quote(c.Name))}
	switch {
	case transactionTime.MatchString(c.expression):
		find.Detail = "It is the time at which the transaction began, so a row becomes visible as much later as its transaction is long."
	case writingTime.MatchString(c.expression):
		find.Detail = "It is the time of writing, and a row becomes visible when its transaction commits."
	case c.cache > 0 || strings.Contains(c.expression, "nextval("):
		find.Detail = "The number is drawn when the row is written, and a lower one can commit after a higher one. Gaps mean nothing: a transaction that rolled back leaves some."
	case c.Type == "uuid":
		find.Detail = "It begins with the time at which the uuid was made, by the clock of the machine that made it, and a row becomes visible when its transaction commits."
	default:
		find.Detail = "The application writes it, by its own clocks and before the commit: add how far these clocks are apart to the margin."
	}
	find.Detail += fmt.Sprintf(" A loop that continues after the last row it has seen never delivers rows that commit behind it. Penstock looks back over the margin (%v) again and again, and "+
		"sweeps the rows below it every %v: a later row is delivered late and behind later ones of its key, but never lost.", margin, f.cfg.Sweep)
	late := f.late
	if late == nil {
		if f.settings["track_commit_timestamp"] != "on" {
			find.Detail += " How late rows commit here can be measured with track_commit_timestamp = on."
		}
		return find
	}
	find.Evidence.Figures = []Figure{{"waiting rows looked at", float64(late.rows), Rows}, {"committed after a row that sorts behind them", float64(late.behind), Rows}}
	if late.seconds == nil {
		return find
	}
	find.Evidence.Figures = append(find.Evidence.Figures, Figure{"longest time to the commit", *late.seconds, Seconds}, Figure{"margin", margin.Seconds(), Seconds})
	if longest := time.Duration(*late.seconds * float64(time.Second)); longest > margin {
		find.Severity = Warning
		find.Title = fmt.Sprintf("rows commit up to %v after their %s, later than the margin of %v", longest.Round(time.Second), quote(c.Name), margin)
		find.Detail += " Set margin to more than that, or make those transactions shorter."
	}
	return find
}

func sequenceCache(c *column) Finding {
	return Finding{Severity: Warning, Code: CodeSequenceCache,
		Title: fmt.Sprintf("the sequence of %s hands out %s numbers at a time", quote(c.Name), number(float64(c.cache))),
		Detail: "Each connection draws its numbers in advance, so one that is seldom used writes numbers from hours ago: " +
			"they sort behind delivered rows, whatever the margin, and only the sweep finds them.",
		Evidence: Evidence{Figures: []Figure{{"cache", float64(c.cache), ""}}},
		Fix:      []Statement{{SQL: "alter sequence " + c.sequence + " cache 1", Risk: "open connections continue with the numbers they have"}}}
}
