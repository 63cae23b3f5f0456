package mysql_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/internal/test/testserver"
)

// Nothing that relays and workers do again and again walks more than once over tombstones, which are there until RocksDB compacts.
func deletedIsPassedOver(t *testing.T, m *testserver.MariaDB) {
	r := newRocks(t, m)
	s := r.store()
	src := reader(t, s, "orders")
	r.must(s.CreateQueue(t.Context(), "jobs", penstock.FIFO))
	r.must(s.SetQueue(t.Context(), "jobs", penstock.QueueSettings{MaxRunning: new(1000)}))
	q := s.Queue("jobs")
	const many, enough = 5000, 500
	numbers := fmt.Sprintf("json_table(concat('[', repeat('0,', %d - 1), '0]'), '$[*]' columns (n for ordinality)) g", many)
	for _, rows := range []struct{ table, columns, values string }{
		{"leases", "lease, queue_id, seq, group_key, `key`, attempt, until, second, worker", "n, 1, -n, '', '', 1, utc_timestamp(6) - interval 1 hour, to_seconds(utc_timestamp(6) - interval 1 hour), ''"},
		{"tries", "queue_id, seq, group_key, `key`, due, attempts", "1, -n, '', '', utc_timestamp(6) - interval 1 hour, 1"},
		{"dedup", "queue_id, dedup_key, seq, at", "1, n, -n, utc_timestamp(6) - interval 2 hour"},
		{"entries", "subscription_id, seq, ts, state, head, due", "1, -n, utc_timestamp(6), 1, true, utc_timestamp(6) - interval 1 hour"},
		{"entries", "subscription_id, seq, ts, state, due", "1, -n, utc_timestamp(6), 3, utc_timestamp(6) - interval 1 hour"},
		{"entries", "subscription_id, seq, ts, state", "1, -n, utc_timestamp(6) - interval 1 hour, 0"},
		{"outbox_orders", "payload", "''"},
		{"queue_jobs", "created_at, payload", "utc_timestamp(6) - interval 1 hour, ''"},              // of the last 250 ms claims walk over all
		{"queue_jobs", "created_at, priority, payload", "utc_timestamp(6) - interval 1 hour, 5, ''"}, // by another process, so this one does not know it
	} {
		r.exec(fmt.Sprintf("insert into penstock.%s (%s) select %s from %s", rows.table, rows.columns, rows.values, numbers))
		r.exec("delete from penstock." + rows.table)
	}
	r.exec("insert into penstock.progress (subscription_id, epoch, attempt, at, settled) select 1, 0, n, utc_timestamp(6) - interval 1 hour, 0 from " + numbers)
	calls := []struct {
		name string
		do   func()
	}{
		{"Claim and Ack", func() {
			_, err := q.Enqueue(t.Context(), penstock.NewJob{Payload: []byte("job")})
			r.must(err)
			jobs, err := q.Claim(t.Context(), driver.Claim{Jobs: 1, Lease: time.Hour})
			r.must(err)
			if len(jobs) != 1 {
				t.Fatalf("claimed %d jobs", len(jobs))
			}
			_, err = q.Ack(t.Context(), jobs[0].Lease)
			r.must(err)
		}},
		{"a queue's Maintain", func() { r.must(q.Maintain(t.Context())) }},
		{"Fetch and Settle", func() {
			r.must(s.Publish(t.Context(), "orders", penstock.Message{Payload: []byte("m")}))
			r.must(storetest.Settle(t.Context(), src, driver.Settled{Batch: fetch(t, src, 10)}))
		}},
		{"Renew", func() { r.must(src.Renew(t.Context())) }},
		{"an outbox's Maintain", func() { r.must(s.Maintain(t.Context(), "orders")) }},
	}
	for range 3 { // what moves a mark is known after that, and progress is added up
		for _, c := range calls {
			c.do()
		}
	}
	for _, c := range calls {
		steps, seeks := r.per(1, c.do)
		t.Logf("%s: %.0f steps, %.0f seek", c.name, steps, seeks)
		if steps > enough {
			t.Errorf("%s takes %.0f steps beside %d rows that were deleted of each kind", c.name, steps, many)
		}
	}
}
