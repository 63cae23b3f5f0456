package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/postgres"
)

// pg_dump --jobs locks each table a second time and fails where anybody waits for it
// exclusively. So nobody waits for a segment that a dump has locked.
func TestNobodyWaitsForWhatIsDumped(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	src := f.subscribe()
	f.insert(f.Conn, "k", "one")
	f.insert(f.Conn, "l", "two")
	parked := penstock.Verdict{Outcome: penstock.Parked, Failures: refusedOnce("no"), RetryIn: time.Hour}
	f.settleAll(src, parked, f.fetchSome(src))
	f.Must(src.Close(f.Ctx))
	f.Exec("select penstock._rotate('orders', true)") // what it leaves could be emptied
	f.Exec("select setval('penstock._cursor_slot', 1), setval('penstock._line_slot', 1), setval('penstock._parked_slot', 1)")

	dump := f.begin(f.Connect())
	_, err := dump.Exec(f.Ctx, `set application_name = 'pg_dump'; do $$ declare c regclass; begin
		for c in select oid from pg_class where relnamespace = 'penstock'::regnamespace and relkind = 'r' loop
			execute format('lock table %s in access share mode', c);
		end loop; end $$`)
	f.Must(err)
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
		f.Exec("select penstock._reclaim('orders', 0), penstock._reclaim_cursor(), penstock._reclaim_lines(1), penstock._reclaim_parked(1)")
	}
	cancel()
	if waiting := <-done; waiting > 0 {
		t.Errorf("a lock was waited for, seen %d times", waiting)
	}
	f.Must(dump.Rollback(f.Ctx))
	for _, sql := range []string{"_reclaim('orders', 0)", "_reclaim_cursor()", "_reclaim_lines(1)", "_reclaim_parked(1)"} {
		f.Eventually(sql+" goes on after the dump", func() bool { return f.text("select penstock."+sql+"::text") == "true" })
	}
}
