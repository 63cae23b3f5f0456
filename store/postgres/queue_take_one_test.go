package postgres_test

import (
	"fmt"
	"slices"
	"testing"
)

// later makes what the fast path knows out of date, as 25 ms do.
func (f *fixture) later(queue string) {
	f.Helper()
	f.Exec(`select setval('penstock."_` + queue + `.fast_path"', 0)`)
}

// With many jobs waiting each worker draws its own position. The next look takes the jobs that come
// back behind it, and while there are more of them, they come next.
func TestOneJobAfterARollback(t *testing.T) {
	t.Parallel()
	for _, queue := range []string{"fifo", "lifo"} {
		f := newQueueFixture(t)
		f.enqueue(f.Conn, queue, 1, 1_000)
		f.take(f.Conn, queue, 1) // looks
		holder := f.Connect()
		tx := f.begin(holder)
		var held []int
		for range 3 {
			held = append(held, f.take(holder, queue, 1)...)
		}
		for range 300 {
			f.take(f.Conn, queue, 1)
		}
		f.Must(tx.Rollback(f.Ctx))
		f.later(queue)
		slices.Sort(held)
		if queue == "lifo" {
			slices.Reverse(held)
		}
		for _, want := range held {
			f.wantTake(queue, 1, want)
		}
		if rest := f.takeAll(queue); len(rest) != 1_000-1-3-300 {
			t.Errorf("%s: got %d jobs after that, want %d", queue, len(rest), 1_000-1-3-300)
		}
	}
}

// With few jobs waiting the order is exact: what rolled back is next, at once.
func TestOneJobOfFew(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t)
	f.enqueue(f.Conn, "fifo", 1, 10)
	holder := f.Connect()
	for range 5 {
		tx := f.begin(holder)
		for want := range 4 {
			if got := f.take(holder, "fifo", 1); len(got) != 1 || got[0] != want+1 {
				t.Fatalf("got %v, want %d", got, want+1)
			}
			if want == 2 {
				f.later("fifo") // so that it looks, and sees neither what it took nor that it may come back
			}
		}
		f.Must(tx.Rollback(f.Ctx))
	}
	for want := range 10 {
		f.wantTake("fifo", 1, want+1)
	}
}

// A job that commits behind the position is found by those who take one at a time.
func TestOneJobThatCommitsLate(t *testing.T) {
	t.Parallel()
	for queue, order := range map[string][]int{"fifo": {1, 2}, "lifo": {2, 1}} {
		f := newQueueFixture(t)
		if queue == "lifo" { // among older ones
			f.enqueue(f.Conn, queue, 1_001, 2_000)
		}
		late := f.Connect()
		tx := f.begin(late)
		f.enqueue(late, queue, 1, 2)
		f.enqueue(f.Conn, queue, 101, 1_000)
		for range 500 {
			f.take(f.Conn, queue, 1)
		}
		if queue == "lifo" {
			for range 500 {
				f.take(f.Conn, queue, 1)
			}
		}
		f.Must(tx.Commit(f.Ctx))
		f.later(queue)
		for _, want := range order {
			f.wantTake(queue, 1, want)
		}
	}
}

// The cost of a session's first call is that of loading functions, tables and indexes in PostgreSQL.
func TestTheFirstDequeueOfASessionLoadsLittle(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t)
	for _, queue := range []string{"fifo", "lifo"} {
		f.enqueue(f.Conn, queue, 1, 200)
		f.Eventually("the skip map waits for no transaction", func() bool {
			f.Exec(`select penstock."_` + queue + `.skip_map"('', 0::smallint)`)
			return f.Number(`select count(*) from (select m.pending from penstock._skip_map m join penstock._queue q on q.id = m.queue and q.name = $1
				where m.group_key = '' order by m.n desc limit 1) m where pending = '{}'`, queue) == 1
		})
		f.later(queue)
	}
	// The segment is opened with its indexes, as a delete does; _maintenance gets a row, since maintenance is due.
	const dequeues = "_%[1]s.scan dequeue_%[1]s: _%[1]s.0 _%[1]s.0_group_key_priority_seq_idx _%[1]s.0_id_idx _%[1]s.0_key_id_seq_idx _%[1]s.0_key_seq_idx _%[1]s.0_xid_idx _maintenance _maintenance_0 " +
		"_skip_map_0 _skip_map_0_queue_group_key_priority_n_idx"
	for statement, want := range map[string]string{
		"select id from penstock.dequeue_fifo()": fmt.Sprintf(dequeues, "fifo"),
		"select id from penstock.dequeue_lifo()": fmt.Sprintf(dequeues, "lifo"),
		"select penstock._maintain(1, false)":    "_maintain _q: _queue _queue_name_key _queue_pkey",
	} {
		f.Exec(`select setval('penstock."_fifo.maintained"', 1), setval('penstock."_lifo.maintained"', 1)`) // it is due
		conn := f.Connect()
		f.nextRandom(conn, "random() >= 0.25") // one of four that maintain also sees to the storage
		results, err := conn.PgConn().Exec(f.Ctx, "set track_functions = 'all'; begin; "+statement+`; select
			(select string_agg(proname, ' ' order by proname collate "C") from pg_proc where pronamespace = 'penstock'::regnamespace and pg_stat_get_xact_function_calls(oid) > 0) || ': ' ||
			(select string_agg(relname, ' ' order by relname collate "C") from pg_class where relnamespace = 'penstock'::regnamespace and relkind in ('r', 'p', 'i', 'I')
				and oid in (select relation from pg_locks where pid = pg_backend_pid()))`).ReadAll()
		f.Must(err)
		if got := string(results[3].Rows[0][0]); got != want {
			t.Errorf("%s loads %s\nwant %s", statement, got, want)
		}
		f.Must(conn.Close(f.Ctx))
	}
}

// A dequeue that finds maintenance due leaves it to its commit: what it locks would stay
// locked for as long as the transaction lasts.
func TestMaintenanceWaitsForTheCommit(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2} {
		f := newQueueFixture(t)
		f.enqueue(f.Conn, "fifo", 1, 10)
		f.takeAll("fifo")
		f.Exec("select penstock._maintain_ring('fifo', true)") // the next segment
		f.enqueue(f.Conn, "fifo", 11, 20)
		f.Exec(`select setval('penstock."_fifo.maintained"', 0)`) // long ago
		holder := f.Connect()
		tx := f.begin(holder)
		f.take(holder, "fifo", n)
		if maintained := f.Number(`select pg_sequence_last_value('penstock."_fifo.maintained"')`); maintained != 0 {
			t.Errorf("n=%d: maintained before the commit", n)
		}
		f.Must(tx.Commit(f.Ctx))
		if maintained := f.Number(`select pg_sequence_last_value('penstock."_fifo.maintained"')`); maintained == 0 {
			t.Errorf("n=%d: not maintained by the commit", n)
		}
		if rows := f.Number("select count(*) from penstock._maintenance"); rows != 0 {
			t.Errorf("n=%d: %d rows of _maintenance are left", n, rows)
		}
	}
}

// Maintenance that fails takes no commit with it.
func TestMaintenanceThatFails(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t)
	f.enqueue(f.Conn, "fifo", 1, 2)
	f.Exec(`create or replace function penstock._maintain(queue int, first boolean default false) returns void language plpgsql as $$ begin raise exception 'no'; end $$`)
	f.Exec(`select setval('penstock."_fifo.maintained"', 0)`)
	f.wantTake("fifo", 1, 1)
	f.wantTake("fifo", 1, 2)
}
