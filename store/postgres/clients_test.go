package postgres_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock/store/postgres"
)

// A client that fits is told the schema's version, whatever its role; another what to do.
func TestCheckClient(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{Schema: `100% "odd" 'names'`})
	version, err := f.store.SchemaVersion(f.Ctx)
	f.Must(err)
	name, asRole := f.role()
	const in = `"100% ""odd"" 'names'"`
	f.Exec("grant usage on schema " + in + " to " + pgx.Identifier{name}.Sanitize())
	conn := f.connectAs(asRole)
	ask := func(writtenFor any) (got int64, err error) {
		err = conn.QueryRow(f.Ctx, "select "+in+".check_client($1)", writtenFor).Scan(&got)
		return got, err
	}
	for _, fits := range []int64{300, version} {
		if got, err := ask(fits); err != nil || got != version {
			t.Errorf("a client for version %d: got %d, %v, want %d", fits, got, err, version)
		}
	}
	for _, c := range []struct {
		writtenFor any
		says, hint string
	}{
		{version + 1, fmt.Sprintf("the schema is version %d, this client needs %d", version, version+1), "run: penstock migrate"},
		{299, fmt.Sprintf("this client was written for version 299 of the schema, which is version %d and takes clients for 300 on", version), "use a newer client"},
		{nil, fmt.Sprintf("this client was written for version null of the schema, which is version %d and takes clients for 300 on", version), "use a newer client"},
	} {
		_, err := ask(c.writtenFor)
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || refused.Code != "PS002" || refused.Message != c.says || refused.Hint != c.hint {
			t.Errorf("a client for version %v: got %v, want PS002, %q, and the hint %q", c.writtenFor, err, c.says, c.hint)
		}
	}
}

// The clients were written for the same version. It is one that a database can have: the number of a file of the schema.
func TestClientsAreWrittenForOneVersion(t *testing.T) {
	versions := map[string][]string{}
	for file, pattern := range map[string]string{
		"../../clients/python/src/penstock/_model.py":                         `(?m)^SCHEMA_VERSION = (\d+)$`,
		"../../clients/typescript/src/errors.ts":                              `(?m)^export const schemaVersion = (\d+)$`,
		"../../clients/java/penstock/src/main/java/io/penstock/Penstock.java": `SCHEMA_VERSION = (\d+);`,
		"../../clients/conformance/README.md":                                 `check_client\((\d+)\)`,
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(pattern).FindSubmatch(text)
		if found == nil {
			t.Fatalf("%s names no version", file)
		}
		versions[string(found[1])] = append(versions[string(found[1])], file)
	}
	for version := range versions {
		if files, err := filepath.Glob(fmt.Sprintf("schema/%05s_*.sql", version)); err != nil || len(files) == 0 || len(versions) != 1 {
			t.Errorf("clients were written for version %s, of which there are the files %v: %v", version, files, versions)
		}
	}
}
