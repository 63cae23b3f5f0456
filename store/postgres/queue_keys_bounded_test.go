package postgres_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/store/postgres"
)

// What a call reads at most of jobs whose keys must wait, next to those that it moves and leaves dead, and how many of them it passes
// from where others came to.
const (
	waitingReads  = 12_000
	waitingPassed = 4_000
)

// Jobs of a key that must wait, at the head of a queue, cost each call so many entries of indexes and no more. Others go on where
// one came to, and begin again behind the last: so the job behind them is found, and one among them that can run again.
func TestJobsOfAKeyThatMustWait(t *testing.T) {
	t.Parallel()
	const many = 20_000
	for _, order := range []string{"fifo", "lifo"} {
		for take, key := range map[string]string{"claim('jobs', 1, '1 h')": "runs", "claim('jobs', 100, '1 h')": "is locked", "dequeue('jobs')": "runs"} {
			t.Run(fmt.Sprintf("%s, %s, a key that %s", order, take, key), func(t *testing.T) {
				t.Parallel()
				f := newFixture(t, postgres.Options{})
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
				want := func(payload string) {
					t.Helper()
					for calls := 1; ; calls++ {
						reads := f.reads("insert into taken select payload from penstock." + take)
						if reads > waitingReads {
							t.Fatalf("call %d for the job %s reads %d entries, want at most %d", calls, payload, reads, waitingReads)
						}
						if f.Number("select count(*) from taken where payload = $1::text::bytea", payload) == 1 {
							t.Logf("call %d has the job %s", calls, payload)
							return
						}
						if calls > 2*many/waitingPassed+2 {
							t.Fatalf("%d calls have not found the job %s", calls, payload)
						}
					}
				}
				want("behind")
				f.Must(other.Commit(f.Ctx))
				want("among")
			})
		}
	}
}

func (f *fixture) enqueueWaiting(n int) {
	f.Helper()
	f.Exec("select penstock.enqueue_many('jobs', array_agg('x'::text), keys => array_agg('k'::text)) from generate_series(1, $1::int)", n)
}
