package postgres_test

import (
	osexec "os/exec"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/postgres"
)

// TestSchemaSize counts the lines that an administrator has to read: those of pg_dump -s that are neither blank nor a comment, of
// SQL or of the catalogue. It also counts those of the longest function as \sf shows it. A change that needs fewer lowers the
// limit.
func TestSchemaSize(t *testing.T) {
	t.Parallel()
	server := testserver.StartPostgres(t)
	f := fixtureOn(t, testserver.Database(t, server.URL), postgres.Options{}) // with an outbox
	if version := f.Number("select current_setting('server_version_num')::int / 10000"); version != goldenServer {
		t.Skipf("the limits are for what pg_dump of PostgreSQL %d writes, this is %d", goldenServer, version)
	}
	lines := func() int64 {
		f.Helper()
		dump, err := osexec.CommandContext(f.Ctx, pgDump(t, server), "--schema-only", "--schema=penstock", f.URL).Output()
		f.Must(err)
		n := int64(0)
		for line := range strings.Lines(string(dump)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") && !strings.HasPrefix(line, "COMMENT ON ") {
				n++
			}
		}
		return n
	}
	before := lines()
	f.Exec("select penstock.create_queue('mails')")
	whole := lines()
	longest := f.Number(`select max((select count(*) from regexp_split_to_table(pg_get_functiondef(p.oid), '\n') l where l !~ '^\s*(--|$)'))
		from pg_proc p where p.pronamespace = 'penstock'::regnamespace`)
	for _, size := range []struct {
		of         string
		is, atMost int64
	}{
		{"a database with an outbox and a queue", whole, 7749},
		{"a queue", whole - before, 1286},
		{"the longest function", longest, 120},
	} {
		t.Logf("%s: %d lines", size.of, size.is)
		if size.is > size.atMost {
			t.Errorf("%s has %d lines, at most %d were allowed", size.of, size.is, size.atMost)
		}
	}
}
