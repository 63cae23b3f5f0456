package postgres_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/store/postgres"
)

// waitingReads is what a call reads at most of jobs whose keys must wait, next to those that it moves and leaves dead.
const waitingReads = 13_000

// Jobs of a key that must wait, at the head of a queue, cost each call a fixed number of entries of indexes and no more. The job behind them is
// found all the same, by callers that roll back what found nothing, and one among them that can run again, by callers that commit. Each call passes
// 4,000 of them, from places that n calls leave no gap between that is wider than 2/n of the whole, wherever they are counted from.
func TestJobsOfAKeyThatMustWait(t *testing.T) {
	t.Parallel()
	many := 20_000
	if testseed.Long() {
		many = 100_000
	}
	waitingCalls := 2 * many / 4000
	for _, order := range []string{"fifo", "lifo"} {
		for take, key := range map[string]string{"claim('jobs', 1, '1 h')": "runs", "claim('jobs', 100, '1 h')": "is locked", "dequeue('jobs')": "runs"} {
			t.Run(fmt.Sprintf("%s, %s, a key that %s", order, take, key), func(t *testing.T) {
				t.Parallel()
				f, random := newFixture(t, postgres.Options{}), testseed.New(t.Name(), 0)
				t.Logf("PENSTOCK_SEED=%d", testseed.Seed())
				f.Exec("select penstock.create_queue('jobs', $1)", order)
				f.Exec("select penstock.enqueue('jobs', 'x', 'k')")
				if key == "runs" {
					f.Exec("select penstock.claim('jobs', 1, '1 h')")
				}
				parts := []func(){
					func() { f.enqueueWaiting(many / 2) },
					func() { f.Exec("select penstock.enqueue('jobs', 'among', 'other')") },
					func() { f.enqueueWaiting(many / 2) },
					func() { f.Exec("select penstock.enqueue('jobs', 'behind')") },
				}
				for i := range parts {
					if order == "lifo" {
						i = len(parts) - 1 - i
					}
					parts[i]()
				}
				locks := f.begin(f.Connect())
				lock := func(tx pgx.Tx, key string) {
					_, err := tx.Exec(f.Ctx, "select pg_advisory_xact_lock(hashtextextended($1, id)) from penstock._queue", key)
					f.Must(err)
				}
				if key == "is locked" {
					lock(locks, "k")
				}
				other := f.begin(f.Connect())
				lock(other, "other")
				f.pin()
				f.Exec("create table taken (payload bytea)")
				f.Exec(fmt.Sprintf(`select setval('penstock."_jobs.next"', %d)`, random.IntN(1_000_000)))
				want := func(payload string, finish func(pgx.Tx, context.Context) error) {
					t.Helper()
					for calls := 1; ; calls++ {
						tx := f.begin(f.Conn)
						reads := f.readsIn(tx, "insert into taken select payload from penstock."+take)
						if reads > waitingReads {
							t.Fatalf("call %d for the job %s reads %d entries, want at most %d", calls, payload, reads, waitingReads)
						}
						if f.Number("select count(*) from taken where payload = $1::text::bytea", payload) == 1 {
							f.Must(tx.Commit(f.Ctx))
							t.Logf("call %d has the job %s", calls, payload)
							return
						}
						f.Must(finish(tx, f.Ctx))
						if calls == waitingCalls {
							t.Fatalf("%d calls have not found the job %s", calls, payload)
						}
					}
				}
				want("behind", pgx.Tx.Rollback)
				f.Must(other.Commit(f.Ctx))
				want("among", pgx.Tx.Commit)
			})
		}
	}
}

func (f *fixture) enqueueWaiting(n int) {
	f.Helper()
	f.Exec("select penstock.enqueue_many('jobs', array_agg('x'::text), keys => array_agg('k'::text)) from generate_series(1, $1::int)", n)
}
