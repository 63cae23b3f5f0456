package check

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/adopted"
	"github.com/penstock/penstock/internal/terminal"
)

// misfits are the parts of the mapping that a relay would refuse, except for missing rights, which are a separate finding. A column that two fields
// name is reported once.
func (f *facts) misfits() (all []*penstock.FieldError) {
	of := &adopted.Relation{Source: f.tableName()}
	for _, c := range f.columns {
		c.NoSelect, c.NoUpdate = false, false
		of.Columns = append(of.Columns, c.Column)
	}
	for _, err := range f.cfg.Misfits(of, adopted.PostgresKinds) {
		if one, _ := errors.AsType[*penstock.FieldError](err); !slices.ContainsFunc(all, func(other *penstock.FieldError) bool { return other.Problem == one.Problem }) {
			all = append(all, one)
		}
	}
	return all
}

// readable: the table has the columns without which rows cannot be read in order.
func (f *facts) readable() bool {
	return !slices.ContainsFunc(append(f.cfg.OrderColumns(), f.cfg.Marks()), func(name string) bool { return name != "" && f.column(name) == nil })
}

// writtenColumns are those that Penstock updates.
func (f *facts) writtenColumns() (names []string) {
	for _, name := range []string{f.cfg.Marks(), f.cfg.Columns.Error, f.cfg.Columns.Attempts} {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// findColumns: the columns of the mapping exist and have usable types.
func findColumns(f *facts) (found []Finding) {
	for _, misfit := range f.misfits() {
		found = append(found, Finding{Severity: Critical, Code: CodeColumn, Title: misfit.Field + " " + misfit.Problem, Detail: misfit.Hint})
	}
	if id := f.column(f.cfg.Columns.ID); id != nil && !id.NotNull {
		found = append(found, Finding{Severity: Critical, Code: CodeColumn,
			Title:  fmt.Sprintf("the id %s may be NULL", quote(id.Name)),
			Detail: "A row without an id could be delivered and never settled.",
			Fix: []Statement{{SQL: fmt.Sprintf("alter table %s alter column %s set not null", f.tableName(), quote(id.Name)),
				Risk: "reads the whole table, and it cannot be read or written meanwhile; fails if there is a NULL"}}})
	}
	return append(found, f.archiveFindings()...)
}

func (f *facts) archiveFindings() []Finding {
	switch {
	case f.archive == nil:
		return nil
	case !f.archive.exists:
		return []Finding{{Severity: Critical, Code: CodeColumn,
			Title:  fmt.Sprintf("there is no archive %s", f.cfg.ArchiveIdentifier().Sanitize()),
			Detail: "Delivered rows should be moved there. Create it with the columns of the table; indexes that only the table needs are not needed there.",
			Fix:    []Statement{{SQL: fmt.Sprintf("create table %s (like %s)", f.cfg.ArchiveIdentifier().Sanitize(), f.tableName())}}}}
	case len(f.archive.missing) > 0:
		return []Finding{{Severity: Critical, Code: CodeColumn,
			Title:  fmt.Sprintf("the archive %s lacks columns: %s", f.cfg.ArchiveIdentifier().Sanitize(), quoteAll(f.archive.missing)),
			Detail: "A row is moved with all its columns. Add the missing ones with the types that they have in the table."}}
	}
	return nil
}

func findPermissions(f *facts) (found []Finding) {
	var lacks []string // as GRANT spells them
	var unreadable, fixed []string
	for _, name := range f.readColumns() {
		if f.column(name).NoSelect {
			unreadable = append(unreadable, name)
		}
	}
	for _, name := range f.writtenColumns() {
		if c := f.column(name); c != nil && c.NoUpdate {
			fixed = append(fixed, name)
		}
	}
	if m := f.cfg.Marks(); m != "" && f.column(m) != nil && f.column(m).NoSelect && !slices.Contains(unreadable, m) {
		unreadable = append(unreadable, m)
	}
	// FOR UPDATE needs the right to update any one column.
	claims := !f.cfg.Ordered() && !slices.ContainsFunc(f.columns, func(c column) bool { return !c.NoUpdate })
	if len(unreadable) > 0 {
		lacks = append(lacks, "select ("+quoteAll(unreadable)+")")
	}
	if claims && len(fixed) == 0 && f.column(f.cfg.Columns.ID) != nil {
		fixed = append(fixed, f.cfg.Columns.ID)
	}
	if len(fixed) > 0 {
		lacks = append(lacks, "update ("+quoteAll(fixed)+")")
	}
	if f.removes() && !f.mayDelete {
		lacks = append(lacks, "delete")
	}
	var grants []Statement
	role := quote(f.table.role)
	if !f.table.schemaUsage {
		grants = append(grants, Statement{SQL: "grant usage on schema " + pgx.Identifier{f.table.id[0]}.Sanitize() + " to " + role})
	}
	if len(lacks) > 0 {
		grants = append(grants, Statement{SQL: "grant " + strings.Join(lacks, ", ") + " on " + f.tableName() + " to " + role})
	}
	if f.archive != nil && f.archive.exists && !f.archive.mayInsert {
		grants = append(grants, Statement{SQL: "grant insert on " + f.cfg.ArchiveIdentifier().Sanitize() + " to " + role})
	}
	if len(grants) > 0 {
		found = append(found, Finding{Severity: Critical, Code: CodePermission,
			Title:  fmt.Sprintf("the role %s lacks rights that the relay needs", role),
			Detail: "Penstock reads the mapped columns and removes, marks or moves delivered rows. The owner of the table can grant the missing rights; if the relay runs as another role, run the check as that one.",
			Fix:    grants})
	}
	if f.table.hidesRows {
		found = append(found, Finding{Severity: Critical, Code: CodeRowSecurity,
			Title:  "row security may hide rows from the relay",
			Detail: fmt.Sprintf("The table has row security, and the role %s does not bypass it: rows that no policy shows to it are never delivered, without any error.", role),
			Fix: []Statement{{SQL: fmt.Sprintf("create policy %s on %s to %s using (true)", quote(f.table.id[1]+"_relay"), f.tableName(), role),
				Risk: "that role sees and changes every row of the table"}}})
	}
	return found
}

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
	"c": "are also deleted",
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
			if find.Severity == Note {
				find.Severity = Warning
			}
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
