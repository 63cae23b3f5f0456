package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/test/testseed"
)

// Jobs are enqueued, taken and rolled back at random. Meanwhile the ring turns all the time, and
// the jobs left in its segments are carried over. Each committed job is taken once, and those of a
// group that no worker looks at come in order afterwards.
func TestWalkWhileJobsAreCarriedOver(t *testing.T) {
	t.Parallel()
	seed := testseed.Seed()
	t.Logf("PENSTOCK_SEED=%d", seed)
	for ordering, isolation := range map[string]pgx.TxIsoLevel{"fifo": pgx.ReadCommitted, "lifo": pgx.RepeatableRead} {
		t.Run(fmt.Sprintf("%s, %s", ordering, isolation), func(t *testing.T) {
			t.Parallel()
			w := &carryWalk{fixture: newJobs(t, ordering), isolation: isolation, seed: seed, enqueued: map[int]bool{}, taken: map[int]int{}}
			w.run(ordering == "lifo")
		})
	}
}

type carryWalk struct {
	*fixture
	isolation pgx.TxIsoLevel
	seed      uint64

	mu       sync.Mutex
	enqueued map[int]bool
	taken    map[int]int
}

// A job's payload is its producer * producerJobs + how many that one has enqueued before.
const producerJobs = 1_000_000

func (w *carryWalk) run(lifo bool) {
	var busy sync.WaitGroup
	var ended atomic.Bool
	for n := range 4 {
		conn, random := w.Connect(), rand.New(rand.NewPCG(w.seed, uint64(n)))
		busy.Go(func() {
			next := n * producerJobs
			for range 100 * testseed.Rounds() {
				if err := w.transaction(conn, random, &next); err != nil {
					w.Errorf("worker %d: %v", n, err)
					return
				}
			}
		})
	}
	var moved int
	maintained := make(chan error, 1)
	conn := w.Connect()
	go func() {
		var err error
		for err == nil && !ended.Load() {
			var leaving int
			err = conn.QueryRow(w.Ctx, "select count(*) from penstock._segment where leaving").Scan(&leaving)
			moved += leaving
			if err == nil {
				_, err = conn.Exec(w.Ctx, maintainAtOnce, pgx.QueryExecModeSimpleProtocol)
			}
		}
		maintained <- err
	}()
	busy.Wait()
	ended.Store(true)
	w.Must(<-maintained)
	if moved == 0 && !w.Failed() {
		w.Error("nothing was carried over")
	}
	w.Exec("set default_transaction_isolation = 'read committed'")
	for _, group := range []string{"", "a", "left"} {
		var last [4]int
		for {
			jobs, err := w.takeGroup(w.Conn, 1+len(w.taken)%40, group)
			w.Must(err)
			if len(jobs) == 0 {
				break
			}
			for _, job := range jobs {
				w.taken[job]++
				if producer := job / producerJobs; group == "left" {
					if last[producer] != 0 && lifo == (job > last[producer]) {
						w.Errorf("job %d comes after %d", job, last[producer])
					}
					last[producer] = job
				}
			}
		}
	}
	if n := w.Number("select count(*) from penstock.q"); n != 0 {
		w.Errorf("%d jobs are in the table and cannot be taken", n)
	}
	for job := range w.enqueued {
		if w.taken[job] != 1 {
			w.Errorf("job %d was taken %d times", job, w.taken[job])
		}
	}
	if len(w.taken) != len(w.enqueued) {
		w.Errorf("%d jobs were taken of %d", len(w.taken), len(w.enqueued))
	}
	w.Logf("%d jobs; seen carrying over %d times", len(w.enqueued), moved)
}

// maintainAtOnce sees to the ring of the queue "q" as if time had passed since the last look.
const maintainAtOnce = `begin;
	select pg_advisory_xact_lock('penstock._queue'::regclass::oid::int, id) from penstock._queue where name = 'q';
	update penstock._segment set again = null, looked = looked - interval '1 min', retired = retired - interval '1 min' where again is not null or looked is not null or retired is not null;
	select penstock._maintain_ring('q');
	commit`

// transaction enqueues and takes some jobs, and commits or does not.
func (w *carryWalk) transaction(conn *pgx.Conn, random *rand.Rand, next *int) error {
	tx, err := conn.BeginTx(w.Ctx, pgx.TxOptions{IsoLevel: w.isolation})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(w.Ctx) }()
	var in, out []int
	for range 1 + random.IntN(3) {
		if random.IntN(2) == 0 {
			group := []string{"", "", "", "", "a"}[random.IntN(5)]
			from := *next + 1
			*next += 1 + random.IntN(60)
			if random.IntN(6) == 0 {
				*next = from
				group = "left"
			}
			for i := from; i <= *next; i++ {
				in = append(in, i)
			}
			_, err = tx.Exec(w.Ctx, "insert into penstock.q (payload, group_key, priority) select convert_to(i::text, 'UTF8'), $2, case $2 when '' then i % 2 else 0 end from unnest($1::int[]) i", in[len(in)-(*next-from+1):], group)
		} else {
			var got []int
			got, err = w.takeGroup(tx.Conn(), 1+random.IntN(1+random.IntN(100)), []string{"", "", "", "a"}[random.IntN(4)])
			out = append(out, got...)
		}
		if pgerror.State(err) == "40001" {
			return nil
		} else if err != nil {
			return err
		}
	}
	if random.IntN(4) == 0 {
		return nil
	}
	if err := tx.Commit(w.Ctx); pgerror.State(err) == "40001" {
		return nil
	} else if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, job := range in {
		w.enqueued[job] = true
	}
	for _, job := range out {
		w.taken[job]++
	}
	return nil
}

func (w *carryWalk) takeGroup(conn *pgx.Conn, n int, group string) ([]int, error) {
	rows, err := conn.Query(w.Ctx, "select convert_from(payload, 'UTF8')::int from penstock.dequeue('q', $1, $2)", n, group)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int])
}

// Who makes a skip map while a job is carried over finds it, where it was or where it is.
func TestSkipMapWhileAJobIsCarriedOver(t *testing.T) {
	t.Parallel()
	for _, ordering := range []string{"fifo", "lifo"} {
		f := newJobs(t, ordering)
		f.leaveBehind("insert into penstock.q (payload, group_key) values ('left', 'g')")
		f.Exec(`select penstock."_q.skip_map"('g', 0::smallint), penstock."_q.skip_map"('g', 0::smallint)`) // it knows how far the sequence had come

		mover := f.begin(f.Connect())
		_, err := mover.Exec(f.Ctx, `lock table penstock."_q.0" in access exclusive mode`) // so that the reader waits there
		f.Must(err)
		reader := f.Connect()
		marked := make(chan error, 1)
		go func() {
			_, err := reader.Exec(f.Ctx, `select penstock."_q.skip_map"('g', 0::smallint)`)
			marked <- err
		}()
		f.Eventually("the reader waits", func() bool {
			return f.Number("select count(*) from pg_stat_activity where pid = $1 and wait_event_type = 'Lock'", reader.PgConn().PID()) == 1
		})
		_, err = mover.Exec(f.Ctx, `select penstock._carry_over('penstock."_q.0"', 'penstock."_q.1"', 1, 100)`)
		f.Must(err)
		f.Must(mover.Commit(f.Ctx))
		f.Must(<-marked)
		f.wantText("left", "select convert_from(payload, 'UTF8') from penstock.dequeue('q', 1, 'g')")
	}
}

// A snapshot that is older than the move sees the job nowhere: no skip map is made of that.
func TestSkipMapWithASnapshotFromBefore(t *testing.T) {
	t.Parallel()
	for _, ordering := range []string{"fifo", "lifo"} {
		f := newJobs(t, ordering)
		f.leaveBehind("insert into penstock.q (payload, group_key) values ('left', 'g')")
		f.Exec(`select penstock."_q.skip_map"('g', 0::smallint), penstock."_q.skip_map"('g', 0::smallint)`)
		old, err := f.Connect().BeginTx(f.Ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		f.Must(err)
		_, err = old.Exec(f.Ctx, "select count(*) from pg_class")
		f.Must(err)
		f.Exec(`select penstock._carry_over('penstock."_q.0"', 'penstock."_q.1"', 1, 100)`)
		for range 3 {
			f.Exec(maintainAtOnce, pgx.QueryExecModeSimpleProtocol)
		}
		f.wantText("0", `select pg_relation_size('penstock."_q.0"')::text`)
		_, err = old.Exec(f.Ctx, `select penstock."_q.skip_map"('g', 0::smallint)`)
		f.Must(err)
		f.Must(old.Commit(f.Ctx))
		f.wantText("left", "select convert_from(payload, 'UTF8') from penstock.dequeue('q', 1, 'g')")
	}
}

// leaveBehind fills the first segment of the queue "q", moves its pointer on, and takes what is
// in it, but for what a statement inserts.
func (f *fixture) leaveBehind(left string) {
	f.Helper()
	f.Exec(left)
	f.enqueueWide("q", 1, 100)
	f.Exec("select penstock._maintain_ring('q')")
	f.wantText("1", `select (pg_sequence_last_value('penstock."_q.ring"') % 1024)::text`)
	if got := f.take(f.Conn, "q", 100); len(got) != 100 {
		f.Fatalf("took %d jobs, want 100", len(got))
	}
}

// A transaction that wrote into a segment before it was left behind, and commits long after, is not
// overlooked. While it is open, or prepared, the segment stays on the list, and its job comes first.
func TestLateCommitIntoASegmentLeftBehind(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"commit", "prepare", "savepoint"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			f := newJobs(t, "fifo")
			late := f.Connect()
			f.exec(late, "begin")
			if how == "savepoint" {
				f.exec(late, "savepoint s")
			}
			f.exec(late, "insert into penstock.q (payload) values ('0')")
			if how == "savepoint" {
				f.exec(late, "release savepoint s")
			}
			f.leaveBehind("select")
			if how == "prepare" {
				f.exec(late, "prepare transaction "+f.preparedName())
			}
			f.enqueue(f.Conn, "q", 101, 110)
			for range 4 {
				f.Exec(maintainAtOnce, pgx.QueryExecModeSimpleProtocol)
			}
			f.wantTake("q", 1, 101)
			if how == "prepare" {
				f.exec(late, "commit prepared "+f.preparedName())
			} else {
				f.exec(late, "commit")
			}
			f.later("q")
			f.wantTake("q", 3, 0, 102, 103)
			for range 4 {
				f.Exec(maintainAtOnce, pgx.QueryExecModeSimpleProtocol)
			}
			f.wantText("0", `select pg_relation_size('penstock."_q.0"')::text`)
		})
	}
}

func (f *fixture) exec(conn *pgx.Conn, sql string) {
	f.Helper()
	_, err := conn.Exec(f.Ctx, sql)
	f.Must(err)
}
