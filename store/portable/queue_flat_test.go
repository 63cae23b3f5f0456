package portable_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/wire"
	"github.com/penstock/penstock/store/portable"
)

// While a snapshot is pinned nothing that was deleted is cleaned up. A dequeue does not walk over it all the same: what
// it reads is bounded by the number of priorities.
func TestQueueIsFlatWhilePinned(t *testing.T) {
	t.Parallel()
	for _, order := range []penstock.QueueOrder{penstock.FIFO, penstock.LIFO} {
		t.Run(string(order), func(t *testing.T) {
			t.Parallel()
			// Nothing commits late here, and what time decides is left out: looking again for it.
			f := newFixture(t, portable.Options{Margin: time.Millisecond, Sweep: time.Hour, LookAgain: time.Hour})
			f.must(f.store.CreateQueue(t.Context(), "jobs", order))
			q := f.store.Queue("jobs")
			enqueue := func(n int) {
				jobs := make([]penstock.NewJob, n)
				for i := range jobs {
					jobs[i].Payload = []byte("job")
				}
				_, err := q.Enqueue(t.Context(), jobs...)
				f.must(err)
			}
			dequeue := func(n int) {
				for range n {
					jobs, err := q.Claim(t.Context(), driver.Claim{Jobs: 1, Lease: time.Hour})
					f.must(err)
					if len(jobs) != 1 {
						t.Fatalf("claimed %d jobs", len(jobs))
					}
					_, err = q.Ack(t.Context(), jobs[0].Lease)
					f.must(err)
				}
			}
			const n = 100
			measure := func() (pages, entries float64) {
				enqueue(n / 2) // the rest are older jobs, beyond the deleted ones
				p, e := f.reads()
				dequeue(n)
				pages, entries = f.reads()
				return (pages - p) / n, (entries - e) / n
			}
			enqueue(10 * n)
			// Between any two there is time, as there is on a slow machine: what a claim learns of that must not become more with each.
			exec(t, f.url, "update penstock_portable.queue_jobs set created_at = created_at - (1000 - row) * interval '1 ms' from (select seq as s, row_number() over (order by ts, seq) as row from penstock_portable.queue_jobs) r where r.s = seq")
			// The rows' old versions have times among those of the jobs that wait. Other tests' transactions would keep them for the pinned snapshot.
			exec(t, f.url, "vacuum penstock_portable.queue_jobs")
			defer pin(t, f.url)()
			dequeue(n / 10)
			for range 8 {
				enqueue(n)
				dequeue(n)
			}
			pages, entries := measure()
			// A claim looks for the first job of each priority: an entry at most, through an index of three levels. As many pages again
			// are read for rows and for what one claim and one ack look up otherwise, and as many for the enqueueing.
			const priorities = penstock.MaxPriority - penstock.MinPriority + 1
			t.Logf("%.1f pages and %.1f entries per dequeue after %d", pages, entries, 8*n)
			if pages > 3*3*priorities || entries > priorities {
				t.Errorf("a dequeue reads %.1f pages and %.1f entries, at most %d and %d are promised", pages, entries, 3*3*priorities, priorities)
			}
		})
	}
}

// A claim learns how many wait for their key in front of what it takes, and is one round trip the next time.
func TestClaimBehindManyThatWait(t *testing.T) {
	t.Parallel()
	f := newFixture(t, portable.Options{})
	f.must(f.store.CreateQueue(t.Context(), "jobs", penstock.FIFO))
	p := wire.New()
	q := openStore(t, p.Postgres(t, f.url), atOnce).Queue("jobs") // which looks at all of them each time
	waiting := make([]penstock.NewJob, 1500)
	for i := range waiting {
		waiting[i].Key = "k"
	}
	_, err := q.Enqueue(t.Context(), append(waiting, penstock.NewJob{Priority: 1}, penstock.NewJob{Priority: 1})...)
	f.must(err)
	claim := func() (trips int64) {
		before := p.Trips.Load()
		jobs, err := q.Claim(t.Context(), driver.Claim{Jobs: 1, Lease: time.Hour})
		f.must(err)
		if len(jobs) != 1 {
			t.Fatalf("claimed %d jobs", len(jobs))
		}
		return p.Trips.Load() - before
	}
	claim() // the first of the key
	first := claim()
	if again := claim(); first < 2 || again != 1 {
		t.Errorf("claims behind many that wait took %d and %d round trips, want more than one and one", first, again)
	}
}

// reads are the pages of the store's tables and indexes that were read so far, and the entries of indexes, with the jobs that were read without one. A server
// notes them when a connection ends.
func (f *fixture) reads() (pages, entries float64) {
	f.Helper()
	ctx := f.Context()
	conn, err := pgx.Connect(ctx, f.url)
	f.must(err)
	defer func() { _ = conn.Close(ctx) }()
	others := "from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and state = 'idle'"
	_, err = conn.Exec(ctx, "select pg_terminate_backend(pid) "+others)
	f.must(err)
	for last := -1.0; ; last = pages {
		var left int
		f.must(conn.QueryRow(ctx, "select count(*) "+others).Scan(&left))
		f.must(conn.QueryRow(ctx, `select (select sum(heap_blks_read + heap_blks_hit + coalesce(idx_blks_read + idx_blks_hit, 0)) from pg_statio_user_tables where schemaname = 'penstock_portable')::float8,
			(select sum(idx_tup_read) from pg_stat_user_indexes where schemaname = 'penstock_portable')::float8 + (select coalesce(sum(seq_tup_read), 0) from pg_stat_user_tables where schemaname = 'penstock_portable' and relname like 'queue\_%')::float8`).Scan(&pages, &entries))
		if left == 0 && pages == last {
			break
		}
		if err := ctx.Err(); err != nil {
			f.Fatal(fmt.Errorf("%d connections are left: %w", left, err))
		}
		time.Sleep(50 * time.Millisecond)
	}
	for _, err := f.store.Names(ctx, "queues"); err != nil && ctx.Err() == nil; { // the pool learns that its connections are gone
		_, err = f.store.Names(ctx, "queues")
	}
	return pages, entries
}
