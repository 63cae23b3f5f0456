package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/penstock/penstock/internal/adopted"
)

// busyScans is how often a table must have been read before an index that was never read counts as
// unused.
const busyScans = 1000

// findIndexes: the cost of indexes other than that of the read.
func findIndexes(f *facts) (found []Finding) {
	for i := range f.indexes {
		x := &f.indexes[i]
		drop := []Statement{{SQL: "drop index concurrently " + x.id.Sanitize(), Concurrently: true}}
		if f.table.partitioned() {
			drop = []Statement{{SQL: "drop index " + x.id.Sanitize(), Risk: "writers and readers wait for that moment"}}
		}
		switch {
		case !x.valid && !x.building && !f.table.partitioned():
			found = append(found, Finding{Severity: Warning, Code: CodeInvalidIndex,
				Title:  fmt.Sprintf("the index %s is not valid", quote(x.name())),
				Detail: "An attempt to create it concurrently has failed or was interrupted. No query uses it, and every insert still writes to it.",
				Fix:    drop})
		case !x.valid:
		case f.twin(i) != nil:
			found = append(found, Finding{Severity: Warning, Code: CodeDuplicateIndex,
				Title:    fmt.Sprintf("the index %s is the same as %s", quote(x.name()), quote(f.twin(i).name())),
				Detail:   "Every insert, and every mark, writes to both.",
				Evidence: Evidence{Figures: []Figure{{"size", float64(x.bytes), Bytes}}},
				Fix:      drop})
		case f.unused(x):
			drop[0].Risk = "the figures are of this server since they were last reset: see that no standby and no monthly job uses it"
			found = append(found, Finding{Severity: Note, Code: CodeUnusedIndex,
				Title:    fmt.Sprintf("the index %s was never read", quote(x.name())),
				Detail:   "Every insert, and every mark, writes to it.",
				Evidence: Evidence{Figures: []Figure{{"size", float64(x.bytes), Bytes}, {"scans of the table", float64(f.stats.scans), ""}}},
				Fix:      drop})
		}
	}
	return append(found, f.markedIndexed()...)
}

// twin is another valid index that does everything that indexes[i] does. Of two equal ones, the
// one that a constraint needs stays, or otherwise the first.
func (f *facts) twin(i int) *index {
	x := &f.indexes[i]
	for j := range f.indexes {
		y := &f.indexes[j]
		if i != j && y.valid && !x.needed && (y.needed || j < i) && x.predicate == y.predicate &&
			slices.Equal(x.signature, y.signature) && subset(x.included, y.included) && (len(y.included) == len(x.included) || j != i) {
			return y
		}
	}
	return nil
}

func subset(part, whole []int16) bool {
	return !slices.ContainsFunc(part, func(n int16) bool { return !slices.Contains(whole, n) })
}

// unused is true for an index that is not needed and was never read, on a table that is read
// often. The index of the read may be new.
func (f *facts) unused(x *index) bool {
	return f.stats != nil && f.stats.scans >= busyScans && x.scans == 0 && !x.needed && !slices.Contains(f.reads.pinned.indexes(), x.name())
}

// markedIndexed: marking a row changes a column that an index contains, so PostgreSQL has to write
// a new entry into every index of the table (the update is not HOT).
func (f *facts) markedIndexed() (found []Finding) {
	marks := f.column(f.cfg.Marks())
	if marks == nil {
		return nil
	}
	for i := range f.indexes {
		x := &f.indexes[i]
		if !x.valid || !slices.Contains(x.keys, marks.number) && !slices.Contains(x.included, marks.number) {
			continue
		}
		find := Finding{Severity: Note, Code: CodeMarkedIndexed,
			Title: fmt.Sprintf("the index %s contains %s, which every mark changes", quote(x.name()), quote(marks.Name)),
			Detail: "Each mark writes a new entry into this and every other index of the table (it is not a HOT update), and free space in the pages (fillfactor) does not change that. " +
				"A partial index on the waiting rows has the same effect and pays for it, because it keeps reads short; a further index only adds to it."}
		if x.predicate != "" && f.cfg.Delivered == adopted.Mark && slices.Contains(x.depends, marks.number) {
			find.Detail = "In an index that has waiting rows only the column is always NULL: it takes space, and ends the order before the id. Leave it out."
		}
		if s := f.stats; s != nil && s.updates > 0 {
			find.Evidence.Figures = []Figure{{"updates", float64(s.updates), Rows}, {"HOT among them", 100 * float64(s.hot) / float64(s.updates), Percent}}
		}
		found = append(found, find)
	}
	return found
}

// findTriggers: a row-level trigger makes a statement with many rows as slow as many statements.
func findTriggers(f *facts) (found []Finding) {
	for _, t := range f.triggers {
		var slow []string
		if t.kind&triggerInsert != 0 {
			slow = append(slow, "inserts of many messages")
		}
		if t.kind&triggerUpdate != 0 && !f.removes() {
			slow = append(slow, "marking a batch")
		}
		if t.kind&triggerDelete != 0 && f.removes() {
			slow = append(slow, "deleting a delivered batch")
		}
		if len(slow) == 0 {
			continue
		}
		find := Finding{Severity: Warning, Code: CodeRowTrigger,
			Title:    fmt.Sprintf("the trigger %s runs for each row", quote(t.name)),
			Detail:   fmt.Sprintf("It calls %s once per row, which slows down %s. ", t.function, strings.Join(slow, " and ")),
			Evidence: Evidence{Plan: []string{t.definition}}}
		switch {
		case t.kind&triggerBefore != 0:
			find.Detail += "A trigger that runs before and changes the row cannot be one for each statement: use a default or a generated column where that does the same."
		case t.constraint:
			find.Detail += "A constraint trigger is always for each row: see whether an ordinary one for each statement, with a transition table, does as well."
		default:
			find.Detail += "Make it one for each statement that reads the rows of the statement from a transition table; its function has to be written for that."
			if t.conditional {
				find.Detail += " Its condition or its columns then become part of that function's query."
			}
			find.Fix = f.statementTrigger(t)
		}
		found = append(found, find)
	}
	return found
}

// statementTrigger returns the statements that replace t by statement-level triggers: one per
// event, because a trigger with transition tables cannot have several.
func (f *facts) statementTrigger(t trigger) []Statement {
	drop := fmt.Sprintf("drop trigger %s on %s", quote(t.name), f.tableName())
	call, _, _ := strings.Cut(t.function, "(")
	var creates []string
	for _, e := range []struct {
		bit           int16
		event, tables string
	}{
		{triggerInsert, "insert", "new table as inserted"},
		{triggerUpdate, "update", "old table as before new table as after"},
		{triggerDelete, "delete", "old table as deleted"},
	} {
		if t.kind&e.bit != 0 {
			creates = append(creates, fmt.Sprintf("create trigger %s after %s on %s referencing %s for each statement execute function %s()",
				quote(shorten(t.name, 56)+"_"+e.event), e.event, f.tableName(), e.tables, call))
		}
	}
	return []Statement{{SQL: "begin; " + strings.Join(append([]string{drop}, creates...), "; ") + "; commit",
		Risk: "after the function was rewritten: as it is, it sees no row in a trigger for each statement"}}
}
