package portable_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/portable"
)

// What was lost is never counted, not even between two round trips or where the answer to the first is lost: the count would
// go back, or stay wrong.
func TestCountsWhatIsThere(t *testing.T) {
	t.Parallel()
	for _, marks := range []bool{false, true} {
		f := newFixture(t, portable.Options{})
		if marks {
			f.must(f.store.SetRetention(t.Context(), "orders", penstock.Retention{Age: time.Hour}))
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
			if cut || !bytes.Contains(trip, []byte("delete from")) {
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
		if err := src.Settle(t.Context(), penstock.Settled{Batch: b}); err == nil {
			t.Fatal("no answer, and no error")
		}
		count := func() int64 {
			all, err := direct.Status(t.Context())
			f.must(err)
			return all[0].Subscriptions[0].Settled
		}
		before := count()
		f.must(src.Settle(t.Context(), penstock.Settled{Batch: b}))
		if after := count(); before != 2 || after != 2 {
			t.Errorf("marks: %v: %d settled, then %d, want 2", marks, before, after)
		}
	}
}
