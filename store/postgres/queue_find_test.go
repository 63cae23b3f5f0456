package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// find_job shows where a job is in each state, for each role of a queue. It does not show the payload.
func TestFindJob(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	f.keepDone(time.Hour)
	var calls []*pgx.Conn
	for _, grant := range []string{"grant_enqueuer", "grant_worker", "grant_operator"} {
		name, url := f.role()
		f.Exec("select penstock."+grant+"('jobs', $1)", name)
		calls = append(calls, f.connectAs(url))
	}
	stranger, url := f.role()
	f.Exec("grant usage on schema penstock to " + stranger)
	f.wantDenied(f.connectAs(url), "select * from penstock.find_job('jobs', 1)")
	find := func(id int64, want string) {
		t.Helper()
		for _, as := range calls {
			var got string
			f.Must(as.QueryRow(f.Ctx, `select coalesce((select concat_ws(' ', j.id = $1, j.state, quote_literal(j.kind), j.key, quote_literal(j.group_key), j.priority, j.attempt, 'error ' || j.error,
				'report ' || j.report::text, 'by ' || j.worker, 'claimed ' || (j.claimed_at >= j.created_at), 'until ' || (j.until > clock_timestamp()), 'ended ' || (j.ended_at >= j.created_at))
				from penstock.find_job('jobs', $1) j), 'none')`, id).Scan(&got))
			if got != want {
				t.Errorf("job %d is %s, want %s", id, got, want)
			}
		}
	}
	enqueue := func(j penstock.NewJob) int64 {
		j.Payload = []byte("secret")
		return f.enqueue(j)[0]
	}
	claim := func(group string, n int) []penstock.Job {
		t.Helper()
		jobs, err := f.queue.Claim(f.Ctx, driver.Claim{Group: group, Jobs: n, Lease: time.Hour, Worker: "w"})
		f.Must(err)
		if len(jobs) != n {
			t.Fatalf("claimed %d jobs of the group %q, want %d", len(jobs), group, n)
		}
		return jobs
	}

	id := enqueue(penstock.NewJob{Kind: "export", Key: "k", Group: "g", Priority: 3})
	find(id, "t ready 'export' k 'g' 3 0")
	job := claim("g", 1)[0]
	find(id, "t running 'export' k 'g' 3 1 by w claimed true until true")
	f.Must(f.queue.(driver.Reporter).Report(f.Ctx, job.Lease, []byte(`{"rows": 7}`)))
	find(id, `t running 'export' k 'g' 3 1 report {"rows": 7} by w claimed true until true`)
	_, err := f.queue.Retry(f.Ctx, job.Lease, time.Hour, "it failed")
	f.Must(err)
	find(id, `t delayed 'export' k 'g' 3 1 error it failed report {"rows": 7} until true`)
	behind := enqueue(penstock.NewJob{Key: "k", Group: "g"})
	find(behind, "t ready '' k 'g' 0 0")                                     // nothing has tried to take it
	f.Exec("select penstock.retry_dead_jobs('jobs', array[$1::bigint])", id) // runs it now
	find(id, `t ready 'export' k 'g' 3 1 error it failed report {"rows": 7}`)
	f.Eventually("it is claimed again", func() bool {
		f.Must(f.queue.Maintain(f.Ctx))
		jobs, err := f.queue.Claim(f.Ctx, driver.Claim{Group: "g", Jobs: 1, Lease: time.Hour, Worker: "w"})
		f.Must(err)
		if len(jobs) == 1 {
			job = jobs[0]
		}
		return len(jobs) == 1
	})
	if job.ID != id {
		t.Fatalf("claimed job %d, want %d", job.ID, id)
	}
	f.Must(f.queue.DeadLetter(f.Ctx, job.Lease, "no more"))
	find(id, `t dead 'export' k 'g' 3 2 error no more report {"rows": 7} ended true`)

	delayed := enqueue(penstock.NewJob{NotBefore: time.Now().Add(time.Hour)})
	find(delayed, "t delayed '' '' 0 0 until true")
	var barrier int64
	f.Must(f.Conn.QueryRow(f.Ctx, "select penstock.barrier('jobs')").Scan(&barrier))
	waits := enqueue(penstock.NewJob{WaitsFor: []int64{barrier}})
	find(waits, "t waiting '' '' 0 0")

	many := make([]penstock.NewJob, 20) // they share a lease
	for i := range many {
		many[i] = penstock.NewJob{Payload: []byte("secret"), Kind: "many"}
	}
	ids := f.enqueue(many...)
	_, jobs, err := f.queue.(driver.AckClaimer).AckClaim(f.Ctx, nil, driver.Claim{Jobs: 20, Lease: time.Hour, Worker: "w"})
	f.Must(err)
	if len(jobs) != 20 {
		t.Fatalf("claimed %d jobs", len(jobs))
	}
	find(ids[3], "t running 'many' '' 0 1 by w claimed true until true")
	_, err = f.queue.Ack(f.Ctx, jobs[3].Lease)
	f.Must(err)
	find(ids[3], "t done 'many' '' 0 1 by w claimed true ended true")
	find(ids[4], "t running 'many' '' 0 1 by w claimed true until true")

	_, err = f.store.CancelJobs(f.Ctx, "jobs", delayed)
	f.Must(err)
	find(delayed, "none")
	find(0, "none")
	f.Exec("select penstock.enqueue('jobs', 'x', group_key => 'group ' || g) from generate_series(1, 1100) g") // more than are looked up
	last := f.Number("select penstock.enqueue('jobs', 'x', group_key => 'zz')")
	find(last, "t ready '' 'zz' 0 0")
}
