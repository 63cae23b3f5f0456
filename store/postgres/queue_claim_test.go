package postgres_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/postgrestest"
)

// claimed claims what there is, and ends the jobs of acks with the same call.
func (f *jobsFixture) claimed(acks ...int64) (acked []int64, jobs []penstock.Job) {
	f.Helper()
	acked, jobs, err := f.queue.(driver.AckClaimer).AckClaim(f.Ctx, acks, driver.Claim{Jobs: 100, Lease: time.Minute})
	f.Must(err)
	return acked, jobs
}

func (f *jobsFixture) wantClaimed(want ...string) {
	f.Helper()
	if _, jobs := f.claimed(); !slices.Equal(payloads(jobs), want) {
		f.Fatalf("claimed %q, want %q", payloads(jobs), want)
	}
}

// A claim that ends jobs returns the leases that were held, whatever the queue has, and
// however the connection speaks.
func TestClaimEndsJobs(t *testing.T) {
	t.Parallel()
	for name, has := range map[string]struct {
		mode  string
		order penstock.QueueOrder
		job   penstock.NewJob
		set   penstock.QueueSettings
	}{
		"plain":       {},
		"lifo":        {order: penstock.LIFO},
		"keyed":       {job: penstock.NewJob{Key: "k"}},
		"limited":     {set: penstock.QueueSettings{MaxRunning: new(10)}},
		"no prepared": {mode: "&default_query_exec_mode=exec"},
		"simple":      {mode: "&default_query_exec_mode=simple_protocol"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := jobsFixtureOn(t, postgrestest.Database(t)+has.mode, has.order)
			f.Must(f.store.SetQueue(f.Ctx, "jobs", has.set))
			f.enqueue(texts("a", "b")...)
			has.job.Payload = []byte("c")
			f.enqueue(has.job)
			_, first := f.claimed()
			if len(first) != 3 {
				t.Fatalf("claimed %q, want three jobs", payloads(first))
			}
			has.job.Payload = []byte("d")
			f.enqueue(has.job)
			held := []int64{first[0].Lease, first[2].Lease}
			acked, next := f.claimed(append(held, 1<<40)...)
			for len(next) == 0 { // its key was not free yet
				f.Must(f.queue.Maintain(f.Ctx))
				_, next = f.claimed()
			}
			slices.Sort(held)
			slices.Sort(acked)
			if full := acked[0] == driver.Full; full != (name == "limited") {
				t.Errorf("a limit is close: %t", full)
			} else if full {
				acked = acked[1:]
			}
			if !slices.Equal(acked, held) || !slices.Equal(payloads(next), []string{"d"}) {
				t.Errorf("ended %d and claimed %q, want %d and d", acked, payloads(next), held)
			}
			f.Must(f.store.SetQueue(f.Ctx, "jobs", penstock.QueueSettings{Paused: new(true)}))
			if acked, none := f.claimed(first[1].Lease, next[0].Lease); len(acked) != 2 || len(none) != 0 {
				t.Errorf("paused: ended %d and claimed %q, want two and nothing", acked, payloads(none))
			}
		})
	}
}

// The fast path of claims ends jobs wherever their leases are, and none of another queue.
func TestClaimEndsJobsOfOlderLeases(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	f.Exec("select penstock.create_queue('other')")
	f.Exec("select penstock.enqueue('other', 'x')")
	f.enqueue(texts("a", "b")...)
	_, older := f.claimed()
	f.Exec("select setval('penstock._lease_slot', 3)") // as when a table of leases is full
	others := f.Number("select lease from penstock.claim('other')")
	next := func(job string, acks, ended []int64) (lease int64) {
		t.Helper()
		f.enqueue(texts(job)...)
		f.sooner("jobs")
		acked, jobs := f.claimed(acks...)
		slices.Sort(acked)
		if !slices.Equal(acked, ended) || !slices.Equal(payloads(jobs), []string{job}) {
			t.Fatalf("ended %d and claimed %q, want %d and %s", acked, payloads(jobs), ended, job)
		}
		return jobs[0].Lease
	}
	c := next("c", nil, nil)
	d := next("d", []int64{older[0].Lease, c, c, others, 1 << 40}, []int64{older[0].Lease, c})
	next("e", []int64{d}, []int64{d})
	next("f", []int64{older[1].Lease, older[0].Lease}, []int64{older[1].Lease})
}

// A job that commits late or comes back is not lost to the fast path of claims. A seq of the last
// 64 is ahead of it, and an older one is found when 50 ms have passed.
func TestClaimAfterALateCommit(t *testing.T) {
	t.Parallel()
	for _, behind := range []int{10, 1000} {
		f := newJobsFixture(t, penstock.FIFO)
		tx, err := f.Connect().Begin(f.Ctx)
		f.Must(err)
		_, err = tx.Exec(f.Ctx, "insert into penstock.jobs (payload) values ('late')")
		f.Must(err)
		for range behind / 10 {
			f.enqueue(texts("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")...)
			if _, jobs := f.claimed(); len(jobs) != 10 {
				t.Fatalf("claimed %q, want 10 jobs", payloads(jobs))
			}
		}
		f.Must(tx.Commit(f.Ctx))
		if behind > 64 {
			f.Exec(fmt.Sprintf(setFastPath, "jobs", -2))
		} else {
			f.sooner("jobs")
		}
		f.wantClaimed("late")
	}
}

// Claims from a backlog draw positions, and look behind them when 200 ms have passed.
func TestClaimFromABacklogLooksBehind(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	tx, err := f.Connect().Begin(f.Ctx)
	f.Must(err)
	_, err = tx.Exec(f.Ctx, "insert into penstock.jobs (payload) values ('late')")
	f.Must(err)
	f.Exec("insert into penstock.jobs (payload) select convert_to(n::text, 'UTF8') from generate_series(1, 2000) n")
	for range 3 { // the first one looks where to begin
		if _, jobs := f.claimed(); len(jobs) != 100 {
			t.Fatalf("claimed %d jobs, want 100", len(jobs))
		}
	}
	if next := f.Number(`select pg_sequence_last_value('penstock."_jobs.next"')`); next < 200 {
		t.Fatalf("the position is %d: claims do not draw it", next)
	}
	f.Must(tx.Commit(f.Ctx))
	f.Exec(fmt.Sprintf(setFastPath, "jobs", -8))
	if _, jobs := f.claimed(); payloads(jobs)[0] != "late" {
		t.Errorf("claimed %q first, want what committed late", payloads(jobs)[0])
	}
}

// The fast path ends with its segment.
func TestClaimInTheNextSegment(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	f.enqueue(texts("a", "b")...)
	f.wantClaimed("a", "b")
	f.Exec(`select penstock._maintain_ring('jobs', true)`)
	f.enqueue(texts("c")...)
	f.sooner("jobs")
	f.wantClaimed("c")
}

// sooner is the opposite of later: what the fast path knows is not out of date.
func (f *fixture) sooner(queue string) {
	f.Helper()
	f.Exec(fmt.Sprintf(setFastPath, queue, 0))
}
