package portable_test

import (
	"context"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/portable"
)

// What was deleted is in the indexes for as long as a snapshot is pinned. Nothing that relays and workers do again and again walks over it more than once.
func TestDeletedIsPassedOver(t *testing.T) {
	t.Parallel()
	// Nothing commits late here, and what time decides is left out: looking again for it.
	f := newFixture(t, portable.Options{Margin: time.Millisecond, Sweep: time.Hour, LookAgain: time.Hour})
	f.must(f.store.CreateQueue(t.Context(), "jobs", penstock.FIFO))
	f.must(f.store.SetQueue(t.Context(), "jobs", penstock.QueueSettings{MaxRunning: new(1000)}))
	q := f.store.Queue("jobs")
	src := f.subscribe()
	defer pin(t, f.url)()
	const many, enough = 10_000, 500
	for _, rows := range []string{
		"leases (queue_id, seq, group_key, priority, ts, key, attempt, until, worker) select 1, -g, '', 0, now(), '', 1, now() - interval '1 hour', '' from",
		"tries (queue_id, seq, group_key, priority, ts, key, due, attempts) select 1, -g, '', 0, now(), '', now() - interval '1 hour', 1 from",
		"dedup (queue_id, dedup_key, seq, at) select 1, g, -g, now() - interval '2 hours' from",
		"progress (subscription_id, epoch, attempt, at, settled) select 1, 0, g, now() - interval '1 hour', 0 from",
		"entries (subscription_id, seq, bucket, ts, state, head, due) select 1, -g, 0, now(), 1, true, now() - interval '1 hour' from",
		"entries (subscription_id, seq, bucket, ts, state, due) select 1, -g, 0, now(), 3, now() - interval '1 hour' from",
		"outbox_orders (payload) select '' from",
		"queue_jobs (payload) select '' from",
	} {
		exec(t, f.url, "insert into penstock_portable."+rows+" generate_series(1, $1) g", many)
		for _, table := range []string{"leases", "tries", "dedup", "entries", "outbox_orders", "queue_jobs"} {
			exec(t, f.url, "delete from penstock_portable."+table)
		}
	}
	fetched := penstock.Batch{}
	calls := []struct {
		name string
		do   func() error
	}{
		{"Claim and Ack", func() error {
			if _, err := q.Enqueue(t.Context(), penstock.NewJob{Payload: []byte("job")}); err != nil {
				return err
			}
			jobs, err := q.Claim(t.Context(), penstock.Claim{Jobs: 1, Lease: time.Hour})
			if err != nil || len(jobs) != 1 {
				t.Fatalf("claimed %d jobs: %v", len(jobs), err)
			}
			_, err = q.Ack(t.Context(), jobs[0].Lease)
			return err
		}},
		{"a queue's Maintain", func() error { return q.Maintain(t.Context()) }},
		{"Fetch", func() (err error) {
			f.publish("m")
			fetched, err = src.Fetch(t.Context(), plenty)
			return err
		}},
		{"Settle", func() error { return src.Settle(t.Context(), penstock.Settled{Batch: fetched}) }},
		{"Renew", func() error { return src.Renew(t.Context()) }},
		{"an outbox's Maintain", func() error { return f.store.Maintain(context.WithoutCancel(t.Context()), "orders") }},
	}
	for range 5 { // what moves a mark is known after that, and progress is added up
		for _, c := range calls {
			f.must(c.do())
		}
	}
	for _, c := range calls {
		_, before := f.reads()
		f.must(c.do())
		_, after := f.reads()
		t.Logf("%s: %.0f entries of indexes", c.name, after-before)
		if after-before > enough {
			t.Errorf("%s reads %.0f entries of indexes beside %d that were deleted of each kind", c.name, after-before, many)
		}
	}
}
