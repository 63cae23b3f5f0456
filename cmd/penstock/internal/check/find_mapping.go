package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/adopted"
)

// missingColumns are the columns that the mapping names and the table lacks, but
// for what a preset's table may lack.
func (f *facts) missingColumns() (missing []string) {
	optional := f.optionalColumns()
	for _, name := range slices.Concat(f.cfg.OrderColumns(), f.cfg.MessageColumns(), f.writtenColumns()) {
		if f.column(name) == nil && !slices.Contains(missing, name) && !slices.Contains(optional, name) {
			missing = append(missing, name)
		}
	}
	return missing
}

// optionalColumns are the ones that only the preset has named and without which
// its table is complete: what is traced, and where errors go.
func (f *facts) optionalColumns() (names []string) {
	for _, p := range adopted.Presets() {
		if p.Name != f.cfg.Preset {
			continue
		}
		for _, of := range [][2]string{{p.Config.Columns.Tracing, f.cfg.Columns.Tracing}, {p.Config.Columns.Error, f.cfg.Columns.Error}} {
			if of[0] == of[1] {
				names = append(names, of[0])
			}
		}
	}
	return names
}

// writtenColumns are those that Penstock updates.
func (f *facts) writtenColumns() (names []string) {
	for _, name := range []string{f.marks(), f.cfg.Columns.Error, f.cfg.Columns.Attempts} {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// findColumns: what the mapping names is there and can be what it is said to be.
func findColumns(f *facts) []Finding {
	found := f.missingFindings()
	for _, w := range f.wrongTypes() {
		found = append(found, Finding{Severity: Critical, Code: CodeColumn,
			Title:  fmt.Sprintf("columns.%s is %s of type %s", w.field, quote(w.column), w.typ),
			Detail: "Map a column of type " + w.types + "."})
	}
	if id := f.column(f.cfg.Columns.ID); id != nil && !id.notNull {
		found = append(found, Finding{Severity: Critical, Code: CodeColumn,
			Title:  fmt.Sprintf("the id %s may be NULL", quote(id.name)),
			Detail: "A row without an id could be delivered and never settled.",
			Fix: []Statement{{SQL: fmt.Sprintf("alter table %s alter column %s set not null", f.tableName(), quote(id.name)),
				Risk: "reads the whole table, and nobody reads or writes it meanwhile; fails if there is a NULL"}}})
	}
	return append(found, f.archiveFindings()...)
}

func (f *facts) missingFindings() []Finding {
	missing := f.missingColumns()
	if missing == nil {
		return nil
	}
	have := make([]string, len(f.columns))
	for i := range f.columns {
		have[i] = f.columns[i].name
	}
	return []Finding{{Severity: Critical, Code: CodeColumn,
		Title: fmt.Sprintf("the mapping names columns that the table lacks: %s", quoteAll(missing)),
		Detail: fmt.Sprintf("The table has %s. Correct the names in columns, topic, key, message_id or headers: they are written in the case that the database has. "+
			"The read could not be explained.", quoteAll(have))}}
}

type wrongType struct{ field, column, typ, types string }

// wrongTypes are mapped columns that cannot be what they are mapped to.
func (f *facts) wrongTypes() (wrong []wrongType) {
	c := &f.cfg.Columns
	whole := []string{"smallint", "integer", "bigint"}
	is := func(types ...string) func(*column) bool {
		return func(c *column) bool { return slices.Contains(types, c.typ) }
	}
	text := func(c *column) bool { return c.category == "S" }
	either := func(a, b func(*column) bool) func(*column) bool {
		return func(c *column) bool { return a(c) || b(c) }
	}
	for _, m := range []struct {
		field, column string
		fits          func(*column) bool
		types         string
	}{
		{"id", c.ID, either(text, is(append(whole, "uuid")...)), "uuid, bigint, integer or text"},
		{"payload", c.Payload, either(text, is("jsonb", "json", "bytea")), "jsonb, json, text or bytea"},
		{"headers", c.Headers, is("jsonb", "json"), "jsonb or json"},
		{"tracing", c.Tracing, text, "text"},
		{"created_at", c.CreatedAt, is("timestamp with time zone", "timestamp without time zone"), "timestamp with time zone"},
		{"processed_at", c.ProcessedAt, is("timestamp with time zone", "timestamp without time zone"), "timestamp with time zone"},
		{"error", c.Error, text, "text"},
		{"attempts", c.Attempts, is(whole...), "integer"},
	} {
		if found := f.column(m.column); found != nil && !m.fits(found) {
			wrong = append(wrong, wrongType{m.field, m.column, found.typ, m.types})
		}
	}
	return wrong
}

func (f *facts) archiveFindings() []Finding {
	switch {
	case f.archive == nil:
		return nil
	case !f.archive.exists:
		return []Finding{{Severity: Critical, Code: CodeColumn,
			Title:  fmt.Sprintf("there is no archive %s", f.cfg.ArchiveIdentifier().Sanitize()),
			Detail: "Delivered rows are to be moved there. Create it with the columns of the table; indexes that only the table needs are not needed there.",
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
		if !f.column(name).mayRead {
			unreadable = append(unreadable, name)
		}
	}
	for _, name := range f.writtenColumns() {
		if c := f.column(name); c != nil && !c.mayUpdate {
			fixed = append(fixed, name)
		}
	}
	if m := f.marks(); m != "" && f.column(m) != nil && !f.column(m).mayRead && !slices.Contains(unreadable, m) {
		unreadable = append(unreadable, m)
	}
	// FOR UPDATE needs the right to update any one column.
	claims := !f.cfg.Ordered() && !slices.ContainsFunc(f.columns, func(c column) bool { return c.mayUpdate })
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
