package postgres_test

import (
	"math"
	"slices"
	"testing"
)

// later makes what the fast path knows out of date, as 25 ms do.
func (f *fixture) later(queue string) {
	f.Helper()
	f.Exec(`select setval('penstock."_` + queue + `.fast_path"', 0)`)
}

// With many jobs waiting each worker draws a position of his own. What comes back
// behind it is taken by the next look, and while there is more of it, next.
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

// What a session's first call costs is what it makes PostgreSQL load: the pages that it touches are
// nearly all of the catalogue.
func TestTheFirstDequeueOfASessionLoadsLittle(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t)
	f.enqueue(f.Conn, "fifo", 1, 200)
	f.enqueue(f.Conn, "lifo", 1, 200)
	for statement, most := range map[string]int{
		"select id from penstock.dequeue_fifo()": 1_250,
		"select id from penstock.dequeue_lifo()": 1_250,
		"select penstock._maintain(1, false)":    950,
	} {
		fewest := math.MaxInt
		for tries := 0; fewest > most && tries < 20; tries++ { // more is loaded where another transaction was open at the last scan, or another test changed the catalogue
			for _, queue := range []string{"fifo", "lifo"} {
				f.later(queue)
				f.take(f.Conn, queue, 1)
				f.later(queue)
			}
			f.Exec(`select setval('penstock."_fifo.maintained"', 1)`)
			conn := f.Connect()
			fewest = min(fewest, f.pagesOn(conn, "begin; explain (analyze, buffers, format json) "+statement))
			f.Must(conn.Close(f.Ctx))
		}
		t.Logf("%s: %d pages", statement, fewest)
		if fewest > most {
			t.Errorf("%s touched %d pages as the first of a session, want at most %d", statement, fewest, most)
		}
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

// Maintenance that fails takes nobody's commit with it.
func TestMaintenanceThatFails(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t)
	f.enqueue(f.Conn, "fifo", 1, 2)
	f.Exec(`create or replace function penstock._maintain(queue int, first boolean default false) returns void language plpgsql as $$ begin raise exception 'no'; end $$`)
	f.Exec(`select setval('penstock."_fifo.maintained"', 0)`)
	f.wantTake("fifo", 1, 1)
	f.wantTake("fifo", 1, 2)
}
