package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/terminal"
)

// findStorage: how the table is stored.
func findStorage(f *facts) (found []Finding) {
	if f.table.persistence == "u" {
		found = append(found, Finding{Severity: Critical, Code: CodeUnlogged,
			Title:  "the table is unlogged: a crash empties it",
			Detail: "An unlogged table is truncated when the server restarts after a crash, and a standby has no rows of it. Messages that are not delivered by then are lost.",
			Fix: []Statement{{SQL: "alter table " + f.tableName() + " set logged",
				Risk: "writes the table anew and all of it to the WAL; it cannot be read or written meanwhile"}}})
	}
	if f.table.partitioned() {
		found = append(found, Finding{Severity: Note, Code: CodePartitioned,
			Title: fmt.Sprintf("the table is partitioned, into %s", terminal.Plural(int64(len(f.leaves)), "partition")),
			Detail: "Reads merge the partitions, so each needs the indexes. An index on the whole cannot be created concurrently: it is created on each partition first. " +
				"A partition that is detached or dropped takes its waiting rows along."})
	}
	return found
}

// findKey: settling finds rows by their id. If (ts, id) is the primary key, it finds them by their
// place in the order and the id.
func findKey(f *facts) []Finding {
	id := f.column(f.cfg.Columns.ID)
	if id == nil {
		return nil
	}
	var place []int16
	for _, name := range f.cfg.OrderColumns() {
		if c := f.column(name); c != nil {
			place = append(place, c.number)
		}
	}
	if slices.ContainsFunc(f.indexes, func(x index) bool {
		return x.valid && x.unique && slices.Contains(x.keys, id.number) && subset(x.keys, place)
	}) {
		return nil
	}
	find := Finding{Severity: Critical, Code: CodeNoKey,
		Title: fmt.Sprintf("no unique index has the id %s", quote(id.Name)),
		Detail: "Delivered rows are settled by their ids: without an index each batch reads the whole table, and two rows of one id would be taken for one message. " +
			"Consumers also tell messages apart by the id."}
	if f.table.partitioned() {
		find.Detail += " A unique index of a partitioned table has to contain the columns by which it is partitioned: put them into columns.order."
		return []Finding{find}
	}
	name := shorten(f.table.id[1], 56) + "_id_key"
	find.Fix = []Statement{createIndex(pgx.Identifier{f.table.id[0], name}, f.table.id, true, quote(id.Name), "", "",
		"fails if two rows have the same id")}
	return []Finding{find}
}

// The effect of a delete on rows that reference the deleted one: pg_constraint.confdeltype.
var onDelete = map[string]string{
	"c": "are deleted, too",
	"n": "lose their reference",
	"d": "get their default",
}

// findReferences: foreign keys to the table obstruct deletes.
func findReferences(f *facts) (found []Finding) {
	if !f.removes() {
		return nil
	}
	for _, r := range f.incoming {
		find := Finding{Code: CodeReferenced, Title: fmt.Sprintf("the foreign key %s of %s points at the table", quote(r.name), r.table.Sanitize())}
		if effect := onDelete[r.action]; effect != "" {
			find.Severity = Note
			find.Detail = fmt.Sprintf("When a delivered row is deleted, the rows that point at it %s.", effect)
		} else {
			find.Severity = Critical
			find.Detail = "A delivered row cannot be deleted while a row points at it: the batch fails and is sent again and again. " +
				"Mark delivered rows instead (delivered: mark), or let the foreign key go."
			find.Fix = []Statement{{SQL: fmt.Sprintf("alter table %s drop constraint %s", r.table.Sanitize(), quote(r.name)),
				Risk: "rows may then point at messages that are gone", Alternative: true}}
		}
		if !r.indexed {
			find.Severity = max(find.Severity, Warning)
			find.Detail += " There is no index on the referencing columns, so each deleted row reads that whole table."
			name := shorten(r.table[1], 40) + "_" + shorten(strings.Join(r.columns, "_"), 18) + "_idx"
			find.Fix = append([]Statement{{
				SQL:          fmt.Sprintf("create index concurrently %s on %s (%s)", quote(name), r.table.Sanitize(), quoteAll(r.columns)),
				Concurrently: true, Creates: &Index{r.table[0], name}}}, find.Fix...)
		}
		found = append(found, find)
	}
	return found
}
