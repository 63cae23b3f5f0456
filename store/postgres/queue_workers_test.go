package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/work"
)

// A worker without a job is seen, with what it says of itself, and so is that it has stopped. A heartbeat is not a job: it is in no figure, no
// list and no dead letter, also once it has ended.
func TestAnIdleWorkerIsSeen(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	ctx, stop := context.WithCancel(f.Ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- work.Run(ctx, f.queue, func(context.Context, penstock.Job) error { return nil }, work.Options{Worker: "idle", Version: "shop v1", Groups: []string{"", "g"}, Concurrency: 3, Logger: quiet})
	}()
	workers := func(queue string) []admin.Worker {
		t.Helper()
		all, err := f.store.Workers(f.Ctx, queue, 100)
		f.Must(err)
		return all
	}
	var seen []admin.Worker
	f.Eventually("a heartbeat", func() bool { seen = workers("jobs"); return len(seen) == 1 })
	w := seen[0]
	if w.Queue != "jobs" || w.Name != "idle" || w.Version != "shop v1" || w.Concurrency != 3 || len(w.Groups) != 2 || w.Running != 0 || !w.ClaimedAt.IsZero() || w.Stopped || w.StartedAt.IsZero() ||
		w.AliveUntil.Before(w.SeenAt.Add(3*driver.HeartbeatEvery-time.Second)) || w.AliveUntil.After(w.SeenAt.Add(3*driver.HeartbeatEvery)) {
		t.Errorf("it is %+v", w)
	}
	f.enqueue(texts("a", "b")...)
	f.Eventually("the end of the jobs", func() bool { return f.Number("select ready + running from penstock.queue_status('jobs')") == 0 })
	stop()
	f.Must(<-ended)
	if seen = workers(""); len(seen) != 1 || !seen[0].Stopped || seen[0].Done != 2 || seen[0].ClaimedAt.IsZero() {
		t.Errorf("after its end it is %+v", seen)
	}
	if n := f.Number("select count(*) from penstock._lease where queue > 0"); n != 0 {
		t.Errorf("%d leases are left", n)
	}
	f.Exec("update penstock._lease set lease_until = clock_timestamp() - interval '5 minutes'")
	f.Exec("select penstock.maintain_queue('jobs')")
	f.wantText("0 0 0 0 0", "select concat_ws(' ', ready, running, delayed, waiting, dead) from penstock.queue_status('jobs')")
	if seen = workers("jobs"); len(seen) != 1 {
		t.Errorf("after five minutes there are %d", len(seen))
	}
	f.Exec("update penstock._lease set lease_until = clock_timestamp() - interval '15 minutes'")
	if seen = workers("jobs"); len(seen) != 0 {
		t.Errorf("after a quarter of an hour there are %d", len(seen))
	}
}

// Of many heartbeats the last of each worker counts, and a bounded number of entries is read; when their segment is full, those that have
// ended go with it.
func TestHeartbeatsGoWithTheirSegment(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	f.Exec(`insert into penstock._lease (queue, lease_until, claimed_at, priority, worker, group_key, report)
		select -q.id, clock_timestamp() - i * interval '1 second', clock_timestamp(), 0, 'w' || i % 10, '', jsonb_build_object('version', repeat('x', 100)) from penstock._queue q, generate_series(1, 100000) i`)
	f.Must(f.queue.(driver.Heartbeater).Heartbeat(f.Ctx, admin.Worker{Name: "w3", Running: 7}))
	all, err := f.store.Workers(f.Ctx, "jobs", 100)
	f.Must(err)
	if len(all) != 10 || all[3].Name != "w3" || all[3].Running != 7 {
		t.Errorf("there are %+v", all)
	}
	f.Eventually("the turn of the ring", func() bool {
		f.Exec("select penstock.maintain_queue('jobs')")
		return f.Number("select count(*) from penstock._lease") == 1
	})
	if all, err = f.store.Workers(f.Ctx, "jobs", 100); err != nil || len(all) != 1 || all[0].Running != 7 {
		t.Errorf("then there are %+v, %v", all, err)
	}
	f.Must(f.store.DropQueue(f.Ctx, "jobs"))
	if n := f.Number("select count(*) from penstock._lease"); n != 0 {
		t.Errorf("%d are left of a dropped queue", n)
	}
}

// A heartbeat needs a name, and the rights of a worker.
func TestHeartbeatsThatAreRefused(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	q := f.queue.(driver.Heartbeater)
	var field *penstock.FieldError
	if err := q.Heartbeat(f.Ctx, admin.Worker{Name: string(make([]byte, 300))}); !errors.As(err, &field) {
		t.Errorf("a name that is too long: %v", err)
	}
	for _, report := range []string{`{}`, `{"worker": ""}`, `[]`, `1`} {
		if _, err := f.Conn.Exec(f.Ctx, "select penstock.report('jobs', 0, $1)", report); state(err) != "22023" {
			t.Errorf("%s: %v", report, err)
		}
	}
}
