package postgres_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/work"
)

func (f *jobsFixture) keepDone(d time.Duration) {
	f.Helper()
	f.Must(f.store.SetQueue(f.Ctx, "jobs", penstock.QueueSettings{KeepDone: &d}))
}

// done reads all kept jobs of the queue, a page of limit at a time, by id. Each job comes once.
func (f *jobsFixture) done(limit int) map[int64]admin.DoneJob {
	f.Helper()
	all := map[int64]admin.DoneJob{}
	for after := ""; ; {
		jobs, next, err := f.store.DoneJobs(f.Ctx, admin.DoneJobQuery{Queue: "jobs", After: after, Limit: limit})
		f.Must(err)
		if len(jobs) > limit {
			f.Fatalf("a page of %d has %d", limit, len(jobs))
		}
		for _, j := range jobs {
			if _, twice := all[j.ID]; twice {
				f.Fatalf("job %d came twice", j.ID)
			}
			all[j.ID] = j
		}
		if next == "" {
			return all
		}
		after = next
	}
}

func (f *jobsFixture) claim(worker string, n int, acks []int64) []penstock.Job {
	f.Helper()
	_, jobs, err := f.queue.(driver.AckClaimer).AckClaim(f.Ctx, acks, driver.Claim{Jobs: n, Lease: time.Minute, Worker: worker})
	f.Must(err)
	return jobs
}

func (f *jobsFixture) ack(jobs ...penstock.Job) {
	f.Helper()
	leases := make([]int64, len(jobs))
	for i := range jobs {
		leases[i] = jobs[i].Lease
	}
	held, err := f.queue.Ack(f.Ctx, leases...)
	f.Must(err)
	if len(held) != len(jobs) {
		f.Fatalf("%d of %d leases were held", len(held), len(jobs))
	}
}

// However jobs are claimed and acked, each that is done is kept once, as it was. Without keep_done nothing is.
func TestDoneJobs(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	f.enqueue(texts("before")...)
	f.ack(f.claim("w0", 1, nil)...)
	if n := f.Number(`select count(*) from pg_class where relname like '\_jobs.done%'`); n != 0 {
		t.Fatalf("%d tables of a history that nobody wants", n)
	}
	if jobs := f.done(10); len(jobs) != 0 {
		t.Fatalf("kept without keep_done: %v", jobs)
	}
	running := func() penstock.Job { f.enqueue(texts("claimed before")...); return f.claim("w0", 1, nil)[0] }()
	f.keepDone(24 * time.Hour)
	began := time.Now().Add(-time.Minute)
	want := map[int64]string{} // kind, worker, attempt, key, report
	note := func(jobs []penstock.Job, worker string) []penstock.Job {
		for _, j := range jobs {
			want[j.ID] = fmt.Sprint(j.Kind(), " ", worker, " ", j.Attempt, " ", j.Key, " ")
		}
		return jobs
	}
	f.ack(note([]penstock.Job{running}, "w0")...)
	for i := range 400 {
		f.enqueue(penstock.NewJob{Payload: []byte("x"), Kind: []string{"", "welcome", "digest"}[i%3]})
	}
	f.ack(note(f.claim("one", 1, nil), "one")...)
	f.ack(note(f.claim("rows", 300, nil), "rows")...) // a row each, acked together
	shared := note(f.claim("shared", 20, []int64{}), "shared")
	f.ack(shared...) // all of a claim
	shared = note(f.claim("parts", 20, []int64{}), "parts")
	f.ack(shared[2:6]...)
	f.ack(shared[0])
	f.Must(f.queue.(driver.Reporter).Report(f.Ctx, shared[1].Lease, []byte(`{"half": true}`)))
	f.Must(f.queue.(driver.Reporter).Report(f.Ctx, shared[1].Lease, []byte(`{"rows": 7}`)))
	want[shared[1].ID] += `{"rows": 7}`
	last := note(f.claim("next", 1, leasesOfJobs(shared[6:])), "next") // carried by a claim
	f.ack(append(last, shared[1])...)
	one := note(f.claim("single", 1, nil), "single")
	one = append(note(f.claim("carried", 1, leasesOfJobs(one)), "carried"), note(f.claim("rest", 1000, nil), "rest")...)
	f.ack(one...)
	f.enqueue(penstock.NewJob{Key: "k", Payload: []byte("keyed")}, penstock.NewJob{Payload: []byte("fails"), Priority: 3})
	keyed := f.claim("keyed", 10, nil)
	_, err := f.queue.Retry(f.Ctx, keyed[1].Lease, 0, "not yet")
	f.Must(err)
	f.ack(note(keyed[:1], "keyed")...)
	again := note(f.claim("again", 1, nil), "again")
	f.ack(again...)

	for _, limit := range []int{1000, 7} {
		got := map[int64]string{}
		for id, j := range f.done(limit) {
			got[id] = fmt.Sprint(j.Kind, " ", j.Worker, " ", j.Attempt, " ", j.Key, " ", string(j.Report))
			if j.ClaimedAt.After(j.FinishedAt) || j.FinishedAt.Before(began) || j.CreatedAt.Before(began) || j.ClaimedAt.IsZero() {
				t.Fatalf("the times of %+v", j)
			}
			if id == again[0].ID && (len(j.Failures) != 1 || j.Failures[0].Err != "not yet" || j.Priority != 3) {
				t.Errorf("what ran again: %+v", j)
			}
		}
		if !maps.Equal(got, want) {
			for id := range want {
				if got[id] != want[id] {
					t.Errorf("job %d is kept as %q, want %q", id, got[id], want[id])
				}
			}
			t.Fatalf("%d jobs are kept, want %d", len(got), len(want))
		}
	}
	// Some by their ids, and in SQL, the latest first.
	some, _, err := f.store.DoneJobs(f.Ctx, admin.DoneJobQuery{Queue: "jobs", IDs: []int64{shared[1].ID, 1 << 40}, Limit: 10})
	f.Must(err)
	if len(some) != 1 || some[0].ID != shared[1].ID {
		t.Errorf("by id: %+v", some)
	}
	if n := f.Number("select id from penstock.done_jobs('jobs', 1)"); n != again[0].ID {
		t.Errorf("the latest is %d, want %d", n, again[0].ID)
	}
	// These are neither a position nor a list.
	for _, bad := range []string{"done_jobs('jobs', 0)", "done_jobs('jobs', 1, 'x')", "done_jobs('jobs', 1, '1.2')", "done_jobs('nobody')"} {
		if _, err := f.Conn.Exec(f.Ctx, "select penstock."+bad); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
	f.Must(f.store.DropQueue(f.Ctx, "jobs"))
	if n := f.Number(`select count(*) from pg_class where relname like '\_jobs.%'`); n != 0 {
		t.Errorf("%d relations of a queue that was dropped", n)
	}
}

func leasesOfJobs(jobs []penstock.Job) []int64 {
	leases := make([]int64, len(jobs))
	for i := range jobs {
		leases[i] = jobs[i].Lease
	}
	return leases
}

// Workers run while history is switched on and off: no job is lost or run twice, and jobs that end once it stays on are
// kept.
func TestDoneJobsOfWorkers(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	var ran, more atomic.Int64
	ctx, stop := context.WithCancel(f.Ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- work.Run(ctx, f.queue, func(ctx context.Context, job penstock.Job) error {
			if job.Attempt != 1 {
				more.Add(1)
			}
			ran.Add(1)
			if string(job.Payload) == "tell" {
				return work.Report(ctx, map[string]int64{"id": job.ID})
			}
			return nil
		}, work.Options{Logger: quiet, Worker: "w", Concurrency: 4})
	}()
	total := int64(0)
	for round := range 6 {
		f.enqueue(slices.Repeat(texts("x"), 300)...)
		total += 300
		f.keepDone([]time.Duration{time.Hour, 0}[round%2])
	}
	f.Eventually("all jobs run", func() bool { return ran.Load() == total && f.running() == 0 })
	f.keepDone(time.Hour)
	ids := f.enqueue(append(slices.Repeat(texts("x"), 500), texts("tell")...)...)
	f.Eventually("all jobs run", func() bool { return ran.Load() == total+int64(len(ids)) && f.running() == 0 }) // pages shift while jobs end
	f.Eventually("all jobs are kept", func() bool {
		kept := f.done(1000)
		for _, id := range ids {
			if _, ok := kept[id]; !ok {
				return false
			}
		}
		return true
	})
	stop()
	f.Must(<-ended)
	if ran.Load() != total+501 || more.Load() != 0 {
		t.Errorf("%d jobs ran, %d of them again; want %d and 0", ran.Load(), more.Load(), total+501)
	}
	teller := f.done(1000)[ids[500]]
	if want := fmt.Sprintf(`{"id": %d}`, teller.ID); string(teller.Report) != want || teller.Worker != "w" || teller.Duration() <= 0 {
		t.Errorf("kept as %+v with %s, want %s", teller, teller.Report, want)
	}
	if err := work.Report(f.Ctx, 1); err == nil || !strings.Contains(err.Error(), "no job") {
		t.Errorf("a report of no job: %v", err)
	}
}

func (f *jobsFixture) running() int64 {
	return f.Number("select running from penstock.queue_status('jobs')")
}

// Jobs older than the retention go, and no sooner, whichever snapshot is open; and so do jobs beyond its
// number.
func TestDoneJobsAreTruncated(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	f.keepDone(24 * time.Hour)
	pin := f.connectAs(f.URL)
	_, err := pin.Exec(f.Ctx, "begin isolation level repeatable read; select 1")
	f.Must(err)
	var ids []int64
	for hour := range 60 {
		f.enqueue(texts("x")...)
		jobs := f.claim("w", 1, nil)
		f.ack(jobs...)
		ids = append(ids, jobs[0].ID)
		f.Exec("select penstock.advance_queue('jobs', '1 h')")
		kept := f.done(1000)
		for back := range ids {
			_, ok := kept[ids[len(ids)-1-back]]
			switch age := back + 1; { // hours
			case age <= 24 && !ok:
				t.Fatalf("after %d hours job %d of %d hours is gone", hour+1, ids[len(ids)-1-back], age)
			case age > 24+8+1 && ok: // a segment has a quarter of the time, begins and ends with a look at it
				t.Fatalf("after %d hours job %d of %d hours is kept", hour+1, ids[len(ids)-1-back], age)
			}
		}
	}
	// 1 MiB in place of 1 GiB.
	least := int64(penstock.MinKeepDoneBytes)
	f.Must(f.store.SetQueue(f.Ctx, "jobs", penstock.QueueSettings{KeepDoneBytes: &least}))
	var last int64
	for range 15 {
		f.enqueue(slices.Repeat(texts("x"), 500)...)
		jobs := f.claim("w", 500, nil)
		for i := 0; i < len(jobs); i += 25 {
			f.Must(f.queue.(driver.Reporter).Report(f.Ctx, jobs[i].Lease, []byte(`"`+strings.Repeat("r", 12_000)+`"`)))
		}
		f.ack(jobs...)
		last = jobs[len(jobs)-1].ID
		f.Exec("select penstock.advance_queue('jobs', '1 s')")
		status, err := f.store.QueueStatus(f.Ctx)
		f.Must(err)
		if b := status[0].DoneBytes; b == 0 || b > 2<<20 { // looked at once in 500 jobs
			t.Fatalf("history takes %d bytes, of %d", b, least)
		}
	}
	kept := f.done(1000)
	if _, ok := kept[last]; !ok || len(kept) < 500 {
		t.Errorf("%d jobs are kept; the last one: %v", len(kept), ok)
	}
	// Nothing is wanted: nothing stays.
	f.keepDone(0)
	f.Exec("select penstock.maintain_queue('jobs')")
	f.Exec("select penstock.advance_queue('jobs', '1 s')")
	if kept := f.done(1000); len(kept) != 0 {
		t.Errorf("%d jobs are kept, want none", len(kept))
	}
}

// Who looks after a queue reads its history; its workers and producers do not.
func TestDoneJobsOfARole(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	f.keepDone(time.Hour)
	f.enqueue(texts("a", "b")...)
	read := "select * from penstock.done_jobs('jobs')"
	for _, grant := range []string{"grant_enqueuer", "grant_worker", "grant_operator"} {
		name, url := f.role()
		f.Exec("select penstock."+grant+"('jobs', $1)", name)
		conn := f.connectAs(url)
		f.wantDenied(conn, `select * from penstock."_jobs.done"`, `select * from penstock."_jobs.done_0"`, "select penstock.set_queue('jobs', keep_done => '1 h')")
		if grant != "grant_operator" {
			f.wantDenied(conn, read)
		}
		switch grant {
		case "grant_worker":
			store := openStore(t, url, postgres.Options{})
			q := store.Queue("jobs")
			jobs, err := q.Claim(f.Ctx, driver.Claim{Jobs: 1, Lease: time.Minute})
			f.Must(err)
			f.Must(q.Report(f.Ctx, jobs[0].Lease, []byte("1")))
			if err := q.Report(f.Ctx, jobs[0].Lease, make([]byte, penstock.MaxReportBytes+1)); err == nil {
				t.Error("a report that is too long was taken")
			}
			if err := q.Report(f.Ctx, jobs[0].Lease+2, []byte("1")); err == nil || !strings.Contains(err.Error(), "lease") {
				t.Errorf("a report of a lease that nobody has: %v", err)
			}
			_, err = q.Ack(f.Ctx, jobs[0].Lease)
			f.Must(err)
		case "grant_operator":
			store := openStore(t, url, postgres.Options{})
			jobs, _, err := store.DoneJobs(f.Ctx, admin.DoneJobQuery{Queue: "jobs", Limit: 10})
			f.Must(err)
			if len(jobs) != 1 || string(jobs[0].Report) != "1" {
				t.Errorf("an operator sees %+v", jobs)
			}
			status, err := store.QueueStatus(f.Ctx)
			f.Must(err)
			if len(status) != 1 || status[0].DoneBytes == 0 {
				t.Errorf("an operator sees %+v", status)
			}
		}
	}
}
