package portable_test

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/store/portable"
)

// Deleted rows are in the indexes for as long as a snapshot is pinned. Nothing that relays and workers do again and again walks over them more than
// once.
func TestDeletedIsPassedOver(t *testing.T) {
	t.Parallel()
	t.Run("no statistics", func(t *testing.T) { t.Parallel(); deletedIsPassedOver(t, false) })
	t.Run("statistics of empty tables", func(t *testing.T) { t.Parallel(); deletedIsPassedOver(t, true) }) // as autovacuum leaves them
}

func deletedIsPassedOver(t *testing.T, analyzed bool) {
	// Nothing commits late here, and what time decides is left out: looking again for it.
	f := newFixture(t, portable.Options{Margin: time.Millisecond, Sweep: time.Hour, LookAgain: time.Hour})
	f.must(f.store.CreateQueue(t.Context(), "jobs", penstock.FIFO))
	f.must(f.store.SetQueue(t.Context(), "jobs", penstock.QueueSettings{MaxRunning: new(1000)}))
	q := f.store.Queue("jobs")
	src := f.subscribe()
	defer pin(t, f.url)()
	const many, enough = 10_000, 500
	for _, rows := range []string{
		"leases (queue_id, seq, group_key, priority, ts, key, attempt, until, worker) select 1, -g, '', 0, now(), 'k' || g, 1, now() - interval '1 hour', '' from",
		"tries (queue_id, seq, group_key, priority, ts, key, due, attempts) select 1, -g, '', 0, now(), 'k' || g, now() - interval '1 hour', 1 from",
		"dedup (queue_id, dedup_key, seq, at) select 1, g, -g, now() - interval '2 hours' from",
		"progress (subscription_id, epoch, attempt, at, settled) select 1, 0, g, now() - interval '1 hour', 0 from",
		"entries (subscription_id, seq, bucket, ts, state, parked_key, head, due) select 1, -g, 0, now(), 1, 'k' || g, true, now() - interval '1 hour' from",
		"entries (subscription_id, seq, bucket, ts, state) select 1, -g, 0, now() - interval '1 hour', 0 from",
		"entries (subscription_id, seq, bucket, ts, state, due) select 1, -g, 0, now(), 3, now() - interval '1 hour' from",
		"outbox_orders (payload) select '' from",
		"queue_jobs (payload) select '' from",
	} {
		exec(t, f.url, "insert into penstock_portable."+rows+" generate_series(1, $1) g", many)
		for _, table := range []string{"leases", "tries", "dedup", "entries", "outbox_orders", "queue_jobs"} {
			exec(t, f.url, "delete from penstock_portable."+table)
		}
	}
	if analyzed {
		exec(t, f.url, "analyze")
	}
	fetched := driver.Batch{}
	job := func(then func(lease int64)) {
		jobs, err := q.Claim(t.Context(), driver.Claim{Jobs: 1, Lease: time.Hour})
		if f.must(err); len(jobs) != 1 {
			t.Fatalf("claimed %d jobs", len(jobs))
		}
		then(jobs[0].Lease)
	}
	ack := func(lease int64) {
		_, err := q.Ack(t.Context(), lease)
		f.must(err)
	}
	fetch := func(want int) {
		for fetched = (driver.Batch{}); len(fetched.Messages) < want; {
			b, err := src.Fetch(t.Context(), plenty)
			if f.must(err); len(b.Messages) > 0 {
				fetched = b
			}
		}
	}
	settle := func(v ...driver.Verdict) {
		f.must(storetest.Settle(t.Context(), src, driver.Settled{Batch: fetched, Verdicts: v}))
	}
	refused := []penstock.Failure{{Attempt: 1, Err: "refused"}}
	calls := []struct {
		name string
		do   func()
	}{
		{"Claim and Ack", func() {
			_, err := q.Enqueue(t.Context(), penstock.NewJob{Payload: []byte("job"), DedupKey: rand.Text()})
			f.must(err)
			job(ack)
		}},
		{"Retry", func() {
			_, err := q.Enqueue(t.Context(), penstock.NewJob{Payload: []byte("job"), Key: "k1"})
			f.must(err)
			job(func(lease int64) {
				_, err := q.Extend(t.Context(), time.Hour, lease)
				f.must(err)
				_, err = q.Retry(t.Context(), lease, 0, "refused")
				f.must(err)
			})
			job(ack)
		}},
		{"a queue's Maintain", func() { f.must(q.Maintain(t.Context())) }},
		{"Fetch", func() { f.publish("m"); fetch(1) }},
		{"Settle", func() { settle() }},
		{"a Settle that parks", func() {
			f.must(f.store.Publish(t.Context(), "orders", penstock.Message{Key: "k1", Payload: []byte("m")}))
			fetch(1)
			settle(driver.Verdict{Outcome: driver.Parked, Failures: refused})
		}},
		{"what was parked", func() { fetch(1); settle() }},
		{"Renew", func() { f.must(src.Renew(t.Context())) }},
		{"an outbox's Maintain", func() { f.must(f.store.Maintain(t.Context(), "orders")) }},
	}
	for range 5 { // what moves a mark is known after that, and progress is added up
		for _, c := range calls {
			c.do()
		}
	}
	for _, c := range calls {
		_, before := f.reads()
		c.do()
		_, after := f.reads()
		t.Logf("%s: %.0f entries of indexes", c.name, after-before)
		if after-before > enough {
			t.Errorf("%s reads %.0f entries of indexes beside %d that were deleted of each kind", c.name, after-before, many)
		}
	}
}
