package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/store/postgres"
)

// newQueueFixture is a database with one queue of each order and statements to use them as any
// language would.
func newQueueFixture(t testing.TB) *fixture {
	return holding(t, "fifo and lifo", postgres.Options{}, postgres.Options{}, func(ctx context.Context, s *postgres.Store) error {
		return errors.Join(s.CreateQueue(ctx, "fifo", penstock.FIFO), s.CreateQueue(ctx, "lifo", penstock.LIFO))
	})
}

func (f *fixture) enqueue(conn *pgx.Conn, queue string, from, to int) {
	f.Helper()
	_, err := conn.Exec(f.Ctx, "insert into penstock."+queue+" (payload) select convert_to(i::text, 'UTF8') from generate_series($1::int, $2::int) i", from, to)
	f.Must(err)
}

// enqueueWide enqueues jobs of which eight fill a page, so that pages count jobs.
func (f *fixture) enqueueWide(queue string, from, to int) {
	f.Helper()
	f.Exec("insert into penstock."+queue+" (payload) select convert_to(rpad(i::text, 900), 'UTF8') from generate_series($1::int, $2::int) i", from, to)
}

// take dequeues within conn's transaction, if it has one.
func (f *fixture) take(conn *pgx.Conn, queue string, n int) []int {
	f.Helper()
	rows, err := conn.Query(f.Ctx, "select convert_from(payload, 'UTF8')::int from penstock.dequeue($1, $2)", queue, n)
	f.Must(err)
	jobs, err := pgx.CollectRows(rows, pgx.RowTo[int])
	f.Must(err)
	return jobs
}

func (f *fixture) wantTake(queue string, n int, want ...int) {
	f.Helper()
	if got := f.take(f.Conn, queue, n); !slices.Equal(got, want) {
		f.Fatalf("%s: got %v, want %v", queue, got, want)
	}
}

// takeAll takes until nothing is left, one by one at first, so that skip maps are made.
func (f *fixture) takeAll(queue string) (all []int) {
	f.Helper()
	for n := 1; ; n = min(n+1, 100) {
		jobs := f.take(f.Conn, queue, n)
		if len(jobs) == 0 {
			return all
		}
		all = append(all, jobs...)
	}
}

func (f *fixture) begin(conn *pgx.Conn) pgx.Tx {
	f.Helper()
	tx, err := conn.Begin(f.Ctx)
	f.Must(err)
	f.Cleanup(func() { _ = tx.Rollback(f.Ctx) })
	return tx
}

// pin holds a snapshot that has seen none of the queues' tables.
func (f *fixture) pin() {
	f.Helper()
	tx, err := f.Connect().BeginTx(f.Ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	f.Must(err)
	f.Cleanup(func() { _ = tx.Rollback(f.Ctx) })
	_, err = tx.Exec(f.Ctx, "select count(*) from pg_class")
	f.Must(err)
}

// dequeuePages is what a dequeue of one job by the skip map reads at most. It reads a page of each job that was taken since the
// last skip map, which comes with every 64th (DESIGN.md). It also reads a row for each look-up: the skip map, and the job in
// up to three ranges. So it does for the job again, to lock and to delete it, and for the next one.
const (
	rowPages     = 3 + 1 // an index of three levels, and the row
	dequeuePages = 64 + 7*rowPages
)

// dequeueReads is how many pages a dequeue by the skip map reads: the median of some, because some write a skip map, the same ones
// each time.
func (f *fixture) dequeueReads(queue string) int {
	f.Helper()
	f.Exec("select setseed(0)")
	var pages []int
	for range 15 {
		f.later(queue)
		pages = append(pages, f.pagesOn(f.Conn, "select * from penstock.dequeue('"+queue+"')"))
	}
	slices.Sort(pages)
	return pages[len(pages)/2]
}

// pagesOn is how many pages of Penstock's tables and their indexes some statements read, which run in one transaction.
func (f *fixture) pagesOn(conn *pgx.Conn, statements ...string) int {
	f.Helper()
	return f.pagesIn(conn, "", statements...)
}

// pagesIn counts those of tables and indexes with names that match. What PostgreSQL reads of its catalogue is left out: that depends
// on what other sessions had it forget.
func (f *fixture) pagesIn(conn *pgx.Conn, names string, statements ...string) int {
	f.Helper()
	read := "select coalesce(sum(pg_stat_get_xact_blocks_fetched(oid)), 0)::bigint from pg_class where relnamespace = 'penstock'::regnamespace and relkind in ('r', 'i') and relname ~ '" + names + "'"
	results, err := conn.PgConn().Exec(f.Ctx, strings.Join(slices.Concat([]string{read}, statements, []string{read}), "; ")).ReadAll()
	f.Must(err)
	number := func(r *pgconn.Result) int {
		n, err := strconv.Atoi(string(r.Rows[0][0]))
		f.Must(err)
		return n
	}
	return number(results[len(results)-1]) - number(results[0])
}

// skip makes skip maps, as dequeues do now and then. On a slow machine, where each takes the slow path, those that are measured could
// all come before the next one. They look further than at the first job, as three of ten do (take.sql), past those that are held.
func (f *fixture) skip(queue, group string) {
	f.Helper()
	for range 2 {
		f.nextRandom(f.Conn, "width_bucket(random(), array[0.02, 0.3]) = 1")
		f.Exec(fmt.Sprintf(`select penstock."_%s.skip_map"('%s', 0::smallint)`, queue, group))
	}
}

// nextRandom has a session draw next what meets a condition.
func (f *fixture) nextRandom(conn *pgx.Conn, condition string) {
	f.Helper()
	_, err := conn.Exec(f.Ctx, `do $$ begin
		for seed in 0 .. 999 loop
			perform setseed(seed / 1000.0);
			if `+condition+` then
				perform setseed(seed / 1000.0);
				return;
			end if;
		end loop;
	end $$`)
	f.Must(err)
}

// A dequeue reads few pages after thousands of others, while a snapshot keeps every dead row.
func TestDequeueStaysFlat(t *testing.T) {
	t.Parallel()
	for _, queue := range []string{"fifo", "lifo"} {
		t.Run(queue, func(t *testing.T) {
			t.Parallel()
			f := newQueueFixture(t)
			f.pin()
			next := 0
			more := func(n int) {
				f.enqueueWide(queue, next+1, next+n)
				next += n
			}
			more(20_000)
			for range testseed.Steps(8_000) { // LIFO: a backlog below, arrivals on top
				if queue == "lifo" {
					more(1)
				}
				f.take(f.Conn, queue, 2)
			}
			f.skip(queue, "")
			pages := f.dequeueReads(queue)
			t.Logf("%d pages", pages)
			if pages > dequeuePages {
				t.Errorf("a dequeue reads %d pages after thousands of jobs, want at most %d", pages, dequeuePages)
			}
		})
	}
}

// Jobs that a long transaction has taken do not make the others walk over all that
// was taken since, and come back before others if it rolls back.
func TestDequeuePastJobsThatAreHeld(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t)
	f.enqueueWide("fifo", 1, 12_000)
	holder := f.Connect()
	tx := f.begin(holder)
	held := f.take(holder, "fifo", 3)
	for range testseed.Steps(5_000) {
		f.take(f.Conn, "fifo", 2)
	}
	f.skip("fifo", "")
	pages := f.dequeueReads("fifo")
	t.Logf("%d pages", pages)
	if pages > dequeuePages {
		t.Errorf("a dequeue reads %d pages past jobs that are held, want at most %d", pages, dequeuePages)
	}
	f.Must(tx.Rollback(f.Ctx))
	f.later("fifo")
	f.wantTake("fifo", 3, held...)
}

// A pointer that a rolled-back rotation has moved, and a writer who had read it before
// it moved on: what they write to is taken.
func TestJobsInASegmentThatIsNotListed(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t)
	f.Exec("select penstock.create_queue('four', segments => 4)")
	f.enqueue(f.Conn, "four", 1, 1)
	f.Exec("select penstock._maintain_ring('four', true)")
	f.Exec("insert into penstock.four (slot, payload) values (2, '2')") // as one who had read 2
	tx := f.begin(f.Conn)
	f.Exec("select setval('penstock.\"_four.ring\"', 1024 + 3)") // a rotation ...
	f.Must(tx.Rollback(f.Ctx))                                   // ... whose list is gone
	f.enqueue(f.Conn, "four", 3, 3)
	f.Exec("select penstock._maintain_ring('four', true)")
	f.Exec("select penstock._maintain_ring('four', true)")
	got := f.takeAll("four")
	slices.Sort(got)
	if !slices.Equal(got, []int{1, 2, 3}) {
		t.Errorf("got %v, want all three", got)
	}
}

func TestDequeueOrder(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t)
	for _, queue := range []string{"fifo", "lifo"} {
		f.Exec("insert into penstock." + queue + " (payload, priority, group_key) values ('1', 0, ''), ('2', 5, ''), ('3', -5, ''), ('4', 0, ''), ('5', -5, ''), ('6', -16, 'other')")
	}
	f.wantTake("fifo", 10, 3, 5, 1, 4, 2)
	f.wantTake("lifo", 10, 5, 3, 4, 1, 2)
}

// Jobs come in order while the ring turns under a pinned snapshot and next to a transaction that holds a segment, and
// an empty ring gives all its space back. How large it gets meanwhile says TestRingStaysFlat.
func TestRingOfAQueueTurns(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.Exec("select penstock.create_queue('fifo', 'fifo', 3, 65536)")
	size := func() int64 {
		return f.Number("select sum(pg_total_relation_size(inhrelid)) from pg_inherits where inhparent = 'penstock.fifo'::regclass")
	}
	floor := size()
	f.pin()
	want, next := 0, 0
	holder := f.Connect()
	for round := range 20 { // each fills more than a segment
		f.enqueue(f.Conn, "fifo", next+1, next+500)
		next += 500
		var tx pgx.Tx
		if round%10 == 5 { // a segment that cannot be truncated yet
			tx = f.begin(holder)
			for _, job := range f.take(holder, "fifo", 1) {
				if want++; job != want {
					t.Fatalf("got job %d, want %d", job, want)
				}
			}
		}
		for range 50 {
			for _, job := range f.take(f.Conn, "fifo", 10) {
				if want++; job != want {
					t.Fatalf("got job %d, want %d", job, want)
				}
			}
		}
		f.Exec("select penstock._maintain_ring('fifo')")
		if tx != nil {
			f.Must(tx.Commit(f.Ctx))
		}
	}
	want += len(f.takeAll("fifo"))
	if want != next {
		t.Errorf("%d of %d jobs", want, next)
	}
	f.Eventually("the queue is back at its floor", func() bool {
		f.Exec("select penstock._maintain_ring('fifo', true)")
		return size() <= floor
	})
}

// Many connections enqueue, take, commit and roll back at random; in the end every
// job whose enqueuing is committed was taken by exactly one committed transaction.
func TestDequeueWalk(t *testing.T) {
	testseed.Soak(t) // TestWalkWhileJobsAreCarriedOver is short
	t.Parallel()
	seed := testseed.Seed()
	t.Logf("PENSTOCK_SEED=%d", seed)
	for _, queue := range []string{"fifo", "lifo"} {
		t.Run(queue, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, postgres.Options{})
			f.Exec("select penstock.create_queue($1, $1, 3, 65536)", queue)
			var (
				mu       sync.Mutex
				enqueued = map[int]bool{}
				taken    = map[int]int{}
				wg       sync.WaitGroup
				ids      = make(chan int)
			)
			go func() {
				for i := 1; ; i++ {
					select {
					case ids <- i:
					case <-f.Ctx.Done():
						return
					}
				}
			}()
			for w := range 6 {
				conn := f.Connect()
				random := rand.New(rand.NewPCG(seed, uint64(w)))
				wg.Go(func() {
					for range 120 {
						tx, err := conn.Begin(f.Ctx)
						if err != nil {
							t.Error(err)
							return
						}
						var in, out []int
						for range 1 + random.IntN(4) {
							if random.IntN(5) < 2 {
								var jobs []int
								for range 1 + random.IntN(1+random.IntN(150)) {
									jobs = append(jobs, <-ids)
								}
								in = append(in, jobs...)
								_, err = tx.Exec(f.Ctx, "insert into penstock."+queue+" (payload, priority) select convert_to(i::text, 'UTF8'), i % 2 from unnest($1::int[]) i", jobs)
							} else {
								var rows pgx.Rows
								if rows, err = tx.Query(f.Ctx, "select convert_from(payload, 'UTF8')::int from penstock.dequeue($1, $2)", queue, 1+random.IntN(1+random.IntN(60))); err == nil {
									var jobs []int
									jobs, err = pgx.CollectRows(rows, pgx.RowTo[int])
									out = append(out, jobs...)
								}
							}
							if err != nil {
								t.Error(err)
								return
							}
						}
						if random.IntN(3) == 0 {
							err = tx.Rollback(f.Ctx)
						} else if err = tx.Commit(f.Ctx); err == nil {
							mu.Lock()
							for _, i := range in {
								enqueued[i] = true
							}
							for _, i := range out {
								taken[i]++
							}
							mu.Unlock()
						}
						if err != nil {
							t.Error(err)
							return
						}
						if random.IntN(20) == 0 {
							if _, err := conn.Exec(f.Ctx, "select penstock._maintain_ring($1, true)", queue); err != nil {
								t.Error(err)
								return
							}
						}
					}
				})
			}
			wg.Wait()
			for _, i := range f.takeAll(queue) {
				taken[i]++
			}
			if n := f.Number("select count(*) from penstock." + queue); n != 0 {
				t.Errorf("%d jobs are in the table and cannot be taken", n)
			}
			for i := range enqueued {
				if taken[i] != 1 {
					t.Errorf("job %d was taken %d times", i, taken[i])
				}
			}
			for i := range taken {
				if !enqueued[i] {
					t.Errorf("job %d was taken and never committed", i)
				}
			}
			t.Logf("%d jobs", len(enqueued))
		})
	}
}
