package postgres_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/store/postgres"
)

// reads is how many entries of indexes and rows of tables a statement reads, of which most come
// from functions that it calls.
func (f *fixture) reads(sql string, args ...any) int64 {
	f.Helper()
	tx := f.begin(f.Conn)
	defer func() { f.Must(tx.Commit(f.Ctx)) }()
	return f.readsIn(tx, sql, args...)
}

func (f *fixture) readsIn(tx pgx.Tx, sql string, args ...any) int64 {
	f.Helper()
	count := func() (n int64) {
		f.Must(tx.QueryRow(f.Ctx, `select coalesce(sum(pg_stat_get_xact_tuples_returned(c.oid)), 0)::bigint from pg_class c
			where c.relnamespace = 'penstock'::regnamespace and c.relkind in ('r', 'i')`).Scan(&n))
		return n
	}
	before := count()
	_, err := tx.Exec(f.Ctx, sql, args...)
	f.Must(err)
	return count() - before
}

// A group under a limit, and a barrier, have a row for each change. Maintenance finds the rows to keep without reading all of them again for each.
func TestReclaimReadsEachRowAFewTimes(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.set_group('q', '', max_running => 2), penstock.enqueue('q', 'x')")
	lease := f.claim(1)[0].lease
	b := f.heldBy("a")
	const rows = 1000
	f.Exec("insert into penstock._group_state (queue, group_key, leases) select q.id, '', array[$1::bigint] from penstock._queue q, generate_series(1, $2)", lease, rows)
	f.Exec("insert into penstock._barrier (barrier, queue, part, running, dead, xid) select $1, q.id, 16 + i % 2, 1, 0, '3' from penstock._queue q, generate_series(1, $2) i", b, rows)
	for ring, alive := range map[string]string{"_group_state": `\('_group_state', .*?'(not exists.*?n > r\.n\)\))'`, "_barrier": `(case when r\.part = -1.*?r\.n < s\.n\)\) end)`} {
		alive = f.text("select substring(prosrc from $1) from pg_proc where proname = '_reclaim_pairs'", alive)
		f.Exec("select penstock._reclaim_pair($1, 1, $2)", ring, alive) // turns
		if n := f.Number(fmt.Sprintf("select count(*) from penstock.%s where slot = pg_sequence_last_value('penstock.%[1]s_slot') %% 2", ring)); n != 0 {
			t.Fatalf("%s has not turned: %d rows", ring, n)
		}
		f.Exec("update penstock._pair set again = null")
		if n := f.reads("select penstock._reclaim_pair($1, 1, $2)", ring, alive); n > 20*rows {
			t.Errorf("%s: to find what is left of %d rows it reads %d", ring, rows, n)
		}
		if n := f.Number(fmt.Sprintf("select count(*) from penstock.%s where slot = pg_sequence_last_value('penstock.%[1]s_slot') %% 2", ring)); n == 0 || n > rows {
			t.Errorf("%s: %d rows are left", ring, n)
		}
	}
}

// Maintenance reads each note of a barrier that has been counted, and neither looks it up nor compares it with those that have not been
// counted. The planner
// takes them for a million, with a 64th of the memory.
func TestReclaimLooksUpNoCountedNote(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	b := f.Number("select penstock.barrier('q')")
	const rows = 20000
	note := func(n int) {
		f.Helper()
		f.Exec("alter table penstock._barrier disable trigger turn")
		f.Exec("insert into penstock._barrier (barrier, queue, part, running, dead) select $1, q.id, -1, 1, 0 from penstock._queue q, generate_series(1, $2::int) where q.name = 'q'", b, n)
		f.Exec("alter table penstock._barrier enable trigger turn")
	}
	note(rows)
	f.Exec("select penstock.enqueue('q', 'x', holds => $1)", b) // counts them
	note(100)
	f.Exec("analyze penstock._barrier_0")
	f.Exec("update pg_class set reltuples = 1000000 where oid = 'penstock._barrier_0'::regclass")
	alive := f.text(`select substring(prosrc from '(case when r\.part = -1.*?r\.n < s\.n\)\) end)') from pg_proc where proname = '_reclaim_pairs'`)
	f.Exec("select penstock._reclaim_pair('_barrier', 1, $1)", alive) // turns
	f.Exec("update penstock._pair set again = null")
	lookups := func() int64 {
		return f.Number("select sum(pg_stat_get_xact_numscans(i.indexrelid))::bigint from pg_index i where i.indrelid in ('penstock._barrier_0'::regclass, 'penstock._barrier_1'::regclass)")
	}
	f.Exec("begin")
	f.Exec("set local work_mem = '64kB'; set local hash_mem_multiplier = 1")
	before := lookups()
	f.Exec("select penstock._reclaim_pair('_barrier', 1, $1)", alive)
	n := lookups() - before
	f.Exec("rollback")
	if n == 0 || n > 1000 {
		t.Errorf("of %d notes that have been counted it looked up %d", rows, n)
	}
	if n := stepsOn(f)("set work_mem = '64kB'; set hash_mem_multiplier = 1; select penstock._reclaim_pair('_barrier', 1, '" + strings.ReplaceAll(alive, "'", "''") + "')"); n < rows || n > 20*rows {
		t.Errorf("with %d notes that have been counted it took %.0f steps", rows, n)
	}
}

// Maintenance is part of a worker's claim. It moves jobs that are due, and reads none that are not, however many
// there are. That holds for each step, those included that look at all now and then.
func TestMaintenanceReadsNothingThatWaits(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.Exec("select penstock.keep_samples('0')") // a sample reads a thousand entries, once a minute
	many, most := 10000, int64(1000)
	if testseed.Long() {
		many = 100_000
		most = 70_000 // before a ring of two segments turns, 20,000 rows of it are counted and a hundred pages sampled; then not for 200 times as long
	}
	const scheduled = `insert into penstock._scheduled (queue, id, attempt, due, created_at, priority, group_key, key, payload)
		select q.id, 1000000 + i, %s from penstock._queue q, generate_series(1, $2::int) i where q.name = $1`
	kinds := []struct{ name, fill string }{
		{"delayed", fmt.Sprintf(scheduled, "0, now() + interval '1 day', now(), 0, '', null, 'x'")},
		{"delayed, of keys", fmt.Sprintf(scheduled, "0, now() + interval '1 day', now(), 0, '', 'key ' || i, 'x'")},
		{"delayed, of a key", fmt.Sprintf(scheduled, "0, now() + interval '1 day', now(), 0, '', 'key', 'x'")},
		{"retried", fmt.Sprintf(scheduled, "1, now() + interval '1 day', now(), 0, '', 'key ' || i, 'x'")},
		{"waiting for keys", fmt.Sprintf(scheduled, "0, 'infinity', now(), 0, '', 'key ' || i, 'x'")},
		{"waiting for a key", fmt.Sprintf(scheduled, "0, 'infinity', now(), 0, '', 'key', 'x'")},
		{"leased", `insert into penstock._lease (queue, id, attempt, lease_until, created_at, priority, worker, group_key, key, payload)
			select q.id, 1000000 + i, 1, now() + interval '1 day', now(), 0, '', '', 'key ' || i, 'x' from penstock._queue q, generate_series(1, $2::int) i where q.name = $1`},
		{"dead", `insert into penstock._dead_job (queue, id, attempt, created_at, priority, group_key, key, payload, failures)
			select q.id, 1000000 + i, 1, now(), 0, '', 'key ' || i, 'x', '[]' from penstock._queue q, generate_series(1, $2::int) i where q.name = $1`},
		{"dedup keys", `insert into penstock._dedup (queue, id, dedup_key) select q.id, i, i from penstock._queue q, generate_series(1, $2::int) i where q.name = $1`},
		{"ready", `select penstock.enqueue_many($1, array_agg('x'::text)) from generate_series(1, $2::int)`},
		{"of keys", `select penstock.enqueue_many($1, array_agg('x'::text), keys => array_agg('key ' || i)) from generate_series(1, $2::int) i`},
		{"of priorities", `select penstock.enqueue_many($1, array_agg('x'::text), priorities => array_agg(i % 32 - 16)) from generate_series(1, $2::int) i`},
		{"in groups", `with jobs as (select penstock.enqueue_many($1, array_agg('x'::text), group_keys => array_agg('group ' || i)) from generate_series(1, $2::int) i)
			insert into penstock._skip_map (queue, base, seen, xid, turn, priority, group_key, lo, hi, pending, slots)
			select q.id, 0, 0, pg_current_xact_id(), -1, 0, 'group ' || i, '{0}', '{9223372036854775806}', '{}', '{0}' from penstock._queue q, generate_series(1, $2::int) i where q.name = $1`},
		{"done", `with kept as (select penstock.set_queue($1, keep_done => '1 day')) select $2::int from kept`},
	}
	for _, kind := range kinds {
		f.Exec("select penstock.create_queue($1)", kind.name)
		f.Exec("select penstock.enqueue($1, 'x', 'key 0'), penstock.enqueue($1, 'x')", kind.name)
		f.Exec("select penstock.ack_many($1, array(select lease from penstock.claim($1, 2)))", kind.name)
		measure := func() (most int64) {
			for _, state := range []string{"maintained", "maintained", "seen"} {
				f.Exec(fmt.Sprintf(`select setval('penstock."_%s.%s"', %s)`, kind.name, state, map[string]string{"maintained": "0", "seen": "1"}[state]))
				most = max(most, f.reads("select penstock.maintain_queue($1)", kind.name))
			}
			return most
		}
		before := measure()
		f.Exec(kind.fill, kind.name, many)
		if kind.name == "done" {
			f.Exec(`insert into penstock."_done.done" (claimed_at, worker, group_key, priority, id, attempt, created_at)
				select now(), '', '', 0, i, 1, now() from generate_series(1, $1::int) i`, many)
		}
		after := measure()
		t.Logf("%s: %d before, %d after", kind.name, before, after)
		if after > before+most {
			t.Errorf("beside %d jobs that are %s maintenance reads %d entries, %d without them", many, kind.name, after, before)
		}
	}
}

// A round of maintenance moves at most 10,000 jobs that are due, or whose leases have ended, and reads nothing of the rest: 500 are
// read at a time.
func TestMaintenanceOfManyAtOnce(t *testing.T) {
	t.Parallel()
	const many = 12_000
	for _, kind := range []struct{ name, fill string }{
		{"due", `insert into penstock._scheduled (queue, id, attempt, due, created_at, priority, group_key, payload)
			select q.id, 1000000 + i, 0, now() - interval '1 second', now(), 0, '', 'x' from penstock._queue q, generate_series(1, $1::int) i where q.name = 'q'`},
		{"ended", `insert into penstock._lease (queue, id, attempt, lease_until, created_at, priority, worker, group_key, payload)
			select q.id, 1000000 + i, 1, now() - interval '1 second' - i * interval '1 microsecond', now(), 0, '', '', 'x' from penstock._queue q, generate_series(1, $1::int) i where q.name = 'q'`},
	} {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			f := newJobs(t, "fifo")
			f.Exec("select penstock.keep_samples('0')") // a sample reads a thousand entries, once a minute
			f.Exec(kind.fill, many)
			f.Exec("analyze penstock._scheduled, penstock._lease")
			f.Exec(`select setval('penstock."_q.maintained"', 0)`)
			reads := f.reads("select penstock.maintain_queue('q')")
			moved := f.Number("select count(*) from penstock.q")
			if moved < 500 || moved > 10_000 {
				t.Errorf("one round moved %d of %d jobs, want 500 to 10,000", moved, many)
			}
			if most := 5 * moved; reads > most {
				t.Errorf("it read %d entries for %d jobs, want %d at most", reads, moved, most)
			}
			t.Logf("%d entries for %d jobs", reads, moved)
		})
	}
}

// A job that ends while its key is locked leaves the next one of the key to the maintenance, which takes it once it can.
// So it is also where the session that ends it keeps a snapshot, and where a ring turns meanwhile. A dropped queue leaves
// nothing behind.
func TestKeysLeftToTheMaintenance(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	other := f.begin(f.Connect())
	lock := "select pg_advisory_xact_lock(hashtextextended('k', id)) from penstock._queue where name = 'q'"
	f.Exec("select penstock.enqueue_many('q', '{a,b,c}', keys => '{k,k,k}')")
	first := f.wantClaim(3, 1)[0]
	f.wantClaim(3) // the others wait for it
	_, err := other.Exec(f.Ctx, lock)
	f.Must(err)
	f.Exec("select penstock.ack('q', $1)", first.lease)
	f.maintain()
	f.Exec("select penstock._reclaim_pair('_scheduled', 1, 'true')") // seals a segment
	for range 3 {
		f.Exec("update penstock._pair set again = null")
		f.maintain()
		f.Exec("select penstock._reclaim_pair('_scheduled', 1, 'true')")
	}
	f.wantText("2", "select count(*)::text from penstock._scheduled where due = 'infinity'")
	f.Must(other.Commit(f.Ctx))
	f.maintain()
	second := f.wantClaim(3, 2)[0]
	f.wantClaim(3)

	keeps := f.Connect()
	_, err = keeps.Exec(f.Ctx, "begin isolation level repeatable read; select penstock.ack('q', "+fmt.Sprint(second.lease)+")")
	f.Must(err)
	f.maintain()
	_, err = keeps.Exec(f.Ctx, "commit")
	f.Must(err)
	f.maintain()
	f.wantClaim(3, 3)
	f.Exec("select penstock.drop_queue('q')")
	f.wantText("0", "select count(*)::text from penstock._scheduled")
}

// A worker that finds maintenance locked for long also does it. How long counts from its end: otherwise many would go over the
// same.
func TestMaintenanceIsRecentFromItsEnd(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue('q', 'a', not_before => now() + interval '1 h')")
	f.Exec(`create function slow() returns trigger language plpgsql as $$ begin perform pg_sleep(0.3); return new; end $$`)
	f.Exec("create trigger slow before insert on penstock.q for each row execute function slow()")
	f.Exec("update penstock._scheduled set due = now()")
	before := f.Number("select (extract(epoch from clock_timestamp()) * 1000)::bigint")
	f.maintain()
	if last := f.Number(`select pg_sequence_last_value('penstock."_q.maintained"')`); last < before+300 {
		t.Errorf("maintenance that took 300 ms at least is noted %d ms after its beginning", last-before)
	}
	f.wantClaim(9, 1)
}

// Of tens of thousands of groups with skip maps the ring of these takes a piece at a time, and does not turn again and again.
func TestSkipMapsOfManyGroupsTurnInPieces(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.keep_samples('0')") // a sample looks at a thousand groups
	const lanes = 25000
	fill := `insert into penstock._skip_map (queue, base, seen, xid, turn, priority, group_key, lo, hi, pending, slots)
		select q.id, $2, 0, pg_current_xact_id(), -1, 0, 'group ' || i, '{0}', '{9223372036854775806}', '{}', '{0}' from penstock._queue q, generate_series(1, $1::int) i where q.name = 'q'`
	f.Exec(fill, lanes, 1)
	f.Exec(fill, lanes, 2)
	f.Exec("insert into penstock._skip_map (queue, base, seen, xid, turn, priority, group_key, lo, hi, pending, slots) select 0, 0, 0, '0', 0, 0, 'of a queue that is gone', '{0}', '{1}', '{}', '{}'")
	slot := func() int64 { return f.Number("select pg_sequence_last_value('penstock._skip_map_slot')") }
	maintain := func() {
		f.Helper()
		f.Exec(`select setval('penstock."_q.maintained"', 0)`)
		if n := f.reads("select penstock.maintain_queue('q')"); n > 10000 {
			t.Fatalf("maintenance reads %d entries", n)
		}
	}
	for calls := 0; slot() == 0; calls++ {
		if calls > lanes/1000+5 {
			t.Fatalf("it has not turned after %d calls", calls)
		}
		maintain()
	}
	f.wantText(fmt.Sprint(lanes), "select count(*)::text from penstock._skip_map_1 where base = 2")
	f.wantText("0", "select count(*)::text from penstock._skip_map_1 where queue = 0")
	maintain() // the other segment is truncated
	for range 5 {
		maintain()
		f.wantText("0", "select pg_relation_size('penstock._skip_map_0')::text")
	}
}
