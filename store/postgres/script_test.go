package postgres_test

import (
	"database/sql"
	"errors"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/store/postgres"
)

// oddSchema needs quotes wherever it stands.
const oddSchema = `Pen "stock" $1's`

func script(t testing.TB, schema string, from int64) string {
	t.Helper()
	text, err := postgres.MigrationSQL(schema, from)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// runScript runs SQL as a driver does that sends it whole.
func runScript(db *postgrestest.DB, text string) error {
	_, err := db.Conn.Exec(db.Ctx, text, pgx.QueryExecModeSimpleProtocol)
	return err
}

// Other tools make of the script what migrate makes, in a schema of any name, and find their own settings
// as they were.
func TestMigrationSQLMakesTheSameCatalogue(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{"", oddSchema} {
		migrated := postgrestest.On(t, freshDatabase(t))
		migrated.Must(openStore(t, migrated.URL, postgres.Options{Schema: schema}).Migrate(migrated.Ctx))
		for name, run := range map[string]func(*postgrestest.DB, string){
			"psql": func(db *postgrestest.DB, text string) {
				if out := inPsql(db, text); strings.Contains(out, "NOTICE") {
					db.Errorf("psql prints %s", out)
				}
			},
			"goose": inGoose,
			"a transaction with settings of its own": func(db *postgrestest.DB, text string) {
				begin := "create schema theirs; begin; set local search_path = theirs"
				if escapes(db) {
					begin += "; set local standard_conforming_strings = off"
				}
				db.Exec(begin, pgx.QueryExecModeSimpleProtocol)
				db.Must(runScript(db, text))
				db.Exec("create table applied (version int); commit", pgx.QueryExecModeSimpleProtocol)
				if db.Number("select count(*) from pg_class where oid = to_regclass('theirs.applied')") != 1 {
					db.Error("the script changed the search_path of whoever ran it")
				}
				db.Exec("drop schema theirs cascade")
			},
		} {
			t.Run(name, func(t *testing.T) {
				db := postgrestest.On(t, freshDatabase(t))
				run(db, script(t, schema, 0))
				wantSameCatalogue(db, migrated)
				// And migrate has nothing to do.
				count := "select xmin::text::bigint from " + pgx.Identifier{openStore(t, db.URL, postgres.Options{Schema: schema}).Schema(), "_functions"}.Sanitize()
				was := db.Number(count)
				db.Must(openStore(t, db.URL, postgres.Options{Schema: schema}).Migrate(db.Ctx))
				if db.Number(count) != was {
					t.Error("migrate made the functions anew")
				}
			})
		}
	}
}

func inPsql(db *postgrestest.DB, text string) (out string) {
	db.Helper()
	psql, err := osexec.LookPath("psql")
	if err != nil {
		db.Skip("there is no psql")
	}
	file := filepath.Join(db.TempDir(), "penstock.sql")
	db.Must(os.WriteFile(file, []byte(text), 0o600))
	printed, err := osexec.CommandContext(db.Ctx, psql, "--no-psqlrc", "-v", "ON_ERROR_STOP=1", "-f", file, db.URL).CombinedOutput()
	if out = string(printed); err != nil || strings.Contains(out, "ERROR") {
		db.Fatalf("%v: %s", err, out)
	}
	return out
}

func inGoose(db *postgrestest.DB, text string) {
	db.Helper()
	pool, err := sql.Open("pgx", db.URL)
	db.Must(err)
	defer func() { _ = pool.Close() }()
	provider, err := goose.NewProvider(goose.DialectPostgres, pool, fstest.MapFS{"00001_penstock.sql": {Data: []byte(text)}}, goose.WithDisableGlobalRegistry(true))
	db.Must(err)
	_, err = provider.Up(db.Ctx)
	db.Must(err)
}

// It leads on from a version as migrate does, and from no other than it was made for.
func TestMigrationSQLFromAVersion(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.Exec("select penstock.create_queue('mails'), penstock.create_inbox('billing')")
	want := catalogue(f.DB)
	f.breakFunctions()
	broken := catalogue(f.DB)
	if err := runScript(f.DB, script(t, "", 0)); err == nil || !strings.Contains(err.Error(), "is version") {
		t.Errorf("from version 0: %v", err)
	}
	if catalogue(f.DB) != broken {
		t.Error("a script for another version changed something")
	}
	version, err := f.store.SchemaVersion(f.Ctx)
	f.Must(err)
	f.Must(runScript(f.DB, script(t, "", version)))
	if catalogue(f.DB) != want {
		t.Error("functions are not what they were")
	}
	wantDifferences(t, f.differences())
}

func TestMigrationSQLOfNoVersion(t *testing.T) {
	for _, from := range []int64{-1, 30, 160, 267, 1000} {
		_, err := postgres.MigrationSQL("", from)
		var field *penstock.FieldError
		if !errors.As(err, &field) || field.Field != "from" {
			t.Errorf("from %d: %v", from, err)
		}
	}
}

// It has no text that a tool would take for one of its placeholders.
func TestMigrationSQLIsPlain(t *testing.T) {
	text := script(t, "", 0)
	for what, re := range map[string]string{
		"a meta command of psql":         `(?m)^\s*\\`,
		"a placeholder of Flyway":        `\$\{`,
		"a parameter of SQLAlchemy":      `(?:^|[^:\w\\]):\w+(?:[^:\w]|$)`,
		"a transaction of its own":       `(?mi)^\s*(?:begin|commit|start transaction)\s*;`,
		"a template that was not filled": `\{(?:title|what|outer|oldest_server|lock|schema_name|migration|migration_name|changes)\}`,
		"text other than ASCII":          `[^\x00-\x7f]`,
		// Since PostgreSQL 18 these are the statement's rows there; in a trigger its function's name goes before.
		"new or old in RETURNING": `(?i)\breturning\b[^;\n]*[^.\w](?:new|old)\.\w`,
	} {
		if found := regexp.MustCompile(re).FindString(text); found != "" {
			t.Errorf("there is %s: %q", what, found)
		}
	}
}
