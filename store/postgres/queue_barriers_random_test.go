package postgres_test

import (
	"slices"
	"testing"

	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testseed"
)

// Jobs of claims, which hold one of several barriers or none, end at random, some at a time. Each job that waits is let go with the end of the last one.
func TestBarriersOfClaimsAtRandom(t *testing.T) {
	t.Parallel()
	env := suite.NewEnv(t)
	const unended = `select count(*) from (select t.headers from penstock.q t union all select s.headers from penstock._scheduled s union all select d.headers from penstock._dead_job d
			union all select l.headers from penstock._lease l where l.jobs is null
			union all select j.headers from penstock._lease l cross join unnest(l.jobs) j where get_bit(l.done, (j.lease >> 1 & 255)::int) = 0) x
		where ltrim(x.headers ->> 'penstock-holds', '0') = $1::bigint::text`
	f := newJobs(t, "fifo")
	random := env.Random(0)
	for round := range testseed.Steps(60) {
		var barriers []int64
		for range 1 + random.IntN(3) {
			b := f.Number("select penstock.barrier('q')")
			f.Exec("select penstock.enqueue('q', 'done', waits_for => array[$1::bigint])", b)
			barriers = append(barriers, b)
		}
		n := 10 + random.IntN(60)
		var holds []int64
		for range n {
			if i := random.IntN(len(barriers) + 1); i < len(barriers) {
				holds = append(holds, barriers[i])
			} else {
				holds = append(holds, 0)
			}
		}
		if random.IntN(3) == 0 {
			slices.Sort(holds)
		}
		for _, b := range holds {
			f.Exec("select penstock.enqueue('q', 'x', holds => nullif($1::bigint, 0))", b)
		}
		for _, b := range barriers {
			f.Exec("select penstock.seal('q', $1)", b)
		}
		var held []int64
		part := func() (some []int64) { // of those held
			switch random.IntN(4) {
			case 0:
				random.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
			case 1:
				slices.Reverse(held)
			case 2:
				slices.Sort(held)
			}
			k := random.IntN(len(held) + 1)
			some, held = held[:k], slices.Clone(held[k:])
			if random.IntN(2) == 0 {
				slices.Sort(some)
			}
			return some
		}
		for step := range 300 {
			switch what := random.IntN(10); {
			case what < 4:
				acks := part()
				got, err := f.ackClaim(f.Conn, acks, 1+random.IntN(20))
				f.Must(err)
				held = append(held, got...)
			case what < 7:
				f.Exec("select penstock.ack_many('q', $1)", part())
			case what == 7 && len(held) > 0:
				i := random.IntN(len(held))
				f.Exec([]string{"select penstock.release('q', $1)", "select penstock.retry('q', $1, '0')", "select penstock.dead_letter('q', $1, 'no')"}[random.IntN(3)], held[i])
				held = slices.Delete(held, i, i+1)
			case what == 8:
				f.Exec([]string{"select penstock.retry_dead_jobs('q', array(select id from penstock._dead_job))", "select penstock.discard_dead_jobs('q', array(select id from penstock._dead_job limit 1))"}[random.IntN(2)])
			}
			open := 0
			for _, b := range barriers {
				jobs := f.Number(unended, b)
				waiting := f.Number("select count(*) from penstock._scheduled s where s.headers ->> 'penstock-waits-for' = $1::bigint::text", b)
				if (jobs > 0) != (waiting > 0) {
					t.Fatalf("round %d, step %d: %d jobs hold a barrier, and %d wait for it", round, step, jobs, waiting)
				}
				if jobs == 0 {
					open++
				}
			}
			if open == len(barriers) {
				break
			}
		}
		f.Exec("select penstock.ack_many('q', $1)", held)
		f.Exec("select penstock.discard_dead_jobs('q', array(select id from penstock._dead_job))")
		f.Exec("select penstock.cancel('q', array(select coalesce(j.id, l.id) from penstock._lease l left join unnest(l.jobs) j on true) || array(select coalesce(id, seq) from penstock.q) || array(select id from penstock._scheduled))")
	}
}
