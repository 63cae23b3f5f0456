package postgres_test

import (
	"bytes"
	"encoding/hex"
	osexec "os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/postgres"
)

// A dump takes its snapshot and then waits for a table that is locked. Until it has locked the
// rings as well they do not turn: jobs that are carried over would be in no segment that the dump
// sees.
func TestDumpThatWaitsForALock(t *testing.T) {
	t.Parallel()
	server := testserver.StartPostgres(t)
	program := pgDump(t, server)
	setup := postgrestest.On(t, server.URL)
	setup.Exec("create table app (n int)") // before Penstock's: pg_dump locks tables in the order in which they were made
	f := fixtureOn(t, server.URL, postgres.Options{})
	src := f.subscribe()
	f.insert(f.Conn, "k", "parked")
	f.settleAll(src, driver.Verdict{Outcome: driver.Parked, Failures: refusedOnce("no"), RetryIn: 10 * postgrestest.Deadline}, f.fetchSome(src))
	f.Must(src.Close(f.Ctx))
	f.Exec("select penstock.create_queue('q', 'fifo', 4, 65536)")
	f.Exec("select penstock.enqueue('q', 'leased ' || i) from generate_series(1, 100) i")
	f.Exec("select from penstock.claim('q', 100, '1 day')")
	f.Exec("select penstock.enqueue('q', 'delayed ' || i, not_before => now() + interval '1 day', dedup_key => 'key ' || i) from generate_series(1, 100) i")
	f.leaveBehind("insert into penstock.q (payload, group_key) select convert_to('left ' || i, 'UTF8'), 'g' from generate_series(1, 100) i")

	rings := []string{"cursor", "parked_key", "parked"}
	for _, ring := range rings { // their next turn moves the jobs that are there
		f.Exec("select setval($1, 1)", "penstock._"+ring+"_slot")
	}
	for _, ring := range []string{"lease", "scheduled", "dedup"} {
		f.Exec("select setval($1, 3)", "penstock._"+ring+"_slot")
	}
	turned := func() (n int64) {
		f.Helper()
		return f.Number("select penstock._reclaim_cursor()::int + penstock._reclaim_parked_keys(1)::int + penstock._reclaim_parked(1)::int")
	}
	emptied := func() (n int64) {
		f.Helper()
		f.Exec("update penstock._segment set leaving = true where slot = 0; update penstock._pair set again = null", pgx.QueryExecModeSimpleProtocol)
		f.Exec(maintainAtOnce, pgx.QueryExecModeSimpleProtocol)
		f.Exec("select penstock._reclaim_pairs()")
		return f.Number(`select count(*) from unnest('{_q.0,_lease_0,_scheduled_0,_dedup_0}'::text[]) s where pg_relation_size(format('penstock.%I', s)) = 0`)
	}
	for _, env := range [][]string{nil, {"PGAPPNAME=backup"}} {
		locked, err := f.Connect().Begin(f.Ctx)
		f.Must(err)
		_, err = locked.Exec(f.Ctx, "lock table app in access exclusive mode")
		f.Must(err)
		var dump, stderr bytes.Buffer
		cmd := osexec.CommandContext(f.Ctx, program, "--data-only", "--inserts", server.URL)
		cmd.Env = append(cmd.Environ(), env...)
		cmd.Stdout, cmd.Stderr = &dump, &stderr
		f.Must(cmd.Start())
		f.Eventually("the dump waits for the lock", func() bool {
			return f.Number("select count(*) from pg_locks where not granted and relation = 'app'::regclass") == 1
		})
		if n := turned(); n > 0 {
			t.Errorf("%d rings have turned while a dump waits (%q)", n, env)
		}
		for range 6 { // moved, then left, then truncated
			if n := emptied(); n > 0 {
				t.Errorf("%d rings of the queue have turned while a dump waits (%q)", n, env)
			}
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
		for table, payload := range map[string]string{"_lease_": "leased ", "_scheduled_": "delayed ", "_dedup_": "key ", "\"_q.": "left "} {
			found := 0
			for line := range strings.Lines(dump.String()) {
				if strings.HasPrefix(line, "INSERT INTO penstock."+table) &&
					(strings.Contains(line, payload) || strings.Contains(line, hex.EncodeToString([]byte(payload)))) {
					found++
				}
			}
			if found != 100 {
				t.Errorf("%d of 100 rows of %s are in the dump (%q)", found, table, env)
			}
		}
		for _, ring := range []string{"lease", "scheduled", "dedup"} { // who looks for a row after a restore looks where it is
			if !strings.Contains(dump.String(), "setval('penstock._"+ring+"_slot', 3,") {
				t.Errorf("the register of %s lists one segment (%q)", ring, env)
			}
		}
	}
	total := int64(0)
	f.Eventually("the rings turn when the dump is over", func() bool { total += turned(); return total == 3 })
	f.Eventually("those of the queue, too", func() bool { return emptied() == 4 })
}
