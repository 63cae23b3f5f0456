package postgres_test

import (
	"fmt"
	"testing"

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
