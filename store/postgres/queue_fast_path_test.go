package postgres_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/test/testseed"
)

// One worker gets the jobs in exact order, however many come between and whenever he
// looks.
func TestOneWorkerTakesInOrder(t *testing.T) {
	t.Parallel()
	t.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	for _, queue := range []string{"fifo", "lifo"} {
		t.Run(queue, func(t *testing.T) {
			t.Parallel()
			f := newQueueFixture(t)
			random := testseed.New(t.Name(), 0)
			var waiting []int
			last := 0
			more := func(n int) {
				f.enqueue(f.Conn, queue, last+1, last+n)
				for range n {
					last++
					waiting = append(waiting, last)
				}
			}
			more(300)
			for range testseed.Steps(600) {
				switch random.IntN(20) {
				case 0:
					more(1 + random.IntN(20))
				case 1:
					more(1)
				case 2:
					f.later(queue)
				}
				n := 1
				if queue == "fifo" && random.IntN(10) == 0 {
					n = 1 + random.IntN(30)
				}
				n = min(n, len(waiting))
				if n == 0 {
					continue
				}
				var want []int
				if queue == "fifo" {
					want, waiting = slices.Clone(waiting[:n]), waiting[n:]
				} else {
					want, waiting = slices.Clone(waiting[len(waiting)-1:]), waiting[:len(waiting)-1]
				}
				f.wantTake(queue, n, want...)
			}
		})
	}
}

// Workers who take one, workers who take many, and transactions that roll back share the
// registers: each job is taken once, and none is left.
func TestWorkersShareTheFastPath(t *testing.T) {
	t.Parallel()
	t.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	for _, queue := range []string{"fifo", "lifo"} {
		t.Run(queue, func(t *testing.T) {
			t.Parallel()
			f := newQueueFixture(t)
			const jobs = 6_000
			f.enqueue(f.Conn, queue, 1, jobs/2)
			var mu sync.Mutex
			taken := map[int]int{}
			var workers sync.WaitGroup
			work := func(worker int, conn *pgx.Conn) {
				random := testseed.New(t.Name(), worker)
				for {
					n := 1
					if random.IntN(8) == 0 {
						n = 1 + random.IntN(50)
					}
					tx, err := conn.Begin(f.Ctx)
					if err != nil {
						t.Error(err)
						return
					}
					rows, _ := tx.Query(f.Ctx, "select convert_from(payload, 'UTF8')::int from penstock.dequeue($1, $2)", queue, n)
					got, err := pgx.CollectRows(rows, pgx.RowTo[int])
					if err == nil && random.IntN(20) == 0 {
						err, got = tx.Rollback(f.Ctx), nil
					} else if err == nil {
						err = tx.Commit(f.Ctx)
					}
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					for _, job := range got {
						taken[job]++
					}
					done := len(taken) >= jobs
					mu.Unlock()
					if done {
						return
					}
				}
			}
			for worker := range 6 {
				conn := f.Connect()
				workers.Go(func() { work(worker, conn) })
			}
			for at := jobs / 2; at < jobs; at += 50 {
				f.enqueue(f.Conn, queue, at+1, at+50)
			}
			workers.Wait()
			for job, times := range taken {
				if times != 1 {
					t.Errorf("job %d was taken %d times", job, times)
				}
			}
			if rest := f.takeAll(queue); len(rest) != 0 {
				t.Errorf("%d jobs are left", len(rest))
			}
		})
	}
}

// stopClock has the time of the registers stand still: they hold from now on, however slow the machine is, until a test says later.
func (f *fixture) stopClock() {
	f.Helper()
	f.rewrite(`(clock_timestamp\(\)|to_timestamp\(1e9\))\) (operator\(pg_catalog\.\*\) '+40|\* 40)`, `to_timestamp(1e9)) \2`)
}

// rewrite replaces what a pattern matches in the functions of the schema.
func (f *fixture) rewrite(pattern, by string) {
	f.Helper()
	rows, err := f.Conn.Query(f.Ctx, `select regexp_replace(d, $1, $2, 'g') from pg_proc, pg_get_functiondef(oid) d
		where pronamespace = 'penstock'::regnamespace and d ~ $1`, pattern, by)
	f.Must(err)
	functions, err := pgx.CollectRows(rows, pgx.RowTo[string])
	f.Must(err)
	if len(functions) == 0 {
		f.Fatalf("no function has %s", pattern)
	}
	f.Exec(strings.Join(functions, ";\n"), pgx.QueryExecModeSimpleProtocol)
}

// setFastPath sets the time of the registers, this many times 25 ms from now.
const setFastPath = `select setval('penstock."_%[1]s.fast_path"', ((date_part('epoch', clock_timestamp()) * 40)::bigint + %[2]d) * 4096 + pg_sequence_last_value('penstock."_%[1]s.fast_path"') %% 4096)`

// A worker whose position is that of a job that another holds does not wait for it.
func TestPositionOfAJobThatIsHeld(t *testing.T) {
	t.Parallel()
	for _, queue := range []string{"fifo", "lifo"} {
		f := newQueueFixture(t)
		f.stopClock()
		f.enqueue(f.Conn, queue, 1, 1_000)
		f.Exec("set lock_timeout = '5s'")
		first := f.take(f.Conn, queue, 1)[0]
		next, after := first+1, first+2
		if queue == "lifo" {
			next, after = first-1, first-2
		}
		holder := f.Connect()
		tx := f.begin(holder)
		_, err := tx.Exec(f.Ctx, "select from penstock."+queue+" where seq = $1 for update", next)
		f.Must(err)
		f.wantTake(queue, 1, after)
		f.Must(tx.Rollback(f.Ctx))
		f.later(queue)
		f.wantTake(queue, 1, next)
	}
}

// A batch does not step over jobs that others hold: it continues where the last one ended. So does
// a worker that takes one job.
func TestBatchGoesOnFromThePosition(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t)
	f.enqueueWide("fifo", 1, 8_000)
	f.stopClock()
	holder := f.Connect()
	tx := f.begin(holder)
	take := func(conn *pgx.Conn, n int) int {
		return f.pagesOn(conn, fmt.Sprintf("select * from penstock.dequeue('fifo', %d)", n))
	}
	for last := int64(math.MaxInt64); f.Number(`select pg_sequence_last_value('penstock."_fifo.next"')`) < last; { // a batch that writes a skip map does not
		f.later("fifo")
		taken := f.take(f.Conn, "fifo", 100) // finds what is free, and says so
		last = int64(taken[99])
	}
	for range 40 { // what is held lies in five hundred pages
		if pages := take(holder, 100); pages > 100*batchPages {
			t.Errorf("a batch of 100 reads %d pages, want at most %d a job", pages, batchPages)
		}
	}
	f.later("fifo")
	f.take(f.Conn, "fifo", 1) // looks
	for range 15 {
		if pages := take(f.Conn, 1); pages > positionPages {
			t.Errorf("one job: reads %d pages beside 4,000 jobs that are held, want at most %d", pages, positionPages)
		}
	}
	f.Must(tx.Rollback(f.Ctx))
}

// A job that is taken by the position reads this at most: a row to find and lock, and the same to delete. Jobs of a batch stand in
// a row: an entry of the index, the job, its lock, the job again and its end.
const (
	positionPages = 2 * rowPages
	batchPages    = 5
)

// Nor does a claim from a backlog, of one job or of some.
func TestClaimGoesOnFromThePosition(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t)
	f.enqueueWide("fifo", 1, 8_000)
	f.stopClock()
	holder := f.Connect()
	tx := f.begin(holder)
	for range 40 {
		f.take(holder, "fifo", 100)
	}
	f.later("fifo")
	for says := false; !says; { // until one finds what is free, and says so
		f.Exec("select from penstock.claim('fifo', 20)")
		says = f.Number(`select pg_sequence_last_value('penstock."_fifo.fast_path"')`) != 0
	}
	for _, n := range []int{1, 10} {
		const claims = 20
		pages := 0
		for range claims {
			pages += f.pagesOn(f.Conn, fmt.Sprintf("select * from penstock.claim('fifo', %d)", n))
		}
		if most := claims*n*(positionPages+leasePages) + newLeasePages; pages > most {
			t.Errorf("%d claims of %d jobs read %d pages, with 4,000 jobs that others hold, want at most %d", claims, n, pages, most)
		}
	}
	f.Must(tx.Rollback(f.Ctx))
}

// leasePages is what a lease reads at most: a row that is written, with an entry in each of two indexes. newLeasePages is what those
// read once that begin a page. Each of the three relations has its map of free pages, the new page, the one before and the one above.
// When that happens depends on the time, by which maintenance swaps the tables of leases.
const (
	leasePages    = 1 + 2*3
	newLeasePages = 3 * 4
)

// A batch of more than there is leaves the position at the last job: the next ones come in their order, however soon.
func TestBatchDoesNotGoBeyondTheLast(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t)
	f.stopClock()
	f.enqueue(f.Conn, "fifo", 1, 2_000)
	next := func() int64 { return f.Number(`select pg_sequence_last_value('penstock."_fifo.next"')`) }
	for before := next(); next() == before; f.later("fifo") { // until one has found what is free, and said so
		f.take(f.Conn, "fifo", 10)
	}
	for len(f.take(f.Conn, "fifo", 300)) > 0 {
	}
	f.Exec("insert into penstock.fifo (payload) select convert_to(n::text, 'UTF8') from generate_series(2001, 3000) n")
	if jobs := f.take(f.Conn, "fifo", 10); len(jobs) != 10 || jobs[0] != 2001 {
		t.Errorf("got %d, want 2001 and nine more", jobs)
	}
}

// A batch says that there are batches before it takes the jobs that the register gives it. A worker
// that takes the one job at its position would wait for a batch that has locked it.
func TestBatchIsAnnounced(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t)
	f.stopClock()
	f.enqueue(f.Conn, "fifo", 1, 3_000)
	f.take(f.Conn, "fifo", 1) // looks
	const mode = `select pg_sequence_last_value('penstock."_fifo.fast_path"') / 1024 % 4`
	if got := f.Number(mode); got != 0 {
		t.Fatalf("with 3,000 jobs waiting and no batches the mode is %d, want 0", got)
	}
	f.take(f.Conn, "fifo", 10)
	if got := f.Number(mode); got != 1 {
		t.Errorf("after a batch the mode is %d, want 1", got)
	}
}

// A queue that is paused gives nothing from that moment on.
func TestPausedQueueHasNoFastPath(t *testing.T) {
	t.Parallel()
	for _, queue := range []string{"fifo", "lifo"} {
		f := newQueueFixture(t)
		f.enqueue(f.Conn, queue, 1, 1_000)
		for range 3 {
			f.take(f.Conn, queue, 1)
			f.Exec("select penstock.pause_queue($1)", queue)
			f.wantTake(queue, 1)
			f.wantTake(queue, 10)
			f.Exec("select penstock.resume_queue($1)", queue)
		}
	}
}

// What batches took by the fast path is not stepped over by who goes by the skip maps, once
// the housekeeping has been done.
func TestMaintainMovesTheSkipMapOn(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t)
	f.stopClock()
	f.enqueue(f.Conn, "fifo", 1, 6_000)
	conn := f.Connect()
	for taken := 0; taken < 5_000; taken += 500 {
		if got := len(f.take(conn, "fifo", 500)); got != 500 {
			t.Fatalf("took %d jobs, want 500", got)
		}
	}
	for range 2 { // the first skip map only knows how far the sequence had come
		f.Exec("select penstock.maintain_queue('fifo')")
	}
	f.wantText("true", "select (lo[1] > 4900)::text from penstock._skip_map where group_key = '' order by n desc limit 1")
	f.wantTake("fifo", 1, 5_001)
}
