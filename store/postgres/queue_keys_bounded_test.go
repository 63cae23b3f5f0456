package postgres_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/store/postgres"
)

// What a call reads at most of jobs whose keys must wait, next to those that it moves and leaves dead, and how many calls a job behind
// 20,000 of them waits for. A call passes a fifth of these, from a place that it draws: with the seed given here it needs far fewer.
const (
	waitingReads = 12_000
	waitingCalls = 100
)

// Jobs of a key that must wait, at the head of a queue, cost each call so many entries of indexes and no more. The job behind them is
// found all the same, by callers that roll back what found nothing, and one among them that can run again, by callers that commit.
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
				f.Exec("select setseed(0)")
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
