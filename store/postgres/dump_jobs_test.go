package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/postgres"
)

// pg_dump --jobs locks each table a second time and fails where a session waits for it
// exclusively. So no session waits for a segment that a dump has locked.
func TestNothingWaitsForADump(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	src := f.subscribe()
	f.insert(f.Conn, "k", "one")
	f.insert(f.Conn, "l", "two")
	parked := driver.Verdict{Outcome: driver.Parked, Failures: refusedOnce("no"), RetryIn: time.Hour}
	f.settleAll(src, parked, f.fetchSome(src))
	f.Must(src.Close(f.Ctx))
	f.Exec("select penstock._rotate('orders', true)") // what it leaves could be emptied
	f.Exec("select setval('penstock._cursor_slot', 1), setval('penstock._parked_key_slot', 1), setval('penstock._parked_slot', 1)")

	f.Exec("select penstock.create_queue('q', 'fifo', 4, 65536)")
	f.leaveBehind("select")
	f.Exec("select penstock.enqueue('q', 'x', not_before => now() + '1 h', dedup_key => 'x'), penstock.enqueue('q', 'y')")
	f.Exec("select penstock.retry('q', lease) from penstock.claim('q')")
	f.Exec("delete from penstock._scheduled; delete from penstock._dedup; select setval('penstock._lease_slot', 1), setval('penstock._scheduled_slot', 1), setval('penstock._dedup_slot', 1)", pgx.QueryExecModeSimpleProtocol)
	maintenance := func() {
		f.Helper()
		f.Exec("update penstock._pair set again = null")
		f.Exec(maintainAtOnce, pgx.QueryExecModeSimpleProtocol)
		f.Exec("select penstock._reclaim_pairs()")
	}
	const segments = `unnest('{_q.0,_lease_0,_scheduled_0,_dedup_0}'::text[]) s`
	emptied := func() int64 {
		f.Helper()
		return f.Number("select count(*) from " + segments + " where pg_relation_size(format('penstock.%I', s)) = 0")
	}
	files := func() string { // which TRUNCATE makes anew; a vacuum may also leave a table without a page
		f.Helper()
		return f.text("select string_agg(pg_relation_filenode(format('penstock.%I', s))::text, ' ') from " + segments)
	}

	dump := f.begin(f.Connect())
	_, err := dump.Exec(f.Ctx, `set application_name = 'pg_dump'; do $$ declare c regclass; begin
		for c in select oid from pg_class where relnamespace = 'penstock'::regnamespace and relkind = 'r' loop
			execute format('lock table %s in access share mode', c);
		end loop; end $$`)
	f.Must(err)
	before := files()
	ctx, cancel := context.WithCancel(f.Ctx)
	done := make(chan int)
	watch := f.Connect()
	go func() {
		waiting := 0
		for ctx.Err() == nil {
			var n int
			if err := watch.QueryRow(f.Ctx, "select count(*) from pg_locks where not granted and locktype = 'relation' and database = (select oid from pg_database where datname = current_database())").Scan(&n); err != nil {
				t.Error(err)
			}
			waiting += n
		}
		done <- waiting
	}()
	for range 20 {
		f.Exec("select penstock._reclaim('orders', 0), penstock._reclaim_cursor(), penstock._reclaim_parked_keys(1), penstock._reclaim_parked(1)")
		maintenance()
	}
	cancel()
	if waiting := <-done; waiting > 0 {
		t.Errorf("a lock was waited for, seen %d times", waiting)
	}
	if now := files(); now != before {
		t.Errorf("segments of the queue that a dump reads were truncated: files %s, now %s", before, now)
	}
	f.Must(dump.Rollback(f.Ctx))
	for _, sql := range []string{"_reclaim('orders', 0)", "_reclaim_cursor()", "_reclaim_parked_keys(1)", "_reclaim_parked(1)"} {
		f.Eventually(sql+" goes on after the dump", func() bool { return f.text("select penstock."+sql+"::text") == "true" })
	}
	f.Eventually("the rings of the queue go on, too", func() bool { maintenance(); return emptied() == 4 })
}
