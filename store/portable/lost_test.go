package portable_test

import (
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/wire"
	"github.com/penstock/penstock/store/portable"
)

// A lost message is never counted, not even between two round trips or where the answer to the first is lost. Otherwise the
// count would go back, or stay wrong.
func TestCountsWhatIsThere(t *testing.T) {
	t.Parallel()
	for _, keeps := range []bool{false, true} {
		f := newFixture(t, portable.Options{})
		if keeps {
			f.must(f.store.SetRetention(t.Context(), "orders", admin.Retention{Age: time.Hour}))
		}
		p := wire.New()
		direct := f.store
		f.store = openStore(t, p.Postgres(t, f.url), portable.Options{})
		src := f.subscribe()
		f.publish("the driver knows the statements now")
		f.drain(src)
		p.Once(wire.CutAfter, `delete from "penstock_portable"."outbox_orders"`, nil)
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
	p := wire.New()
	f.store = openStore(t, p.Postgres(t, f.url), portable.Options{})
	src := f.subscribe()
	f.publish("m")
	for attempt := uint64(1); attempt <= 3; attempt++ {
		b, err := src.Fetch(t.Context(), plenty)
		f.must(err)
		if len(b.Messages) != 1 || b.Messages[0].Attempt != int(attempt) {
			t.Fatalf("got %+v, want the message on attempt %d", b.Messages, attempt)
		}
		cut := p.Happened(wire.CutAfter)
		p.Once(wire.CutAfter, "commit", nil)
		refused := driver.Settled{Batch: b, Verdicts: []driver.Verdict{{Outcome: driver.Parked, Failures: []penstock.Failure{{Attempt: int(attempt), Err: "no"}}}}}
		if err := src.Settle(t.Context(), attempt, refused); err == nil || p.Happened(wire.CutAfter) == cut {
			t.Fatalf("no answer, and the error is %v", err)
		}
		f.must(src.Settle(t.Context(), attempt, refused))
	}
}
