package postgres_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testseed"
)

// In each round a queue gets its first job with a key or a deadline while claims have begun that know of none. Its jobs hold a barrier and end at random,
// some after a retry, or as dead letters that are discarded. Some add others. The job that waits runs once, after all of them.
func TestBarriersOfFreshQueues(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	random := suite.NewEnv(t).Random(0)
	const claims = 2
	conns := make([]*pgx.Conn, claims)
	for i := range conns {
		conns[i] = f.Connect()
	}
	gate := f.Connect()
	for round := range testseed.Steps(20) {
		queue := fmt.Sprint("fresh ", round)
		f.Exec("select penstock.create_queue($1), penstock.set_group($1, '', max_running => 1000)", queue)
		b := f.Number("select penstock.barrier($1)", queue)
		last := f.Number("select penstock.enqueue($1, 'last', waits_for => array[$2::bigint])", queue, b)
		enqueue := func(sql string, args ...any) {
			t.Helper()
			f.Exec("select penstock.enqueue($1, 'x', holds => $2"+sql+")", append([]any{queue, b}, args...)...)
		}
		left := 0
		for range random.IntN(4) {
			enqueue("")
			left++
		}
		type taken struct {
			jobs []leased
			err  error
		}
		claim := func(on *pgx.Conn) (got taken) {
			rows, err := on.Query(f.Ctx, "select id, lease, coalesce(key, ''), attempt from penstock.claim($1, $2, '1 h')", queue, 5)
			if err != nil {
				return taken{err: err}
			}
			got.jobs, got.err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (l leased, err error) {
				err = row.Scan(&l.id, &l.lease, &l.key, &l.attempt)
				return l, err
			})
			return got
		}
		f.run(f.begin(gate), "lock table penstock._group in access exclusive mode") // claims read the limit of their group after the queue's flags
		answers := make(chan taken, claims)
		for _, conn := range conns {
			go func() { answers <- claim(conn) }()
		}
		f.Eventually("the claims have begun", func() bool {
			return f.Number("select count(*) from pg_locks where relation = 'penstock._group'::regclass and not granted") == claims
		})
		for i := range 1 + random.IntN(4) {
			if random.IntN(2) == 0 {
				enqueue(", key => $3", fmt.Sprint("k", i%2))
			} else {
				enqueue(", deadline => now() + interval '1 day'")
			}
			left++
		}
		_, err := gate.Exec(f.Ctx, "commit")
		f.Must(err)
		f.Exec("select penstock.seal($1, $2)", queue, b)
		var running []leased
		more := func(got taken) {
			t.Helper()
			f.Must(got.err)
			for _, j := range got.jobs {
				if j.id == last && left > 0 {
					t.Fatalf("round %d: the job that waits runs, and %d have not ended", round, left)
				}
			}
			running = append(running, got.jobs...)
		}
		for range claims {
			more(<-answers)
		}
		for done := false; !done; more(claim(f.Conn)) {
			if len(running) == 0 {
				f.Exec("select penstock.maintain_queue($1)", queue)
				continue
			}
			i := random.IntN(len(running))
			j := running[i]
			running = append(running[:i], running[i+1:]...)
			if done = j.id == last; !done && random.IntN(6) == 0 {
				enqueue(", key => 'added'")
				left++
			}
			switch what := random.IntN(6); {
			case what == 0 && !done:
				f.Exec("select penstock.retry($1, $2, '0')", queue, j.lease)
				continue
			case what == 1 && !done:
				f.Exec("select penstock.dead_letter($1, $2, 'x')", queue, j.lease)
				f.Exec("select penstock.discard_dead_jobs($1, array[$2::bigint])", queue, j.id)
			default:
				f.wantText("1", "select count(*)::text from penstock.ack_many($1, array[$2::bigint])", queue, j.lease)
			}
			left--
		}
		if left != -1 || len(running) > 0 { // the one that waits has ended as well
			t.Fatalf("round %d: %d jobs have not ended when the one that waits has, and %d run", round, left+1, len(running))
		}
		f.Exec("select penstock.drop_queue($1)", queue)
	}
}
