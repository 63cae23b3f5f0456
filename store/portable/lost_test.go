package portable_test

import (
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/portable"
)

// A server is promoted that lacks messages which a reader has. Whatever their verdicts are, they are not counted, and their
// keys wait for nothing.
func TestSettlesWhatWasLost(t *testing.T) {
	t.Parallel()
	for _, marks := range []bool{false, true} {
		f := newFixture(t, portable.Options{})
		if marks {
			f.must(f.store.SetRetention(t.Context(), "orders", penstock.Retention{Age: time.Hour}))
		}
		src := f.subscribe()
		for range 3 { // delivered with a refused one, and alone
			f.publish("lost")
			b, err := src.Fetch(t.Context(), plenty)
			f.must(err)
			exec(t, f.url, "delete from penstock_portable.outbox_orders")
			verdicts := []penstock.Verdict{{Outcome: penstock.Parked, RetryIn: time.Hour, Failures: []penstock.Failure{{Attempt: 1, Err: "no"}}}}
			f.must(src.Settle(t.Context(), penstock.Settled{Batch: b, Verdicts: verdicts}))
			f.publish("lost, too")
			b, err = src.Fetch(t.Context(), plenty)
			f.must(err)
			exec(t, f.url, "delete from penstock_portable.outbox_orders")
			f.must(src.Settle(t.Context(), penstock.Settled{Batch: b}))
		}
		f.publish("in flight, and lost")
		b, err := src.Fetch(t.Context(), plenty)
		f.must(err)
		if len(b.Messages) != 1 {
			t.Fatalf("got %d messages", len(b.Messages))
		}
		exec(t, f.url, "delete from penstock_portable.outbox_orders")
		exec(t, f.url, "insert into penstock_portable.outbox_orders (seq, key, payload) values ($1, 'k', 'there')", b.Messages[0].Seq)
		b, err = src.Fetch(t.Context(), plenty)
		f.must(err)
		if len(b.Messages) != 1 || b.KeyOrder != nil && b.KeyOrder[0] != penstock.InOrder {
			t.Fatalf("got %+v, want one message in order", b)
		}
		f.must(src.Settle(t.Context(), penstock.Settled{Batch: b}))
		all, err := f.store.Status(t.Context())
		f.must(err)
		if s := all[0].Subscriptions[0]; s.Settled != 1 || s.Parked != 0 || s.Backlog != 0 {
			t.Errorf("status: %+v, want one settled", s)
		}
	}
}
