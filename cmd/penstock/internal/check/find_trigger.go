package check

import (
	"fmt"
	"strings"
)

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
