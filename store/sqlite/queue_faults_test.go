package sqlite_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/sqlite"
)

// A full disk refuses jobs and loses none: what was enqueued can be done, and then
// there is room again. A dead letter that cannot be written leaves the job where
// it was.
func TestDiskFullOfJobs(t *testing.T) {
	path, s, app := newFile(t, sqlite.WithPragmas(sqlite.Options{}, "max_page_count(300)"))
	ctx := t.Context()
	if err := s.CreateQueue(ctx, "jobs", penstock.FIFO); err != nil {
		t.Fatal(err)
	}
	q := s.Queue("jobs")
	payload := bytes.Repeat([]byte("x"), 50<<10)
	enqueued := 0
	var full error
	for full == nil && enqueued < 1000 {
		if _, full = q.Enqueue(ctx, penstock.NewJob{Key: "k", Payload: payload}); full == nil {
			enqueued++
		}
	}
	if !errors.Is(full, sqlite.ErrFull) {
		t.Fatalf("after %d jobs: %v", enqueued, full)
	}
	first := claimJobs(t, q, 10)
	if err := q.DeadLetter(ctx, first[0].Lease, "no"); !errors.Is(err, sqlite.ErrFull) {
		t.Fatalf("DeadLetter: %v", err)
	}
	if held, err := q.Extend(ctx, time.Hour, first[0].Lease); err != nil || len(held) != 1 {
		t.Errorf("after the failed DeadLetter: %d, %v", held, err)
	}
	done := 0
	for jobs := first; len(jobs) > 0; jobs = claimJobs(t, q, 10) {
		if held, err := q.Ack(ctx, jobs[0].Lease); err != nil || len(held) != 1 {
			t.Fatalf("Ack with a full disk: %d, %v", held, err)
		}
		done++
	}
	if done != enqueued {
		t.Errorf("%d jobs were enqueued and %d done", enqueued, done)
	}
	if _, err := q.Enqueue(ctx, penstock.NewJob{Payload: payload}); err != nil {
		t.Errorf("after room was made: %v", err)
	}
	if check := scan[string](t, app, `pragma integrity_check`); check != "ok" {
		t.Errorf("integrity_check of %s: %s", path, check)
	}
}

// After a backlog the file gives its pages back, but for a reserve.
func TestFileShrinksAfterJobs(t *testing.T) {
	path, _, q := newQueue(t, penstock.FIFO)
	app := openApp(t, path)
	jobs := make([]penstock.NewJob, 40)
	for i := range jobs {
		jobs[i].Payload = bytes.Repeat([]byte("x"), 1<<20)
	}
	if _, err := q.Enqueue(t.Context(), jobs...); err != nil {
		t.Fatal(err)
	}
	full := scan[int](t, app, `pragma page_count`)
	for claimed := claimJobs(t, q, 10); len(claimed) > 0; claimed = claimJobs(t, q, 10) {
		for _, j := range claimed {
			if _, err := q.Ack(t.Context(), j.Lease); err != nil {
				t.Fatal(err)
			}
		}
	}
	const reserve = 4096 + 100
	for calls := 0; scan[int](t, app, `pragma page_count`) > reserve; calls++ {
		if calls > full {
			t.Fatalf("the file has %d pages after %d calls of Maintain, had %d", scan[int](t, app, `pragma page_count`), calls, full)
		}
		if err := q.Maintain(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// Of many leases that end at once, and many jobs that become due, each transaction
// takes some; one Maintain takes all. Dedup keys that no longer count are forgotten.
func TestMaintainOfMany(t *testing.T) {
	path, s, q := newQueue(t, penstock.FIFO)
	app := openApp(t, path)
	const many = 1200
	jobs := make([]penstock.NewJob, 0, 2*many)
	for range many {
		jobs = append(jobs, penstock.NewJob{}, penstock.NewJob{NotBefore: time.Now().Add(time.Hour)})
	}
	for i := range jobs {
		jobs[i].DedupKey = string(rune('a'+i%26)) + time.Duration(i).String()
	}
	ids, err := q.Enqueue(t.Context(), jobs...)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := q.Enqueue(t.Context(), jobs[7], penstock.NewJob{}, jobs[9], jobs[9]); err != nil || again[0].ID != ids[7].ID || again[2].ID != ids[9].ID || again[3].ID != ids[9].ID || again[1].ID <= ids[len(ids)-1].ID {
		t.Fatalf("duplicates got the ids %v, %v, want %d and %d around a new one", again, err, ids[7].ID, ids[9].ID)
	}
	if claimed := claimJobs(t, q, many+1); len(claimed) != many+1 {
		t.Fatalf("claimed %d jobs", len(claimed))
	}
	mustExec(t, app, `update penstock_dedup set at = 1`)
	if late, err := q.Enqueue(t.Context(), jobs[7], jobs[9]); err != nil || late[0].ID <= ids[len(ids)-1].ID || late[1].ID <= late[0].ID {
		t.Fatalf("after the window duplicates got the ids %v, %v, want new ones", late, err)
	}
	mustExec(t, app, `update penstock_leases set until = 1`)
	mustExec(t, app, `update penstock_scheduled set due = 1`)
	mustExec(t, app, `update penstock_dedup set at = 1`)
	if err := q.Maintain(t.Context()); err != nil {
		t.Fatal(err)
	}
	all, err := s.QueueStatus(t.Context())
	if err != nil || all[0].Ready != 2*many+3 || all[0].Running+all[0].Delayed != 0 {
		t.Errorf("after Maintain: %+v, %v", all[0], err)
	}
	if n := scan[int](t, app, `select count(*) from penstock_dedup`); n != 0 {
		t.Errorf("%d dedup keys are remembered", n)
	}
	claimed := claimJobs(t, q, driver.MaxClaim)
	for i, j := range claimed {
		if i > 0 && j.ID <= claimed[i-1].ID {
			t.Fatalf("job %d came after %d", j.ID, claimed[i-1].ID)
		}
	}
}

// Workers that find nothing to do do not ask for the lock: here another writer
// has it.
func TestIdleWorkersDoNotLock(t *testing.T) {
	path, _, q := newQueue(t, penstock.FIFO)
	if _, err := q.Enqueue(t.Context(), penstock.NewJob{NotBefore: time.Now().Add(time.Hour)}, penstock.NewJob{Key: "k"}, penstock.NewJob{Key: "k"}); err != nil {
		t.Fatal(err)
	}
	claimJobs(t, q, 10)
	writer, err := openApp(t, path).Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Rollback()
	ctx, cancel := context.WithTimeout(t.Context(), patience/2)
	defer cancel()
	if jobs, err := q.Claim(ctx, driver.Claim{Jobs: 10, Lease: time.Hour}); err != nil || len(jobs) != 0 {
		t.Errorf("Claim: %v, %v", jobs, err)
	}
	if err := q.Maintain(ctx); err != nil {
		t.Errorf("Maintain: %v", err)
	}
}

// A lease that has ended is lost even if no call has noticed yet, and a job is known by its id
// alone, wherever it is now.
func TestEndedLeasesAndOldIDs(t *testing.T) {
	path, s, q := newQueue(t, penstock.FIFO)
	app := openApp(t, path)
	ctx := t.Context()
	ids, err := q.Enqueue(ctx, penstock.NewJob{}, penstock.NewJob{})
	if err != nil {
		t.Fatal(err)
	}
	jobs := claimJobs(t, q, 2)
	if err := q.DeadLetter(ctx, jobs[0].Lease, "no"); err != nil {
		t.Fatal(err)
	}
	mustExec(t, app, `update penstock_leases set until = 1`)
	if held, err := q.Extend(ctx, time.Hour, jobs[1].Lease); err != nil || len(held) != 0 {
		t.Errorf("Extend: %d, %v", held, err)
	}
	if held, err := q.Ack(ctx, jobs[1].Lease); err != nil || len(held) != 0 {
		t.Errorf("Ack: %d, %v", held, err)
	}
	if _, err := q.Retry(ctx, jobs[1].Lease, 0, "no"); !errors.Is(err, penstock.ErrLeaseLost) {
		t.Errorf("Retry: %v", err)
	}
	if err := q.DeadLetter(ctx, jobs[1].Lease, "no"); !errors.Is(err, penstock.ErrLeaseLost) {
		t.Errorf("DeadLetter: %v", err)
	}
	if n, err := s.RetryDeadJobs(ctx, admin.DeadJobQuery{Queue: "jobs"}); n != 1 || err != nil {
		t.Fatalf("RetryDeadJobs: %d, %v", n, err)
	}
	seq := scan[int64](t, app, `select max(seq) from penstock_queue_jobs`)
	if n, err := s.CancelJobs(ctx, "jobs", seq); n != 0 || err != nil {
		t.Errorf("CancelJobs of a seq that is no id: %d, %v", n, err)
	}
	if n, err := s.CancelJobs(ctx, "jobs", ids[0].ID, ids[1].ID); n != 2 || err != nil {
		t.Errorf("CancelJobs: %d, %v", n, err)
	}
}
