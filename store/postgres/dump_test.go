package postgres_test

import (
	"bytes"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/testserver"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/store/postgres/postgrestest"
)

// A dump takes its snapshot and then waits for a table that somebody has locked. Until it has
// locked the rings of two segments as well they do not turn: what is carried over would be in no
// segment that the dump sees.
func TestDumpThatWaitsForALock(t *testing.T) {
	t.Parallel()
	server := testserver.StartPostgres(t)
	setup := postgrestest.On(t, server.URL)
	setup.Exec("create table app (n int)") // before Penstock's: pg_dump locks tables in the order in which they were made
	f := fixtureOn(t, server.URL, postgres.Options{})
	src := f.subscribe()
	f.insert(f.Conn, "k", "parked")
	f.settleAll(src, penstock.Verdict{Outcome: penstock.Parked, Failures: refusedOnce("no"), RetryIn: 10 * postgrestest.Deadline}, f.fetchSome(src))
	f.Must(src.Close(f.Ctx))

	rings := []string{"cursor", "line", "parked"}
	for _, ring := range rings { // their next turn moves what is there
		f.Exec("select setval($1, 1)", "penstock._"+ring+"_slot")
	}
	turned := func() (n int64) {
		f.Helper()
		return f.Number("select penstock._reclaim_cursor()::int + penstock._reclaim_lines(1)::int + penstock._reclaim_parked(1)::int")
	}
	for _, env := range [][]string{nil, {"PGAPPNAME=backup"}} {
		locked, err := f.Connect().Begin(f.Ctx)
		f.Must(err)
		_, err = locked.Exec(f.Ctx, "lock table app in access exclusive mode")
		f.Must(err)
		var dump, stderr bytes.Buffer
		cmd := osexec.CommandContext(f.Ctx, filepath.Join(server.Bin, "pg_dump"), "--data-only", "--inserts", server.URL)
		cmd.Env = append(cmd.Environ(), env...)
		cmd.Stdout, cmd.Stderr = &dump, &stderr
		f.Must(cmd.Start())
		f.Eventually("the dump waits for the lock", func() bool {
			return f.Number("select count(*) from pg_locks where not granted and relation = 'app'::regclass") == 1
		})
		if n := turned(); n > 0 {
			t.Errorf("%d rings have turned while a dump waits (%q)", n, env)
		}
		f.Must(locked.Rollback(f.Ctx))
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%v: %s", err, stderr.String())
		}
		for _, ring := range rings {
			if !strings.Contains(dump.String(), "INSERT INTO penstock._"+ring+"_") {
				t.Errorf("no row of %s is in the dump (%q)", ring, env)
			}
		}
	}
	total := int64(0)
	f.Eventually("the rings turn when the dump is over", func() bool { total += turned(); return total == 3 })
}
