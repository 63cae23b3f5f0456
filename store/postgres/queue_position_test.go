package postgres_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/store/postgres"
)

// Two sessions that take one after the other get the jobs in exact order, also where the ring turns and one of them has not committed.
// Positions that were drawn for another segment are given back. The test has the clock and the seed of random() in its hands.
func TestTwoSessionsTakeInOrder(t *testing.T) {
	t.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	f := newFixture(t, postgres.Options{})
	f.Exec("select penstock.create_queue('fifo', segments => 4, segment_bytes => 65536)")
	f.Exec(`create sequence public.clock;
		create function public.now() returns timestamptz language sql return to_timestamp(nextval('public.clock') / 1e6)`, pgx.QueryExecModeSimpleProtocol)
	f.rewrite(`(pg_catalog\.)?clock_timestamp\(\)`, "public.now()")
	random := testseed.New(t.Name(), 0)
	holder := f.Connect()
	for _, conn := range []*pgx.Conn{f.Conn, holder} {
		_, err := conn.Exec(f.Ctx, "select setseed($1)", random.Float64())
		f.Must(err)
	}
	later := func(ms int) { f.Exec("select setval('public.clock', nextval('public.clock') + 1000 * $1)", ms) }
	calls := []string{"dequeue('fifo', %d)", "claim('fifo', %d)", "ack_claim('fifo', '{}', %d)"}[:1+random.IntN(3)]
	var open pgx.Tx
	last, want := 0, 0
	for range testseed.Steps(1_000) {
		if last-want < 200 {
			more := 1 + random.IntN(400)
			f.enqueue(f.Conn, "fifo", last+1, last+more)
			last += more
		}
		switch random.IntN(12) {
		case 0, 1:
			f.Exec("select penstock._maintain_ring('fifo', true)")
		case 2:
			later(25 << random.IntN(5))
		case 3:
			if open != nil {
				f.Must(open.Commit(f.Ctx))
				open = nil
			}
		case 4, 5, 6, 7:
			later(9)
		}
		conn, n := f.Conn, min(1+random.IntN(2)*random.IntN(30), last-want)
		if random.IntN(3) == 0 {
			if conn = holder; open == nil {
				open = f.begin(holder)
			}
		}
		call := fmt.Sprintf(calls[random.IntN(len(calls))], n)
		rows, err := conn.Query(f.Ctx, "select convert_from(payload, 'UTF8')::int from penstock."+call)
		f.Must(err)
		jobs, err := pgx.CollectRows(rows, pgx.RowTo[int])
		f.Must(err)
		if len(jobs) != n {
			t.Fatalf("%s: got %d jobs behind %d of %d", call, len(jobs), want, last)
		}
		for _, job := range jobs {
			if want++; job != want {
				t.Fatalf("%s: got job %d, want %d", call, job, want)
			}
		}
	}
}

// Positions that were drawn while their jobs were in another segment leave none of them behind, however many they are.
func TestPositionsWithoutAJob(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t)
	f.stopClock()
	f.enqueue(f.Conn, "fifo", 1, 2_000)
	want := 0
	for ahead := range 24 {
		for _, calls := range [][]int{{10, 1}, {1, 10}} {
			f.later("fifo")
			f.Exec(`select setval('penstock."_fifo.next"', $1)`, want+ahead+1)
			for _, n := range calls {
				for _, job := range f.take(f.Conn, "fifo", n) {
					if want++; job != want {
						t.Fatalf("got job %d of a call for %d behind %d positions, want %d", job, n, ahead+1, want)
					}
				}
			}
		}
	}
}

// A transaction that has acked takes jobs without waiting for one, because the session that takes the same one may end a job of the
// same row. A function holds the moment between look and DELETE open in which two sessions would meet.
func TestTakingAfterAnAckDoesNotWait(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"penstock.claim('q', 10)", "penstock.ack_claim('q', '{}', 10)", "penstock.dequeue('q')"} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			f, leases := inOneRow(t)
			f.Exec(`create function penstock.gate() returns boolean language plpgsql as $$ begin
					if pg_catalog.current_setting('test.gate', true) = 'on' then perform pg_catalog.pg_advisory_xact_lock_shared(7); end if;
					return true;
				end $$`)
			f.rewrite(`t\.xmax (=|operator\(pg_catalog\.=\)) '0'`, `\& and penstock.gate()`)
			f.Exec("select pg_advisory_lock(7)")
			at := f.Number(`select pg_sequence_last_value('penstock."_q.next"')`)
			send := func(conn *pgx.Conn, sql string) <-chan error {
				f.Exec(`select setval('penstock."_q.next"', $1)`, at)
				f.fromPosition(0)
				ended := make(chan error, 1)
				go func() { _, err := conn.Exec(f.Ctx, sql); ended <- err }()
				return ended
			}
			waits := func(conn *pgx.Conn) bool {
				return f.Number("select count(*) from pg_stat_activity where pid = $1 and (wait_event_type = 'Lock' or state = 'idle in transaction')", conn.PgConn().PID()) == 1
			}
			mine, other := f.Connect(), f.Connect()
			first := f.begin(mine)
			f.run(first, "set local test.gate = 'on'")
			f.run(first, "select penstock.ack('q', $1)", leases[0])
			taken := send(mine, "select from "+call)
			f.Eventually("the first session has taken jobs, or is at the gate", func() bool { return waits(mine) })
			second := f.begin(other)
			ended := send(other, fmt.Sprintf("select from penstock.ack_claim('q', '{%d}', 10)", leases[1]))
			f.Eventually("the second session waits for the row that they share", func() bool { return waits(other) })
			f.Exec("select pg_advisory_unlock(7)")
			f.Must(<-taken)
			f.Must(first.Commit(f.Ctx))
			f.Must(<-ended)
			f.Must(second.Commit(f.Ctx))
		})
	}
}
