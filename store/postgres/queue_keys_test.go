package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/testseed"
)

// keyWatch is told when jobs begin and end and fails the test if two of a key overlap,
// or one begins after a later one has ended.
type keyWatch struct {
	testing.TB
	mu      sync.Mutex
	running map[string]int64
	last    map[string]int64
	runs    map[int64]int // how often a job ended well
}

func (w *keyWatch) begin(l leased) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.key == "" {
		return
	}
	if other := w.running[l.key]; other != 0 {
		w.Errorf("job %d of key %q began while %d ran", l.id, l.key, other)
	}
	if l.id < w.last[l.key] {
		w.Errorf("job %d of key %q began after %d", l.id, l.key, w.last[l.key])
	}
	w.running[l.key] = l.id
	w.last[l.key] = l.id
}

// end is called before the database is told: from then on another may begin.
func (w *keyWatch) end(l leased, well bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.running, l.key)
	if well {
		w.runs[l.id]++
	}
}

func (w *keyWatch) done() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.runs)
}

// The newest job of a key comes first in a LIFO queue, and the oldest may run: a dequeue passes over the first and takes the second.
func TestDequeueOfKeysLIFO(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "lifo")
	f.Exec("select penstock.enqueue('q', i::text, key => 'k' || i % 5) from generate_series(1, 200) i") // more than are read at once
	last := map[int64]int64{}
	for range 200 {
		job := f.Number("select coalesce((select convert_from(payload, 'UTF8')::int from penstock.dequeue('q')), 0)")
		if job == 0 || job < last[job%5] {
			t.Fatalf("job %d came, and of the keys before it %v", job, last)
		}
		last[job%5] = job
	}
}

// A claim is stopped after it has read three jobs of a key, until the first of them is done. The others do not wait for that one.
func TestFirstOfAKeyEndsWhileAClaimReads(t *testing.T) {
	t.Parallel()
	for _, ordering := range []string{"fifo", "lifo"} {
		t.Run(ordering, func(t *testing.T) {
			t.Parallel()
			f := newJobs(t, ordering)
			f.Exec("select penstock.enqueue('q', '1', key => 'k')")
			first := f.begin(f.Connect())
			var lease int64
			f.Must(first.QueryRow(f.Ctx, "select lease from penstock.claim('q')").Scan(&lease))
			f.Exec("select penstock.enqueue('q', i::text, key => 'k') from generate_series(2, 3) i")
			f.Exec(`alter function penstock."_q.candidates" rename to read_candidates;
				create function penstock."_q.candidates"(here int, in_group text, p int, lo bigint[], hi bigint[], pos bigint, most int, skip text[],
					out ctids tid[], out seqs bigint[], out ids bigint[], out keys text[], out got int, out before bigint, out upto bigint) language plpgsql as $$
				begin
					select * into ctids, seqs, ids, keys, got, before, upto from penstock.read_candidates(here, in_group, p, lo, hi, pos, most, skip);
					perform pg_advisory_xact_lock_shared(1);
				end $$`, pgx.QueryExecModeSimpleProtocol)
			gate, stopped, ended := f.begin(f.Connect()), f.Connect(), make(chan error, 1)
			f.exec(gate.Conn(), "select pg_advisory_xact_lock(1)")
			go func() {
				_, err := stopped.Exec(f.Ctx, "select penstock.ack('q', c.lease) from penstock.claim('q') c")
				ended <- err
			}()
			f.Eventually("it is stopped", func() bool {
				return f.Number("select count(*) from pg_locks where pid = $1 and not granted and locktype = 'advisory'", stopped.PgConn().PID()) == 1
			})
			f.Must(first.Commit(f.Ctx))
			f.Exec("select penstock.ack('q', $1)", lease)
			f.Must(gate.Rollback(f.Ctx))
			f.Must(<-ended)
			for range 2 {
				f.Exec("select penstock.ack('q', c.lease) from penstock.claim('q', 10) c")
			}
			f.wantText("0 0 0", "select (select count(*) from penstock.q) || ' ' || (select count(*) from penstock._scheduled) || ' ' || (select count(*) from penstock._lease)")
		})
	}
}

// Workers that claim, dequeue, retry and roll back side by side: of a key one job runs
// at a time, in order, and each runs once.
func TestKeysAreSerial(t *testing.T) {
	t.Parallel()
	seed := testseed.Seed()
	t.Logf("PENSTOCK_SEED=%d", seed)
	for _, ordering := range []string{"fifo", "lifo"} {
		t.Run(ordering, func(t *testing.T) {
			t.Parallel()
			f := newJobs(t, ordering)
			const jobs = 150
			f.Exec(`select penstock.enqueue_many('q', array_agg('x'::text), keys => array_agg(case when i % 7 > 0 then 'key ' || i % 7 end), priorities => array_agg(i % 2))
				from generate_series(1, $1::int) i`, jobs)
			watch := &keyWatch{TB: t, running: map[string]int64{}, last: map[string]int64{}, runs: map[int64]int{}}
			var wg sync.WaitGroup
			for worker := range 6 {
				conn, r := f.Connect(), rand.New(rand.NewPCG(seed, uint64(worker)))
				wg.Go(func() {
					for end := time.Now().Add(postgrestest.Deadline); watch.done() < jobs; {
						if time.Now().After(end) {
							t.Errorf("%d of %d jobs are done", watch.done(), jobs)
							return
						}
						workSome(f, conn, r, watch)
					}
				})
			}
			wg.Wait()
			for id, n := range watch.runs {
				if n != 1 {
					t.Errorf("job %d ran %d times", id, n)
				}
			}
			f.wantText("0 0 0", "select (select count(*) from penstock.q) || ' ' || (select count(*) from penstock._scheduled where queue > 0) || ' ' || (select count(*) from penstock._lease)")
		})
	}
}

// workSome runs some jobs, within one transaction or by leases.
func workSome(f *fixture, conn *pgx.Conn, r *rand.Rand, watch *keyWatch) {
	f.Helper()
	if r.IntN(4) == 0 {
		tx, err := conn.Begin(f.Ctx)
		f.Must(err)
		rows, err := tx.Query(f.Ctx, "select id, coalesce(key, '') from penstock.dequeue('q', $1)", 1+r.IntN(3))
		f.Must(err)
		got, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l leased, err error) {
			err = row.Scan(&l.id, &l.key)
			return l, err
		})
		f.Must(err)
		for _, l := range got {
			watch.begin(l)
		}
		well := r.IntN(4) > 0
		for _, l := range got {
			watch.end(l, well)
		}
		if well {
			f.Must(tx.Commit(f.Ctx))
		} else {
			f.Must(tx.Rollback(f.Ctx))
		}
		return
	}
	for _, l := range f.claimOn(conn, 1+r.IntN(5), "") {
		watch.begin(l)
		well := r.IntN(5) > 0
		watch.end(l, well)
		sql := "select penstock.ack('q', $1)"
		if !well {
			sql = "select penstock.retry('q', $1, '0')"
		}
		if _, err := conn.Exec(f.Ctx, sql, l.lease); err != nil {
			f.Errorf("%s of job %d: %v", sql, l.id, err)
		}
	}
}

// While a job of a key waits to be tried again, or runs in a transaction, the others of it wait,
// and no other job does.
func TestOtherKeysAreUnaffected(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue_many('q', '{a,b,c,d,e}', keys => '{k,k,l,k,m}')")
	first := f.wantClaim(1, 1)[0]
	tx := f.begin(f.Connect())
	var id int64
	f.Must(tx.QueryRow(f.Ctx, "select id from penstock.dequeue('q')").Scan(&id))
	if id != 3 {
		t.Fatalf("dequeued job %d, want 3", id)
	}
	f.Exec("select penstock.retry('q', $1, '1 day')", first.lease)
	f.wantClaim(9, 5)
	f.maintain()
	f.wantClaim(9)
	f.ripen()
	first = f.wantClaim(9, 1)[0]
	f.Exec("select penstock.dead_letter('q', $1)", first.lease)
	f.Exec("select penstock.enqueue('q', 'f', 'l')")
	f.wantClaim(9, 2)
	f.Must(tx.Rollback(f.Ctx))
	f.wantClaim(9, 3)
}

// One job of a key after another, while a snapshot is pinned: the rings turn, and the jobs left in
// them are carried over.
func TestRingsOfJobsTurn(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.pin()
	const keep = "select penstock.enqueue('q', 'keep', not_before => now() + interval '9 days', dedup_key => 'keep')"
	f.Exec(keep)
	kept := f.text(keep)
	f.Exec("select penstock.enqueue('q', 'held')")
	held := f.claim(1)[0]
	const rows, job, key = 100, 60*32 + 200, 240 // bytes, as pairBound counts them; a round has each job leased twice
	bound := 2*pairBound(64<<10, rows*job, 2*rows*job)*job/(job-120) + pairBound(64<<10, rows*key, rows*key)*800/key + 6*128<<10
	var most int64
	for i := range 12 {
		f.Exec(`select penstock.enqueue_many('q', array_agg(repeat(md5(i::text), 60)), dedup_keys => array_agg($1 || i || repeat('x', 200))) from generate_series(1, $2::int) i`, fmt.Sprint(i, " "), rows)
		f.Exec("select penstock.retry('q', lease, '1 day') from penstock.claim('q', 1000)")
		f.ripen()
		f.Exec("select count(*) from penstock.ack_many('q', array(select lease from penstock.claim('q', 1000)))")
		f.Exec("update penstock._dedup set at = at - interval '1 day' where dedup_key <> 'keep'")
		var size int64
		for _, ring := range []string{"_lease", "_scheduled", "_dedup"} {
			f.reclaimPair(ring)
			size += f.pairSize(ring)
		}
		if most = max(most, size); size > bound {
			t.Fatalf("the rings have %d bytes, at most %d are promised", size, bound)
		}
	}
	t.Logf("the rings had %d bytes at most, %d are promised", most, bound)
	f.wantText(kept, keep)
	f.wantText(fmt.Sprintf("{%d}", held.lease), "select array(select penstock.ack_many('q', array[$1]::bigint[]))::text", held.lease)
	f.Exec("update penstock._scheduled set due = now()")
	f.maintain()
	f.wantClaim(9, 1)
}
