package portable_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/portable"
)

// What was lost is never counted, not even between two round trips or where the answer to the first is lost: the count would
// go back, or stay wrong.
func TestCountsWhatIsThere(t *testing.T) {
	t.Parallel()
	for _, keeps := range []bool{false, true} {
		f := newFixture(t, portable.Options{})
		if keeps {
			f.must(f.store.SetRetention(t.Context(), "orders", admin.Retention{Age: time.Hour}))
		}
		p := &wireProxy{}
		direct := f.store
		f.store = openStore(t, p.through(t, f.url), portable.Options{})
		src := f.subscribe()
		f.publish("the driver knows the statements now")
		f.drain(src)
		p.mu.Lock()
		cut := false
		p.decide = func(trip []byte) fault {
			if cut || !bytes.Contains(trip, []byte(`delete from "penstock_portable"."outbox_orders"`)) {
				return pass
			}
			cut = true
			return cutAfter
		}
		p.mu.Unlock()
		f.publish("lost")
		exec(t, f.url, "update penstock_portable.outbox_orders set ts = ts - interval '1 second'")
		f.publish("there")
		b, err := src.Fetch(t.Context(), plenty)
		f.must(err)
		exec(t, f.url, "delete from penstock_portable.outbox_orders where seq = $1", b.Messages[0].Seq)
		if err := src.Settle(t.Context(), b.Number, driver.Settled{Batch: b}); err == nil {
			t.Fatal("no answer, and no error")
		}
		count := func() int64 {
			all, err := direct.Status(t.Context())
			f.must(err)
			return all[0].Subscriptions[0].Settled
		}
		before := count()
		f.must(src.Settle(t.Context(), b.Number, driver.Settled{Batch: b}))
		if after := count(); before != 2 || after != 2 {
			t.Errorf("keeps: %v: %d settled, then %d, want 2", keeps, before, after)
		}
	}
}

// A refusal of a parked message whose answer was lost counts once, as the call is made again.
func TestLostAnswerOfARefusal(t *testing.T) {
	t.Parallel()
	f := newFixture(t, portable.Options{})
	p := &wireProxy{}
	f.store = openStore(t, p.through(t, f.url), portable.Options{})
	src := f.subscribe()
	f.publish("m")
	for attempt := uint64(1); attempt <= 3; attempt++ {
		b, err := src.Fetch(t.Context(), plenty)
		f.must(err)
		if len(b.Messages) != 1 || b.Messages[0].Attempt != int(attempt) {
			t.Fatalf("got %+v, want the message on attempt %d", b.Messages, attempt)
		}
		cut := false
		p.mu.Lock()
		p.decide = func(trip []byte) fault {
			if cut || !bytes.Contains(trip, []byte("commit")) {
				return pass
			}
			cut = true
			return cutAfter
		}
		p.mu.Unlock()
		refused := driver.Settled{Batch: b, Verdicts: []driver.Verdict{{Outcome: driver.Parked, Failures: []penstock.Failure{{Attempt: int(attempt), Err: "no"}}}}}
		if err := src.Settle(t.Context(), attempt, refused); err == nil || !cut {
			t.Fatalf("no answer, and the error is %v", err)
		}
		f.must(src.Settle(t.Context(), attempt, refused))
	}
}

// A reader whose subscribing was lost is fenced, though the epoch that it had is given to another.
func TestEpochThatComesAgain(t *testing.T) {
	t.Parallel()
	for _, shared := range []bool{false, true} {
		f := newFixture(t, portable.Options{})
		subscribe := func(holder string) driver.Source {
			t.Helper()
			join := f.store.Subscribe
			if shared {
				join = f.store.SubscribeShared
			}
			src, err := join(t.Context(), driver.Subscribe{Outbox: "orders", Subscription: "sub", Holder: holder, Lease: time.Hour})
			f.must(err)
			return src
		}
		f.publish("m")
		before := subscribe("before")
		b, err := before.Fetch(t.Context(), plenty)
		f.must(err)
		exec(t, f.url, "update penstock_portable.subscriptions set epoch = epoch - 1, holder = '', lease_until = '1970-01-01'")
		exec(t, f.url, "delete from penstock_portable.members")
		after := subscribe("after")
		if again, err := after.Fetch(t.Context(), plenty); err != nil || len(again.Messages) != 1 {
			t.Fatalf("got %v, %v, want a message", again.Messages, err)
		}
		for what, err := range map[string]error{"renewed": before.Renew(t.Context()), "settled": before.Settle(t.Context(), b.Number, driver.Settled{Batch: b})} {
			if !errors.Is(err, penstock.ErrFenced) {
				t.Errorf("shared %v: %s: %v, want ErrFenced", shared, what, err)
			}
		}
		f.must(before.Close(t.Context()))
		f.must(after.Renew(t.Context()))
		all, err := f.store.Status(t.Context())
		f.must(err)
		if s := all[0].Subscriptions[0]; s.Settled != 0 || s.Holder != "after" {
			t.Errorf("shared %v: %d settled, held by %q", shared, s.Settled, s.Holder)
		}
		f.must(after.Close(t.Context()))
	}
}
