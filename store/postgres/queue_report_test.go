package postgres_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
)

// A report that waits for the next attempt is a header of the job. A new job has none, though it was enqueued with all that another one carries.
func TestReportIsNotCopied(t *testing.T) {
	f := newJobsFixture(t, penstock.FIFO)
	f.Exec("select penstock.enqueue('jobs', 'x', headers => '{\"a\": \"b\"}')")
	f.Exec("select penstock.report('jobs', j.lease, '{\"penstock-steps\": {\"charge\": 1}}'), penstock.retry('jobs', j.lease, interval '0') from penstock.claim('jobs', 1) j")
	f.wantText("2 {\"charge\": 1} 1", `select j.attempt || ' ' || ((j.headers ->> 'penstock-report')::jsonb -> 'penstock-steps')::text || ' ' || cardinality(array(
		select penstock.enqueue_bytes('jobs', 'new', headers => j.headers)
		union all select * from penstock.enqueue_many('jobs', array['new'], headers => array[j.headers])
		union all select penstock.enqueue('jobs', 'new', headers => j.headers, dedup_key => 'd')
		union all select penstock.enqueue('jobs', 'new', headers => j.headers, not_before => clock_timestamp() + interval '1 ms')
		limit 4)) / 4 from penstock.claim('jobs', 1) j`)
	f.Exec(`insert into penstock.jobs (payload, headers) values ('new', '{"a": "b", "penstock-report": "1"}'), ('new', '{"a": "b", "penstock-report": 1}')`)
	jobs := 0
	f.Eventually("all are claimed", func() bool {
		f.Must(f.queue.Maintain(f.Ctx))
		more, err := f.queue.Claim(f.Ctx, driver.Claim{Jobs: 10, Lease: time.Hour})
		f.Must(err)
		for _, j := range more {
			if j.Report != nil || len(j.Headers) != 1 || j.Headers["a"] != "b" {
				t.Errorf("a new job has the report %s and the headers %v", j.Report, j.Headers)
			}
		}
		jobs += len(more)
		return jobs == 6
	})
}

// Where a job is shown, its report is: that of the attempt that runs, or of the last one that reported.
func TestReportIsShown(t *testing.T) {
	f := newJobsFixture(t, penstock.FIFO)
	ids := f.enqueue(penstock.NewJob{Payload: []byte("x")})
	claim := func() int64 {
		t.Helper()
		jobs, err := f.queue.Claim(f.Ctx, driver.Claim{Jobs: 1, Lease: time.Hour})
		f.Must(err)
		if len(jobs) != 1 {
			t.Fatalf("claimed %d jobs", len(jobs))
		}
		return jobs[0].Lease
	}
	shown := func(state, want string) {
		t.Helper()
		found, err := f.store.FindJobs(f.Ctx, admin.Find{In: "jobs", ID: strconv.FormatInt(ids[0], 10), Limit: 1})
		f.Must(err)
		if len(found) != 1 || found[0].Where[0].State != state || string(found[0].Where[0].Report) != want || len(found[0].Message.Headers) != 0 {
			t.Errorf("found %+v, want it %s with the report %s", found, state, want)
		}
		running, err := f.store.Running(f.Ctx, "jobs", 10)
		f.Must(err)
		if state == "running" && (len(running) != 1 || string(running[0].Report) != want) {
			t.Errorf("it runs as %+v, want the report %s", running, want)
		}
	}
	lease := claim()
	shown("running", "")
	f.Must(f.queue.(driver.Reporter).Report(f.Ctx, lease, []byte(`"one"`)))
	shown("running", `"one"`)
	_, err := f.queue.Retry(f.Ctx, lease, 0, "again")
	f.Must(err)
	shown("ready", `"one"`)
	lease = claim()
	shown("running", `"one"`)
	f.Must(f.queue.(driver.Reporter).Report(f.Ctx, lease, []byte(`"two"`)))
	shown("running", `"two"`)
	_, err = f.queue.(driver.Releaser).Release(f.Ctx, time.Hour, lease)
	f.Must(err)
	shown("delayed", `"two"`)
	f.Exec("update penstock._scheduled set due = now()")
	f.Must(f.queue.Maintain(f.Ctx))
	f.Must(f.queue.DeadLetter(f.Ctx, claim(), "no"))
	shown("dead", `"two"`)
}
