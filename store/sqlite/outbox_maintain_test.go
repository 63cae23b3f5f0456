package sqlite_test

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/store/sqlite"
)

// After a backlog the file also gives most of its pages back.
func TestFileShrinks(t *testing.T) {
	_, s, app := newFile(t, sqlite.Options{})
	ctx := t.Context()
	src := subscribe(t, s, "billing")
	msgs := make([]penstock.Message, 40)
	for i := range msgs {
		msgs[i].Payload = bytes.Repeat([]byte("x"), 1<<20)
	}
	if err := s.Publish(ctx, "orders", msgs...); err != nil {
		t.Fatal(err)
	}
	full := scan[int](t, app, `pragma page_count`)
	_, batches := fetchAll(t, src)
	if err := storetest.Settle(ctx, src, batches...); err != nil {
		t.Fatal(err)
	}
	const reserve = 4096 + 100
	for calls := 0; scan[int](t, app, `pragma page_count`) > reserve; calls++ {
		if calls > full {
			t.Fatalf("the file has %d pages after %d calls of Maintain, had %d", scan[int](t, app, `pragma page_count`), calls, full)
		}
		if err := s.Maintain(ctx, "orders"); err != nil {
			t.Fatal(err)
		}
	}
}

// A backlog too long to count is a distance; the rate is a mean over a minute.
func TestStatusOfALargeBacklog(t *testing.T) {
	_, s, app := newFile(t, sqlite.Options{})
	ctx := t.Context()
	src := subscribe(t, s, "billing")
	if err := s.Publish(ctx, "orders", numbered(30_000)...); err != nil {
		t.Fatal(err)
	}
	mustExec(t, app, `delete from penstock_outbox_orders where seq between 29000 and 29099`) // the application's own doing
	check := func(backlog, settled int64) admin.SubscriptionStatus {
		t.Helper()
		status, err := s.Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		sub := status[0].Subscriptions[0]
		if sub.Backlog != backlog || sub.Settled != settled {
			t.Errorf("backlog %d, settled %d; want %d and %d", sub.Backlog, sub.Settled, backlog, settled)
		}
		return sub
	}
	check(30_000, 0)
	b, err := src.Fetch(ctx, driver.Limit{Messages: 24_000, Bytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	decays := func(when string, from float64, began time.Time) {
		t.Helper()
		rate := check(5_900, 24_000).Rate
		if least := from * math.Exp(-time.Since(began).Minutes()); rate < least || rate > from {
			t.Errorf("%s the rate is %f, want %f to %f", when, rate, least, from)
		}
	}
	began := time.Now()
	if err := src.Settle(ctx, b.Number, driver.Settled{Batch: b}); err != nil {
		t.Fatal(err)
	}
	decays("now", 400, began) // 24,000 are 400 per second over a minute
	began = time.Now()
	mustExec(t, app, `update penstock_subscriptions set rate_at = ?`, began.Add(-time.Minute).UnixMicro())
	decays("a minute later", 400/math.E+1e-6, began)
}

// A reader that lost its lease learns it at its next Fetch, before it sends
// what the new reader sends too.
func TestFencedReaderStopsAtFetch(t *testing.T) {
	path, s, app := newFile(t, sqlite.Options{})
	ctx := t.Context()
	old := subscribe(t, s, "billing")
	mustExec(t, app, `update penstock_subscriptions set lease_until = 0`)
	subscribe(t, open(t, path), "billing")
	if err := s.Publish(ctx, "orders", numbered(1)...); err != nil {
		t.Fatal(err)
	}
	if b, err := old.Fetch(ctx, driver.Limit{Messages: 10, Bytes: 1 << 20}); err == nil {
		t.Errorf("the fenced reader got %v", b.Messages)
	}
}

// Two processes do the housekeeping in turns, and each keeps its own account of
// how large the messages are. One that lost track would keep too much or too
// little.
func TestRetainedBytes(t *testing.T) {
	path, s, app := newFile(t, sqlite.Options{})
	ctx := t.Context()
	stores := []*sqlite.Store{s, open(t, path)}
	const size, keep, total = 1000, 100, 1000
	if err := s.SetRetention(ctx, "orders", admin.Retention{Bytes: keep * size}); err != nil {
		t.Fatal(err)
	}
	src := subscribe(t, s, "billing")
	for i := range total / 10 {
		msgs := make([]penstock.Message, 10)
		for i := range msgs {
			msgs[i].Payload = make([]byte, size-40)
		}
		if err := s.Publish(ctx, "orders", msgs...); err != nil {
			t.Fatal(err)
		}
		_, batches := fetchAll(t, src)
		if err := storetest.Settle(ctx, src, batches...); err != nil {
			t.Fatal(err)
		}
		if err := stores[i/3%2].Maintain(ctx, "orders"); err != nil {
			t.Fatal(err)
		}
		kept := scan[int](t, app, `select count(*) from penstock_outbox_orders`)
		if want := min(10*(i+1), keep); kept < want || kept > want+2 {
			t.Fatalf("after %d messages %d are kept, want %d", 10*(i+1), kept, want)
		}
	}
}

// An entry that is made after Maintain looked which messages may go, and before it deletes them, loses nothing. Here a
// trigger makes it, in the first of several chunks.
func TestReclaimLooksAgain(t *testing.T) {
	const total, kept = 1000, 300
	for name, made := range map[string]string{
		"a subscription": `insert into penstock_subscriptions (outbox_id, name, position) select id, 'audit', 700 from penstock_outboxes`,
		"a replay":       `insert into penstock_entries (subscription_id, seq, state) select s.id, m.seq, 3 from penstock_subscriptions s join penstock_outbox_orders m on m.seq > 700`,
	} {
		t.Run(name, func(t *testing.T) {
			_, s, app := newFile(t, sqlite.Options{})
			src := subscribe(t, s, "billing")
			if err := s.Publish(t.Context(), "orders", numbered(total)...); err != nil {
				t.Fatal(err)
			}
			_, batches := fetchAll(t, src)
			if err := storetest.Settle(t.Context(), src, batches...); err != nil {
				t.Fatal(err)
			}
			mustExec(t, app, `create trigger meanwhile after delete on penstock_outbox_orders when old.seq = 1 begin `+made+`; end`)
			if err := s.Maintain(t.Context(), "orders"); err != nil {
				t.Fatal(err)
			}
			if n := scan[int](t, app, `select count(*) from penstock_outbox_orders`); n != kept {
				t.Errorf("%d messages are left, want %d", n, kept)
			}
		})
	}
}
