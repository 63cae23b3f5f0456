package postgres

import (
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/pg"
	"github.com/penstock/penstock/internal/schema"
	"github.com/penstock/penstock/internal/shell"
)

// schema/NNNNN_*.sql make and change what holds data, once each, in order. schema/functions/*.sql
// are run whole whenever one of them has changed, and then schema/define.sql, which makes what
// existing queues and inboxes have of them.
//
//go:embed schema/*.sql schema/functions
var schemaFiles embed.FS

// migrationLock serialises migrations of all processes; a schema's name is the
// second half of the key.
const migrationLock = 0x70656e73 // "pens"

// firstVersion is that of the first numbered files, with which a database begins. Before it there were databases of development only.
const firstVersion = 300

// migration has the files of a number in schema/.
type migration struct {
	version int64
	text    string
}

var (
	migrations                   = readMigrations()
	functionsText, functionsHash = readFunctions()
)

func readMigrations() []migration {
	var all []migration
	for _, name := range globbed("schema/0*.sql") {
		version, err := strconv.ParseInt(path.Base(name)[:5], 10, 64)
		if err != nil {
			panic(err) // embedded
		}
		if last := len(all) - 1; last >= 0 && all[last].version == version {
			all[last].text += "\n" + read(name)
		} else {
			all = append(all, migration{version, read(name)})
		}
	}
	return all
}

func readFunctions() (text, hash string) {
	for _, name := range append(globbed("schema/functions/*.sql"), "schema/define.sql") {
		text += read(name) + "\n"
	}
	text = strings.ReplaceAll(text, "{schema version}", strconv.FormatInt(newestVersion(), 10))
	sum := sha256.Sum256([]byte(text))
	return text, hex.EncodeToString(sum[:])
}

func globbed(pattern string) []string { // sorted by name
	names, err := fs.Glob(schemaFiles, pattern)
	if err != nil || len(names) == 0 {
		panic(fmt.Sprintf("%s: %v", pattern, err)) // embedded
	}
	return names
}

func read(name string) string {
	text, err := schemaFiles.ReadFile(name)
	if err != nil {
		panic(err) // embedded
	}
	return string(text)
}

// Migrate creates the schema and its tables or brings them up to date, with the functions of
// every queue and inbox. It does so in one transaction, completely or not at all, and leaves no
// setting and no lock on the connection.
func (s *Store) Migrate(ctx context.Context) error {
	err := pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		return s.migrate(ctx, tx)
	})
	if err != nil {
		return s.explain(err)
	}
	s.checked.Store(false)
	return s.ready(ctx)
}

func (s *Store) migrate(ctx context.Context, tx pgx.Tx) error {
	if err := checkServer(ctx, tx); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock($1, hashtext($2))", migrationLock, s.schema); err != nil {
		return err
	}
	// Not "if not exists" first: that needs the right to create schemas even if an administrator
	// has made this one.
	var exists bool
	if err := tx.QueryRow(ctx, "select exists (select from pg_namespace where nspname = $1)", s.schema).Scan(&exists); err != nil {
		return err
	}
	schema := pgx.Identifier{s.schema}.Sanitize()
	run := func(text string) error {
		_, err := tx.Exec(ctx, text, pgx.QueryExecModeSimpleProtocol)
		return err
	}
	if err := s.mayMigrate(ctx, tx, exists); err != nil {
		return err
	}
	if !exists {
		if err := run("create schema " + schema); err != nil {
			return err
		}
	}
	// Functions keep the search_path with which they are made. Their bodies are not checked
	// before all are there.
	if err := run("set local search_path = " + schema + ", pg_temp; set local check_function_bodies = off; set local standard_conforming_strings = on"); err != nil {
		return err
	}
	current, hash, err := s.migrated(ctx, tx)
	if err != nil {
		return err
	}
	switch {
	case current > newestVersion(), !leadsOnFrom(current):
		return s.of().Check(current)
	}
	if lacks, err := s.lacks(ctx, tx, current); err != nil || lacks != "" && (current == 0 || current == newestVersion()) {
		return cmp.Or(err, s.of().Broken(current, lacks))
	}
	for _, c := range changes(current, hash) {
		if err := run(c.text); current > 0 && sqlState(err) == "42P01" { // such as a partition that was not restored
			pg, _ := errors.AsType[*pgconn.PgError](err)
			_, lacks, _ := strings.Cut(pg.Message, `"`)
			lacks, _, _ = strings.Cut(lacks, `"`)
			return fmt.Errorf("%s: %w", c.what, s.of().Broken(current, "table "+lacks))
		} else if err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
	}
	parts, err := s.missingParts(ctx, tx)
	for _, part := range parts {
		if err == nil && part.remedy != nil {
			err = run(*part.remedy)
		}
	}
	return err
}

// missingPart is an index, a trigger or a table that is not there.
type missingPart struct {
	what   string
	remedy *string // SQL that makes it anew
}

func (s *Store) missingParts(ctx context.Context, q querier) ([]missingPart, error) {
	return list(ctx, q, func(row pgx.CollectableRow) (p missingPart, err error) {
		err = row.Scan(&p.what, &p.remedy)
		return p, err
	}, statement("missing_parts", s.schema, ""), pgx.QueryExecModeExec, s.schema, sharedIndexes())
}

// sharedIndexes are the statements that make the indexes of the tables that each schema has.
var sharedIndexes = sync.OnceValue(func() (all []string) {
	for _, m := range migrations {
		for _, found := range regexp.MustCompile(`(?m)^ *(create (?:unique )?index .+);`).FindAllStringSubmatch(m.text, -1) {
			all = append(all, found[1])
		}
	}
	return all
})

// change is a part of a migration.
type change struct{ what, text string }

// changes lead to the schema of this program, from a version of the tables, 0 for none, and functions of that hash.
func changes(version int64, hash string) (all []change) {
	for _, m := range migrations {
		if m.version > version {
			all = append(all, change{fmt.Sprintf("version %d of the schema", m.version),
				m.text + fmt.Sprintf("\ninsert into _migration (version_id, is_applied) values (%d, true);\n", m.version)})
		}
	}
	if hash != functionsHash {
		all = append(all, change{"the functions of the schema",
			functionsText + "\nwith old as (delete from _functions) insert into _functions (hash) values (" + pg.Literal(functionsHash) + ");\n"})
	}
	return all
}

func leadsOnFrom(version int64) bool {
	return version == 0 || version >= firstVersion && version <= newestVersion()
}

// migrated is the version of the database's tables, 0 if there are none, and the hash of the files that its
// functions were made from. The hash is "" if one of them has been changed since.
func (s *Store) migrated(ctx context.Context, tx pgx.Tx) (version int64, hash string, err error) {
	var tables, functions bool
	if err := tx.QueryRow(ctx, "select to_regclass($1) is not null, to_regprocedure($2) is not null", s.table("_migration"), s.table("_check_functions")+"(text)").
		Scan(&tables, &functions); err != nil {
		return 0, "", err
	}
	if tables {
		if err := tx.QueryRow(ctx, "select coalesce(max(version_id), 0) from "+s.table("_migration")).Scan(&version); err != nil {
			return 0, "", s.unread(err)
		}
	}
	if functions {
		err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, "select case when changed = '{}' then coalesce(files, '') else '' end from "+s.table("_check_functions")+"()", pgx.QueryExecModeExec).Scan(&hash)
		})
		if sqlState(err) != "" { // it has been changed itself, or a function that it calls
			err = nil
		}
	}
	return version, hash, err
}

// CheckSchema compares the functions of the schema, of each queue and of each inbox with those that Migrate makes, and returns the
// differences. It also looks for indexes, triggers and segments. If the tables are not of this version, the
// error is a *penstock.SchemaError.
func (s *Store) CheckSchema(ctx context.Context) (differences []string, err error) {
	if differences, err = s.checkFunctions(ctx, nil); err != nil {
		return nil, err
	}
	parts, err := s.missingParts(ctx, s.pool)
	for _, part := range parts {
		differences = append(differences, part.what)
	}
	return differences, s.explain(err)
}

// CheckSchemaOf checks only the functions that a worker on the queue needs, or a relay if the name is
// empty. So its time does not depend on the number of queues.
func (s *Store) CheckSchemaOf(ctx context.Context, queue string) (differences []string, err error) {
	return s.checkFunctions(ctx, &queue)
}

func (s *Store) checkFunctions(ctx context.Context, queue *string) (differences []string, err error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	var files string
	err = s.pool.QueryRow(ctx, "select coalesce(files, ''), changed from "+s.table("_check_functions")+"($1)", pgx.QueryExecModeExec, queue).Scan(&files, &differences)
	switch {
	case sqlState(err) == "42883":
		return []string{"the function _check_functions(text), or one that it calls, is missing"}, nil
	case err != nil:
		return nil, s.explain(err)
	}
	for i, what := range differences {
		if !strings.HasPrefix(what, "template ") {
			what = "function " + what
		}
		differences[i] = "the " + what
	}
	if files != functionsHash {
		differences = append([]string{"the functions were made by another version of this program"}, differences...)
	}
	return differences, nil
}

// mayMigrate names who can, if this role cannot, or which privilege it lacks.
func (s *Store) mayMigrate(ctx context.Context, tx pgx.Tx, exists bool) error {
	if exists {
		var may bool
		var owner string
		err := tx.QueryRow(ctx, `select has_schema_privilege(n.oid, 'usage') and has_schema_privilege(n.oid, 'create') and coalesce(pg_has_role(c.relowner, 'usage'), true),
				pg_get_userbyid(coalesce(c.relowner, n.nspowner))
			from pg_namespace n left join pg_class c on c.relnamespace = n.oid and c.relname = '_migration' where n.nspname = $1`, s.schema).Scan(&may, &owner)
		if err != nil {
			return err
		}
		if !may {
			return penstock.WithHint(fmt.Errorf("this role may not make or change tables in schema %q", s.schema), "run penstock migrate as the schema's owner, %s", owner)
		}
	}
	var missing []string
	var role string
	err := tx.QueryRow(ctx, `select array(
			select format('create on database %I', current_database()) where not $1 and not has_database_privilege(current_database(), 'create')
			union all select 'usage on language plpgsql' where not has_language_privilege('plpgsql', 'usage')), quote_ident(current_user)`, exists).Scan(&missing, &role)
	if err == nil && len(missing) > 0 {
		err = penstock.WithHint(&pgconn.PgError{Severity: "ERROR", Code: "42501", Message: "this role lacks " + strings.Join(missing, " and ")}, "have an administrator run: grant %s to %s", strings.Join(missing, " to "+role+"; grant "), role)
	}
	return err
}

// newestVersion is the number of the last numbered file this program carries.
func newestVersion() int64 { return migrations[len(migrations)-1].version }

// SchemaVersion returns the version of the tables in the database, or 0 if there are none. Its statement
// has no name: it may fail and run again on the same connection, and PgBouncer would take a statement of
// that name for prepared.
func (s *Store) SchemaVersion(ctx context.Context) (version int64, err error) {
	err = s.pool.QueryRow(ctx, "select coalesce(max(version_id), 0) from "+s.table("_migration"), pgx.QueryExecModeExec).Scan(&version)
	switch sqlState(err) {
	case "42P01", "3F000":
		return 0, nil
	}
	return version, s.explain(s.unread(err))
}

// unread is the error where the table of versions is another one.
func (s *Store) unread(err error) error {
	if sqlState(err) == "42703" {
		return s.of().Broken(0, "the column version_id of _migration")
	}
	return err
}

// columns are those of the tables that each schema of this version has.
var columns = sync.OnceValue(func() []schema.Column {
	var text strings.Builder
	for _, m := range migrations {
		text.WriteString(m.text + "\n")
	}
	return schema.Columns(text.String())
})

// lacks names a part that tables of that version do not have, "" if they have all. Without a version nothing is there, or it is lost.
func (s *Store) lacks(ctx context.Context, q querier, version int64) (string, error) {
	lacks, err := pg.Lacking(ctx, q, s.schema, columns())
	if err != nil || version > 0 {
		return lacks, err
	}
	const made = "_outbox"
	without := []schema.Column{{Table: made, Name: "name"}}
	if lost, err := pg.Lacking(ctx, q, s.schema, without); err != nil || lost != "" {
		return "", err
	}
	return "its version in _migration", nil
}

func (s *Store) of() schema.Of {
	migrate := "penstock migrate"
	if s.schema != DefaultSchema {
		migrate += " --schema " + shell.Word(s.schema)
	}
	return schema.Of{Where: fmt.Sprintf("schema %q", s.schema), Want: newestVersion(), Oldest: firstVersion, Migrate: migrate, Fresh: schema.Drop}
}

// checkVersion compares the schema with the version for which this program was built.
func (s *Store) checkVersion(ctx context.Context) error {
	for before := int64(-1); ; {
		current, err := s.SchemaVersion(ctx)
		if err != nil {
			return err
		}
		if current != 0 && current != newestVersion() {
			return s.of().Check(current)
		}
		lacks, err := s.lacks(ctx, s.pool, current)
		if err != nil || lacks == "" {
			return cmp.Or(s.explain(err), s.of().Check(current))
		}
		if current == before {
			return s.of().Broken(current, lacks)
		}
		before = current // a migration may have committed between the two looks
	}
}
