package postgres_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/store/postgres"
)

// pagesOf is how many pages of Penstock's tables and their indexes a statement reads, which is rolled back.
func (f *fixture) pagesOf(sql string) int {
	f.Helper()
	pages := f.pagesOn(f.Conn, "begin", sql)
	f.Exec("rollback")
	return pages
}

// A job is cancelled without reading the others: those that wait, those that were
// taken and that a snapshot keeps, and those that are put off.
func TestCancelTouchesFewPages(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.Exec("select penstock.create_queue('q')")
	pinned := f.begin(f.Connect())
	_, err := pinned.Exec(f.Ctx, "set transaction isolation level repeatable read")
	f.Must(err)
	_, err = pinned.Exec(f.Ctx, "select count(*) from pg_class")
	f.Must(err)
	enqueue := func(n int, more string) {
		f.Exec(fmt.Sprintf("select count(penstock.enqueue('q', repeat('x', 200)%s)) from generate_series(1, %d) n", more, n))
	}
	enqueue(3000, "")                                         // ids 1 to 3000, which are taken
	enqueue(5000, "")                                         // 3001 to 8000
	enqueue(2000, ", group_key => 'account ' || n % 3")       // 8001 to 10000, of groups from which no job was taken
	enqueue(3000, ", not_before => now() + interval '1 day'") // 10001 to 13000
	for range 100 {
		f.Exec("select count(*) from penstock.dequeue('q', 30)")
	}
	f.Exec("select penstock.retry('q', $1, '0', 'again')", f.wantClaim(1, 3001)[0].lease)
	f.Exec("select penstock.cancel('q', '{0}')") // plans, once per session
	const (
		groups = 4 + 1                          // none behind them
		most   = groups*4*rowPages + 8*rowPages // of each the next skip map in two segments, the next group and the job; and the job by its id wherever it may be
	)
	whole := int(f.Number("select pg_relation_size('penstock.\"_q.0\"') / 8192"))
	for what, id := range map[string]int{"waits": 5000, "waits in a group": 9000, "was taken": 17, "came back": 3001, "is put off": 12000, "does not exist": 99999} {
		if pages := f.pagesOf(fmt.Sprintf("select penstock.cancel('q', '{%d}')", id)); pages > most {
			t.Errorf("to cancel a job that %s reads %d pages, want at most %d of %d", what, pages, most, whole)
		} else {
			t.Logf("a job that %s: %d pages of %d", what, pages, whole)
		}
	}
	f.wantText("4", "select penstock.cancel('q', '{5000,9000,3001,12000}')::text")
	f.wantText("0", "select penstock.cancel('q', '{5000,9000,3001,12000}')::text") // they are gone
	f.wantText("3", "select penstock.cancel('q', '{5001,9001,12001}')::text")
}

// With more groups than it pays to look into, or more ids, the queue is read.
func TestCancelInManyGroups(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "lifo")
	f.Exec("select count(penstock.enqueue('q', 'x', group_key => 'g' || n)) from generate_series(1, 1500) n")
	f.wantText("2", "select (penstock.cancel('q', '{999}') + penstock.cancel('q', '{4}'))::text") // the last group, in the order of the index
	f.Exec("select count(penstock.enqueue('q', 'x', key => 'k' || n)) from generate_series(1, 1500) n")
	f.Exec("select penstock.retry('q', $1, '0', 'again')", f.wantClaim(1, 3000)[0].lease)
	f.wantText("4", "select penstock.cancel('q', '{1,1500,2000,3000,3001,4}')::text")
	f.wantText("2994", "select penstock.cancel('q', array(select n from generate_series(1, 5000) n))::text")
	f.wantText("0", "select count(*)::text from penstock.q")
}

// A job that comes back to its segment while a cancel waits for another one, which a transaction has, is removed as well.
func TestCancelOfAJobThatComesBack(t *testing.T) {
	t.Parallel()
	for other, table := range map[string]string{"came back": "penstock.q", "is put off": "penstock._scheduled"} {
		t.Run(other, func(t *testing.T) {
			t.Parallel()
			f := newJobs(t, "fifo")
			f.Exec("select penstock.enqueue('q', 'comes back'), penstock.enqueue('q', 'other')")
			jobs := f.wantClaim(2, 1, 2)
			f.Exec("select penstock.release('q', $1, case when $2 then interval '1 day' end)", jobs[1].lease, table != "penstock.q")
			locked := f.begin(f.Connect())
			_, err := locked.Exec(f.Ctx, "select from "+table+" where id = 2 for update")
			f.Must(err)
			conn := f.Connect()
			pid := conn.PgConn().PID()
			cancelled := make(chan error, 1)
			n := 0
			go func() { cancelled <- conn.QueryRow(f.Ctx, "select penstock.cancel('q', '{1,2}')").Scan(&n) }()
			f.Eventually("the cancel waits", func() bool { return f.Number("select cardinality(pg_blocking_pids($1))", pid) > 0 })
			f.Exec("select penstock.release('q', $1)", jobs[0].lease)
			f.Must(locked.Rollback(f.Ctx))
			f.Must(<-cancelled)
			if left := f.Number("select count(*) from penstock.q"); n != 2 || left > 0 {
				t.Errorf("%d jobs were cancelled and %d are left, want 2 and none", n, left)
			}
		})
	}
}

// Both jobs were in their segment when the cancel began, which waits for a third one. Meanwhile they are claimed, and one is put off. While the cancel waits
// for that one, the other comes back.
func TestCancelOfAJobThatGoesAndComesBack(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue('q', 'goes and comes back'), penstock.enqueue('q', 'is put off'), penstock.enqueue('q', 'other')")
	first, second, conn := f.begin(f.Connect()), f.begin(f.Connect()), f.Connect()
	f.run(first, "select from penstock.q where seq = 3 for update")
	cancelled, n := make(chan error, 1), 0
	go func() { cancelled <- conn.QueryRow(f.Ctx, "select penstock.cancel('q', '{3,1,2}')").Scan(&n) }()
	waitsFor := func(tx pgx.Tx) {
		t.Helper()
		f.Eventually("the cancel waits", func() bool {
			return f.Number("select count(*) from unnest(pg_blocking_pids($1)) pid where pid = $2", conn.PgConn().PID(), tx.Conn().PgConn().PID()) > 0
		})
	}
	waitsFor(first)
	jobs := f.wantClaim(2, 1, 2)
	f.Exec("select penstock.release('q', $1, '1 day')", jobs[1].lease)
	f.run(second, "select from penstock._scheduled where id = 2 for update")
	f.Must(first.Rollback(f.Ctx))
	waitsFor(second)
	f.Exec("select penstock.release('q', $1)", jobs[0].lease)
	f.Must(second.Rollback(f.Ctx))
	f.Must(<-cancelled)
	if left := f.Number("select count(*) from penstock.q"); n != 3 || left > 0 {
		t.Errorf("%d jobs were cancelled and %d are left, want 3 and none", n, left)
	}
}
