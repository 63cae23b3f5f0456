package check

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/adopted"
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
			Detail: "Penstock reads the mapped columns and removes, marks or moves delivered rows. The owner of the table can grant what is missing; if the relay runs as another role, run the check as that one.",
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
