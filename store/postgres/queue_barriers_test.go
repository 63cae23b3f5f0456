package postgres_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock/admin"
)

// heldBy enqueues a waiting job, and one for each payload that holds a barrier, which it seals. The waiting job has the id 1.
func (f *fixture) heldBy(payloads ...string) (barrier int64) {
	f.Helper()
	b := f.Number("select penstock.barrier('q')")
	f.Exec("select penstock.enqueue('q', 'done', waits_for => array[$1::bigint])", b)
	f.Exec("select penstock.enqueue_many('q', $2, holds => $1)", b, payloads)
	f.Exec("select penstock.seal('q', $1)", b)
	return b
}

func (f *fixture) run(tx pgx.Tx, sql string, args ...any) {
	f.Helper()
	_, err := tx.Exec(f.Ctx, sql, args...)
	f.Must(err)
}

// A claim that has read the queue's flags before the first job with a key came takes that job as claims do: it ends with its ack. It was counted
// as an end at the claim, and again at the ack, so that a barrier opened while jobs ran.
func TestBarrierOfAClaimThatMeetsTheFirstKey(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	b := f.Number("select penstock.barrier('q')")
	f.Exec("select penstock.enqueue_many('q', '{a,b}', holds => $1, keys => '{k,l}')", b)
	f.wantText("1", `select count(*)::text from penstock."_q.take"(1, '', false, false, false)`) // as claim_scan without keys calls it
	f.wantText("2", "select running::text from penstock._barrier_state($1)", b)
}

// The last end opens the barrier when it commits. If it rolls back, or its process dies, the job that waits still waits.
func TestBarrierLastEndRolledBack(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.heldBy("a")
	last := f.wantClaim(5, 2)[0]
	for _, end := range []string{"rollback", "savepoint", "kill"} {
		conn := f.Connect()
		tx := f.begin(conn)
		f.run(tx, "savepoint s")
		f.run(tx, "select penstock.ack('q', $1)", last.lease)
		switch end {
		case "rollback":
			f.Must(tx.Rollback(f.Ctx))
		case "savepoint":
			f.run(tx, "rollback to s")
			f.Must(tx.Commit(f.Ctx))
		case "kill":
			f.Exec("select pg_terminate_backend($1)", conn.PgConn().PID())
			f.Eventually("the lock is free", func() bool {
				return f.Number("select count(*) from pg_stat_activity where pid = $1", conn.PgConn().PID()) == 0
			})
		}
		f.wantClaim(5)
	}
	f.Exec("begin")
	f.Exec("select penstock.ack('q', $1)", last.lease)
	f.wantClaim(5) // it is open with the commit
	f.Exec("commit")
	f.wantClaim(5, 1)
}

// Two transactions end the last two jobs at once, in either order, and do not wait for each other before they commit. The later one opens the barrier.
func TestBarrierTwoLastEnds(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	one, two := f.Connect(), f.Connect()
	for round := range 6 {
		f.Exec("truncate penstock.q")
		f.heldBy("a", "b")
		jobs := f.claim(5)
		first, second := f.begin(one), f.begin(two)
		f.run(first, "select penstock.ack('q', $1)", jobs[round%2].lease)
		f.run(second, "select penstock.ack('q', $1)", jobs[1-round%2].lease)
		if round < 2 {
			f.Must(second.Commit(f.Ctx))
			if n := len(f.claim(5)); n != 0 {
				t.Fatalf("%d jobs run before the end of the last one has committed", n)
			}
			f.Must(first.Commit(f.Ctx))
		} else {
			var both sync.WaitGroup
			for _, tx := range []pgx.Tx{first, second} {
				both.Go(func() {
					if err := tx.Commit(f.Ctx); err != nil {
						t.Error(err)
					}
				})
			}
			both.Wait()
		}
		done := f.claim(5)
		if len(done) != 1 {
			t.Fatalf("%d jobs run after the last end, want 1", len(done))
		}
		f.Exec("select penstock.ack('q', $1)", done[0].lease)
	}
}

// A transaction that keeps its snapshot does not see the ends of others, and may not count.
func TestBarrierNeedsReadCommitted(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	b := f.heldBy("a")
	job := f.wantClaim(5, 2)[0]
	for _, call := range []string{fmt.Sprintf("select penstock.ack('q', %d)", job.lease), fmt.Sprintf("select penstock.seal('q', %d)", b), fmt.Sprintf("select penstock.enqueue('q', 'x', holds => %d)", b),
		fmt.Sprintf("select penstock.enqueue('q', 'x', waits_for => '{%d}')", b)} {
		f.Exec("begin isolation level repeatable read")
		f.wantError("25001", call)
		f.Exec("rollback")
	}
	f.Exec("select penstock.ack('q', $1)", job.lease)
	f.wantClaim(5, 1)
}

// Calls end many jobs of a barrier, and not all. The last ones are dead letters, and to discard them together opens it.
func TestBarrierOfDiscardedJobs(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	b := f.Number("select penstock.barrier('q')")
	f.Exec("select penstock.enqueue_many('q', array_fill('x'::text, array[40]), holds => $1)", b)
	f.Exec("select penstock.enqueue('q', 'done', waits_for => array[$1::bigint]), penstock.seal('q', $1)", b)
	f.wantText("20", "select count(*)::text from penstock.ack_many('q', array(select lease from penstock.ack_claim('q', '{}', 20)))")
	jobs := f.claim(30)
	if len(jobs) != 20 {
		t.Fatalf("20 jobs hold the barrier, and %d may run", len(jobs))
	}
	var leases []int64
	for i, job := range jobs {
		if i < 2 {
			f.Exec("select penstock.dead_letter('q', $1, 'no')", job.lease)
		} else {
			leases = append(leases, job.lease)
		}
	}
	f.wantText("18", "select count(*)::text from penstock.ack_many('q', $1)", leases)
	f.wantClaim(5)
	f.Exec("select penstock.discard_dead_jobs('q', array(select id from penstock.dead_jobs('q', 10)))")
	f.wantClaim(5, 41)
}

// Jobs of one claim hold one barrier, or two, or some of them none. Each job counts for its own, also in a row that does not show which all of them hold.
func TestBarriersOfOneClaim(t *testing.T) {
	t.Parallel()
	for _, second := range []string{"holds => $1", "headers => array_fill(jsonb_build_object('h', $1::bigint), array[10])"} {
		f := newJobs(t, "fifo")
		b := f.heldBy(slices.Repeat([]string{"x"}, 50)...)
		other := f.Number("select penstock.barrier('q')")
		f.Exec("select penstock.enqueue_many('q', array_fill('y'::text, array[10]), "+second+")", other)
		for _, left := range []string{"30", "10", "0"} {
			f.Exec("create temporary table mine as select lease from penstock.ack_claim('q', '{}', 20)")
			f.wantText(strconv.FormatBool(left != "0"), "select (headers is not null)::text from penstock._lease where jobs is not null")
			if left == "10" { // as an older version wrote it
				f.Exec("update penstock._lease set headers = null where jobs is not null")
			}
			const ack = "select count(*)::text from penstock.ack_many('q', array(select lease from mine))"
			f.Exec("begin isolation level repeatable read")
			f.wantError("25001", ack)
			f.Exec("rollback")
			f.wantText("20", ack)
			f.Exec("drop table mine")
			f.wantText(left, "select running::text from penstock._barrier_state($1)", b)
		}
		f.wantText("0", "select running::text from penstock._barrier_state($1)", other)
		f.wantClaim(5, 1)
	}
}

// A dequeue ends jobs when it commits: of one, of many, by the queue's own function.
func TestBarrierOfDequeuedJobs(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"fifo", "lifo"} {
		f := newJobs(t, order)
		f.heldBy("a", "b", "c", "d")
		take := func(sql string, want int64) {
			t.Helper()
			if n := f.Number("select count(*) from " + sql); n != want {
				t.Fatalf("%s: %s took %d, want %d", order, sql, n, want)
			}
		}
		f.Exec("begin")
		take("penstock.dequeue('q', 10)", 4)
		f.Exec("rollback")
		take("penstock.dequeue('q')", 1)
		take("penstock.dequeue_q()", 1)
		take("penstock.dequeue('q', 2)", 2)
		take("penstock.dequeue('q', 2)", 1)
	}
}

// An enqueuer makes barriers, seals them and uses them, also by INSERT. Others do not. The functions of the queue refuse numbers of other barriers.
func TestBarrierRights(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	name, asRole := f.role()
	f.Exec("select penstock.grant_enqueuer('q', $1)", name)
	conn, err := pgx.Connect(f.Ctx, asRole)
	f.Must(err)
	defer conn.Close(f.Ctx)
	var b int64
	f.Must(conn.QueryRow(f.Ctx, "select penstock.barrier('q')").Scan(&b))
	for _, sql := range []string{"select penstock.enqueue('q', 'done', waits_for => array[$1::bigint])",
		"insert into penstock.q (payload, headers) select 'a', jsonb_build_object('penstock-holds', $1::bigint::text) from generate_series(1, 3)",
		"select penstock.seal('q', $1)"} {
		_, err := conn.Exec(f.Ctx, sql, b)
		f.Must(err)
	}
	worker, asWorker := f.role()
	f.Exec("select penstock.grant_worker('q', $1)", worker)
	f.wantMay(asWorker, []string{"select penstock.claim('q', 5), penstock.ack_many('q', '{1}')"}, []string{"select penstock.barrier('q')", "select penstock.seal('q', 1)", "select * from penstock._barrier"})
	f.Exec("select penstock.ack_many('q', array(select lease from penstock._lease))")
	f.wantClaim(5, 1)
	for _, headers := range []string{`{"penstock-holds": "x"}`, `{"penstock-holds": "1"}`, `{"penstock-waits-for": "1"}`, `{"penstock-on-dead": "run"}`} {
		f.wantError("23514", "insert into penstock.q (payload, headers) values ('a', $1)", headers)
	}
	f.wantError("23514", `select penstock.enqueue('q', 'x', headers => '{"penstock-waits-for": null}')`) // it would wait for ever
	f.wantError("22023", "select penstock.enqueue('q', 'x', waits_for => array[$1::bigint], not_before => now())", b)
	f.wantError("23514", "select penstock.seal('q', 0)")
	f.wantError("42P01", "select penstock.barrier('none')")
}

// The history of done jobs, and a queue with keys, take other ways to an end.
func TestBarrierInOtherQueues(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.set_queue('q', keep_done => '1 hour'), penstock.enqueue('q', 'key', key => 'k')")
	f.claim(1)
	b := f.Number("select penstock.barrier('q')")
	f.Exec("select penstock.enqueue_many('q', '{a,b,c}', keys => '{x,y,z}', holds => $1), penstock.enqueue('q', 'done', waits_for => array[$1::bigint], key => 'x'), penstock.seal('q', $1)", b)
	jobs := f.claim(5)
	if len(jobs) != 3 {
		t.Fatalf("claimed %+v", jobs)
	}
	f.Exec("select penstock.ack('q', $1)", jobs[0].lease)
	f.Exec("select penstock.ack_many('q', $1)", []int64{jobs[1].lease, jobs[2].lease})
	f.wantClaim(5, 5)
	f.wantText("3", "select count(*)::text from penstock.done_jobs('q', 10)")
}

// While a snapshot is pinned barriers take no more space than those that are closed need, and these outlive turns of the ring.
func TestBarriersAreCarriedOver(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.pin()
	b := f.heldBy("a")
	last := f.wantClaim(5, 2)[0]
	alive := f.text(`select substring(prosrc from 'case when r\.part = -1.*r\.n < s\.n\)\) end') from pg_proc where proname = '_reclaim_pairs'`)
	for round := range 4 {
		f.Exec(`do $$ begin for i in 1 .. 200 loop
			perform penstock.enqueue_many('q', '{x,y,z}', holds => b), penstock.seal('q', b) from penstock.barrier('q') b;
			end loop; end $$`)
		for range 2 {
			f.Exec("select penstock.ack_many('q', array(select lease from penstock.claim('q', 300)))")
		}
		for range 5 {
			f.Exec("update penstock._pair set again = null")
			f.Exec("select penstock._reclaim_pair('_barrier', 65536, $1)", alive)
		}
		if n := f.Number("select count(*) from penstock._barrier where barrier = $1", b); n == 0 || n > 10 {
			t.Errorf("after %d turns the barrier has %d rows", round, n)
		}
	}
	if size := f.pairSize("_barrier"); size > 1<<20 {
		t.Errorf("the ring has %d bytes", size)
	}
	f.Exec("select penstock.ack('q', $1)", last.lease)
	f.wantClaim(5, 1)
	f.Exec("select penstock.drop_queue('q')")
	f.wantText("0", "select count(*)::text from penstock._barrier")
}

// A job that is looked up shows which barriers it waits for, and how far these are.
func TestFindSaysForWhichBarriers(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	var b []int64
	for range 3 {
		b = append(b, f.Number("select penstock.barrier('q')"))
	}
	id := f.Number("select penstock.enqueue('q', 'done', waits_for => $1, key => 'k')", b)
	f.Exec("select penstock.enqueue_many('q', '{x,y,z}', holds => $1), penstock.seal('q', $1), penstock.seal('q', $2)", b[0], b[1])
	jobs := f.claim(2)
	f.Exec("select penstock.ack('q', $1), penstock.dead_letter('q', $2, 'no')", jobs[0].lease, jobs[1].lease)
	for _, find := range []admin.Find{{ID: fmt.Sprint(id)}, {Key: "k"}} {
		find.In, find.Limit = "q", 5
		found, err := f.store.FindJobs(f.Ctx, find)
		f.Must(err)
		want := fmt.Sprintf("barrier %d: 1 not ended, 1 dead; barrier %d: 0 not ended, not sealed", b[0], b[2])
		if len(found) != 1 || found[0].Where[0].WaitsFor != want || found[0].Where[0].Worker != "" {
			t.Errorf("found %+v, want one that waits for %s", found, want)
		}
	}
}

// While hundreds of jobs hold a barrier, ends of few share its lock and write no count. An end of many counts, and so does one that
// noted before that. The barrier opens with the last job all the same.
func TestBarrierOfManyJobs(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	b := f.heldBy(slices.Repeat([]string{"x"}, 600)...)
	jobs, left := f.claim(700), int64(600)
	counts := f.Number("select count(*) from penstock._barrier where barrier = $1 and part = 0", b)
	want := func(ended, counted int64) {
		t.Helper()
		left, counts = left-ended, counts+counted
		f.wantText(fmt.Sprint(left, " jobs, ", counts, " counts"), `select concat(s.running, ' jobs, ',
			(select count(*) from penstock._barrier where barrier = $1 and part = 0), ' counts') from penstock._barrier_state($1) s`, b)
	}
	next := func(n int) []int64 {
		var leases []int64
		for _, j := range jobs[:n] {
			leases = append(leases, j.lease)
		}
		jobs = jobs[n:]
		return leases
	}
	const ack = "select penstock.ack_many('q', $1)"
	one, two := f.Connect(), f.Connect()
	f.Exec("set lock_timeout = '20 s'")

	shares := f.begin(one)
	f.run(shares, "set constraints all immediate")
	f.run(shares, ack, next(1))
	f.Exec(ack, next(2)) // without waiting
	want(2, 0)
	waits := func(conn *pgx.Conn, what string, commit func() error) <-chan error {
		t.Helper()
		done := make(chan error, 1)
		go func() { done <- commit() }()
		f.Eventually(what, func() bool {
			return f.Number("select count(*) from pg_locks where locktype = 'advisory' and not granted and pid = $1", conn.PgConn().PID()) == 1
		})
		return done
	}
	many := next(100)
	counted := waits(two, "an end of many waits for those that share the lock", func() error {
		_, err := two.Exec(f.Ctx, ack, many)
		return err
	})
	f.Must(shares.Commit(f.Ctx))
	f.Must(<-counted)
	want(101, 1)

	early := f.begin(one)
	f.run(early, ack, next(1))
	f.Exec(ack, next(50))
	want(50, 1)
	f.Must(early.Commit(f.Ctx))
	want(1, 1)

	early = f.begin(one)
	f.run(early, ack, next(1))
	f.Exec("begin")
	f.Exec("set constraints all immediate")
	f.Exec(ack, next(50))
	counted = waits(one, "an end of one waits for one that counts", func() error { return early.Commit(f.Ctx) })
	f.Exec("commit")
	f.Must(<-counted)
	want(51, 2)

	undone := f.begin(one)
	f.run(undone, "savepoint s")
	f.run(undone, ack, []int64{jobs[0].lease})
	f.run(undone, "rollback to s")
	f.run(undone, ack, next(1))
	f.run(undone, ack, next(1))
	f.Must(undone.Commit(f.Ctx))
	want(2, 0)
	f.Exec("select penstock.cancel('q', array[$1::bigint])", jobs[0].id)
	jobs = jobs[1:]
	want(1, 0)
	dead := jobs[0]
	f.Exec("select penstock.dead_letter('q', $1, 'no')", next(1)[0])
	want(1, 1)
	f.Exec("select penstock.discard_dead_jobs('q', array[$1::bigint])", dead.id)
	want(0, 1)
	for len(jobs) > 1 { // one at a time, until the notes are as many as the count allows
		f.Exec(ack, next(1))
	}
	f.wantText("1", "select running::text from penstock._barrier_state($1)", b)
	f.wantClaim(5)
	f.Exec(ack, next(1))
	f.wantClaim(5, 1)
}

// A transaction that ends one job, and then many, counts at the first end. It does not share the lock while it waits to have it alone: two that do
// would be a deadlock.
func TestBarrierEndsOfFewAndMany(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.heldBy(slices.Repeat([]string{"x"}, 600)...)
	jobs := f.claim(102)
	shares := f.begin(f.Connect())
	f.run(shares, "set constraints all immediate")
	f.run(shares, "select penstock.ack('q', $1)", jobs[0].lease)
	conn := f.Connect()
	counts := f.begin(conn)
	f.run(counts, "select penstock.ack('q', $1)", jobs[1].lease)
	var many []int64
	for _, j := range jobs[2:] {
		many = append(many, j.lease)
	}
	f.run(counts, "select penstock.ack_many('q', $1)", many)
	done := make(chan error, 1)
	go func() { done <- counts.Commit(f.Ctx) }()
	locks := func(granted bool) int64 {
		return f.Number("select count(*) from pg_locks where locktype = 'advisory' and pid = $1 and granted = $2", conn.PgConn().PID(), granted)
	}
	f.Eventually("the commit waits for the one that shares", func() bool { return locks(false) == 1 })
	if locks(true) > 0 {
		t.Error("the commit shares the lock while it waits to have it alone")
	}
	f.Must(shares.Commit(f.Ctx))
	f.Must(<-done)
}

// A transaction that enqueues a job fails at its commit, if the barrier that the job holds has opened meanwhile.
func TestBarrierRefusesALateJob(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	b := f.Number("select penstock.barrier('q')")
	late := f.begin(f.Connect())
	f.run(late, "select penstock.enqueue('q', 'x', holds => $1)", b)
	f.Exec("select penstock.enqueue('q', 'done', waits_for => array[$1::bigint]), penstock.seal('q', $1)", b)
	var pg *pgconn.PgError
	if err := late.Commit(f.Ctx); !errors.As(err, &pg) || pg.Code != "23514" || pg.Hint == "" {
		t.Errorf("a job that holds an open barrier: got %+v, want 23514 and a hint", err)
	}
	f.wantClaim(5, 2)
}

// The end of a job that holds a barrier, with its count at the commit, reads as many pages of 5,000 such jobs as of 50. So does a claim.
func TestBarrierReadsFewPages(t *testing.T) {
	t.Parallel()
	var ends, claims []int
	for _, n := range []int{50, 5000} {
		f := newJobs(t, "fifo")
		f.heldBy(slices.Repeat([]string{"x"}, n)...)
		for _, j := range f.claim(10) {
			f.Exec("select penstock.ack('q', $1)", j.lease)
		}
		job := f.claim(1)[0]
		ends = append(ends, f.pagesIn(f.Conn, "^_barrier", "begin", "set constraints all immediate", fmt.Sprintf("select penstock.ack('q', %d)", job.lease)))
		f.Exec("rollback")
		fewest := math.MaxInt
		for range 10 { // now and then a claim writes a skip map
			fewest = min(fewest, f.pagesOf("select * from penstock.claim('q', 1)"))
		}
		claims = append(claims, fewest)
	}
	t.Logf("ends read %d pages, claims %d", ends, claims)
	if ends[0] == 0 || ends[1] > 2*ends[0] || claims[1] > 2*claims[0] {
		t.Errorf("with 50 and 5,000 jobs that hold a barrier an end reads %d pages and a claim %d", ends, claims)
	}
}

// A queue that never had a barrier has no flag for them.
func TestQueueWithoutBarriers(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec(`select penstock.enqueue('q', 'x', key => 'k', headers => '{"h": "1"}', max_attempts => 3)`)
	if flags := f.Number(`select last_value from penstock."_q.flags"`); flags&(3<<35) != 0 {
		t.Errorf("the flags are %b", flags)
	}
}
