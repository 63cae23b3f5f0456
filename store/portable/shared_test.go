package portable_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/internal/test/wire"
	"github.com/penstock/penstock/store/portable"
)

func (f *fixture) share(lease time.Duration) (driver.Source, error) {
	return f.store.SubscribeShared(f.Context(), driver.Subscribe{Outbox: "orders", Subscription: "sub", Holder: "test", Lease: lease})
}

// A subscription is shared or one reader's alone.
func TestSharedOrAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t, portable.Options{})
	first, err := f.share(time.Hour)
	f.must(err)
	second, err := f.share(time.Hour)
	f.must(err)
	alone := func() (driver.Source, error) {
		return f.store.Subscribe(t.Context(), driver.Subscribe{Outbox: "orders", Subscription: "sub", Holder: "alone"})
	}
	if _, err := alone(); !errors.Is(err, penstock.ErrHeld) {
		t.Fatalf("alone, while two share: %v, want ErrHeld", err)
	}
	all, err := f.store.Status(t.Context())
	f.must(err)
	if s := all[0].Subscriptions[0]; s.Holder != "test, test" {
		t.Errorf("the holder is %q", s.Holder)
	}
	f.must(first.Close(t.Context()))
	f.must(second.Close(t.Context()))
	src, err := alone()
	f.must(err)
	if _, err := f.share(time.Hour); !errors.Is(err, penstock.ErrHeld) {
		t.Fatalf("shared, while another is alone: %v, want ErrHeld", err)
	}
	f.must(src.Close(t.Context()))
}

// A promotion may lose the note that a reader had taken a bucket, and another reader may have it by now. The first reads no
// more, and settles nothing, from the first call.
func TestBucketThatWasLost(t *testing.T) {
	t.Parallel()
	f := newFixture(t, portable.Options{})
	refused := driver.Verdict{Outcome: driver.Parked}
	for what, call := range map[string]func(src driver.Source, b driver.Batch) error{
		"renewed": func(src driver.Source, _ driver.Batch) error { return src.Renew(t.Context()) },
		"fetched": func(src driver.Source, _ driver.Batch) error {
			_, err := src.Fetch(t.Context(), plenty)
			return err
		},
		"settled": func(src driver.Source, b driver.Batch) error {
			return src.Settle(t.Context(), b.Number, driver.Settled{Batch: b})
		},
		"parked": func(src driver.Source, b driver.Batch) error {
			return storetest.Settle(t.Context(), src, driver.Settled{Batch: b, Verdicts: []driver.Verdict{refused}})
		},
	} {
		f.publish("m")
		src, err := f.share(time.Hour)
		f.must(err)
		b, err := src.Fetch(t.Context(), plenty)
		f.must(err)
		if len(b.Messages) != 1 {
			t.Fatalf("%s: got %d messages, want 1", what, len(b.Messages))
		}
		exec(t, f.url, "update penstock_portable.members set buckets = array_remove(buckets, (select bucket from penstock_portable.outbox_orders))")
		if err := call(src, b); !errors.Is(err, penstock.ErrFenced) {
			t.Errorf("%s: %v, want ErrFenced", what, err)
		}
		if _, err := src.Fetch(t.Context(), plenty); !errors.Is(err, penstock.ErrFenced) {
			t.Errorf("%s, and then fetched: %v, want ErrFenced", what, err)
		}
		f.must(src.Close(t.Context()))
		next, err := f.share(time.Hour)
		f.must(err)
		f.must(next.Renew(t.Context()))
		if got := f.drain(next); len(got) != 1 {
			t.Errorf("%s: the next one got %q, want the message", what, got)
		}
		f.must(next.Close(t.Context()))
	}
}

// each publishes a message of each of many keys, so that there are some in every bucket.
func (f *fixture) each(payload string) {
	f.Helper()
	for i := range 60 {
		f.must(f.store.Publish(f.Context(), "orders", penstock.Message{Key: fmt.Sprint("k", i), Payload: []byte(payload)}))
	}
}

// A reader that was to leave a bucket, and need not any more, continues where it stopped to read
// it.
func TestBucketThatIsNotLeft(t *testing.T) {
	t.Parallel()
	f := newFixture(t, portable.Options{Margin: time.Microsecond, Sweep: time.Hour})
	f.each("1")
	first, err := f.share(time.Hour)
	f.must(err)
	open, err := first.Fetch(t.Context(), plenty)
	f.must(err)
	second, err := f.share(time.Hour)
	f.must(err)
	f.must(first.Renew(t.Context())) // half of its buckets are to go, once nothing of them is in flight
	last := map[string]string{}
	for _, m := range open.Messages {
		last[m.Key] = string(m.Payload)
	}
	fetch := func() (n int) {
		b, err := first.Fetch(t.Context(), plenty)
		f.must(err)
		for _, m := range b.Messages {
			if want := map[string]string{"1": "2", "2": "3"}[last[m.Key]]; string(m.Payload) != want {
				t.Fatalf("of the key %s came %s after %s", m.Key, m.Payload, last[m.Key])
			}
			last[m.Key] = string(m.Payload)
		}
		return len(b.Messages)
	}
	f.each("2")
	if n := fetch(); n == 0 || n == 60 {
		t.Fatalf("got %d of 60, want those of some buckets", n)
	}
	f.must(second.Close(t.Context()))
	f.must(first.Renew(t.Context()))
	f.each("3")
	for fetch() > 0 {
	}
	for key, payload := range last {
		if payload != "3" {
			t.Errorf("of the key %s came %s last, want 3", key, payload)
		}
	}
}

// The answer to a Renew that gives buckets up, or takes some, is lost: what it gave up is not read any more, whether that has happened or not.
func TestRenewWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for _, lost := range []wire.Fault{wire.CutBefore, wire.CutAfter} {
		f := newFixture(t, portable.Options{})
		p := wire.New()
		other := *f
		f.store = openStore(t, p.Postgres(t, f.url), portable.Options{})
		one, err := f.share(time.Hour)
		f.must(err)
		two, err := other.share(time.Hour)
		f.must(err)
		got := map[string]bool{}
		fetch := func(src driver.Source) {
			t.Helper()
			b, err := src.Fetch(t.Context(), plenty)
			f.must(err)
			for _, m := range b.Messages {
				if got[m.ID] {
					t.Errorf("%v: %s came twice", lost, m.ID)
				}
				got[m.ID] = true
			}
			f.must(src.Settle(t.Context(), b.Number, driver.Settled{Batch: b}))
		}
		cut := func(src driver.Source) {
			t.Helper()
			p.Once(lost, "commit", nil)
			if err := src.Renew(t.Context()); err == nil {
				t.Fatal("no answer, and no error")
			}
		}
		cut(one) // gives half of them up
		f.must(two.Renew(t.Context()))
		f.each("1")
		fetch(one)
		fetch(two)
		for range 2 {
			f.must(one.Renew(t.Context()))
			f.must(two.Renew(t.Context()))
		}
		fetch(one)
		fetch(two)
		if len(got) != 60 {
			t.Errorf("%v: got %d, want 60", lost, len(got))
		}
		f.must(two.Close(t.Context()))
		cut(one) // takes those of the other
		f.each("2")
		fetch(one)
		f.must(one.Renew(t.Context()))
		fetch(one)
		if len(got) != 120 {
			t.Errorf("%v: got %d, want 120", lost, len(got))
		}
		f.must(one.Close(t.Context()))
	}
}

// Readers come, leave and crash while messages are written, and answers to renewals are lost. Each message is delivered, of a key in order, and again
// only after a crash; no reader gets a message that another has in flight.
func TestSharedByMany(t *testing.T) {
	t.Parallel()
	t.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	f := newFixture(t, portable.Options{})
	p := wire.New()
	f.store = openStore(t, p.Postgres(t, f.url), portable.Options{Margin: []time.Duration{time.Microsecond, time.Hour}[testseed.Seed()%2], Sweep: time.Hour})
	rnd := testseed.New(t.Name(), 0)
	const keys = 30
	type reader struct {
		driver.Source
		open []driver.Batch
	}
	var readers []*reader
	settled, written := map[string]int{}, map[string]int{} // by key: how many of it
	held := map[string]*reader{}                           // by message
	join := func() {
		src, err := f.share(time.Hour)
		f.must(err)
		readers = append(readers, &reader{Source: src})
	}
	fetch := func(r *reader, most int) int {
		b, err := r.Fetch(t.Context(), driver.Limit{Messages: most, Bytes: plenty.Bytes})
		f.must(err)
		next := map[string]int{}
		for _, o := range r.open {
			for _, m := range o.Messages {
				next[m.Key]++
			}
		}
		for _, m := range b.Messages {
			if who := held[m.ID]; who != nil {
				t.Fatalf("%s came to two readers", m.Payload)
			}
			held[m.ID] = r
			if want := fmt.Sprint(settled[m.Key] + next[m.Key]); string(m.Payload) != want {
				t.Fatalf("of the key %s came %s, want %s", m.Key, m.Payload, want)
			}
			next[m.Key]++
		}
		if len(b.Messages) > 0 {
			r.open = append(r.open, b)
		}
		return len(b.Messages)
	}
	settle := func(r *reader) {
		for ; len(r.open) > 0; r.open = r.open[1:] {
			f.must(storetest.Settle(t.Context(), r, driver.Settled{Batch: r.open[0]}))
			for _, m := range r.open[0].Messages {
				settled[m.Key]++
				delete(held, m.ID)
			}
		}
	}
	join()
	for range testseed.Steps(400) {
		r := readers[rnd.IntN(len(readers))]
		switch rnd.IntN(12) {
		case 0, 1, 2, 3:
			var msgs []penstock.Message
			for range 1 + rnd.IntN(10) {
				key := fmt.Sprint("k", rnd.IntN(keys))
				msgs = append(msgs, penstock.Message{Key: key, Payload: fmt.Append(nil, written[key])})
				written[key]++
			}
			f.must(f.store.Publish(t.Context(), "orders", msgs...))
		case 4, 5, 6:
			fetch(r, 1+rnd.IntN(20))
		case 7:
			settle(r)
		case 8:
			f.must(r.Renew(t.Context()))
		case 9:
			p.Once([]wire.Fault{wire.CutBefore, wire.CutAfter}[rnd.IntN(2)], "commit", nil)
			if err := r.Renew(t.Context()); err == nil {
				t.Fatal("no answer, and no error")
			}
		case 10:
			if len(readers) < 5 {
				join()
			}
		case 11:
			if len(readers) == 1 {
				continue
			}
			if rnd.IntN(2) == 0 {
				f.must(r.Close(t.Context()))
			} else { // its lease ends, and another takes what it had
				exec(t, f.url, "update penstock_portable.members set lease_until = '2000-01-01' where epoch = (select max(epoch) from penstock_portable.members)")
				r = readers[len(readers)-1]
				f.must(readers[0].Renew(t.Context()))
				if err := r.Renew(t.Context()); !errors.Is(err, penstock.ErrFenced) {
					t.Fatalf("Renew of one whose lease has ended: %v, want ErrFenced", err)
				}
				if len(r.open) > 0 {
					if err := storetest.Settle(context.WithoutCancel(t.Context()), r, driver.Settled{Batch: r.open[0]}); !errors.Is(err, penstock.ErrFenced) {
						t.Fatalf("Settle of one whose lease has ended: %v, want ErrFenced", err)
					}
				}
			}
			for _, b := range r.open {
				for _, m := range b.Messages {
					delete(held, m.ID)
				}
			}
			for i := range readers {
				if readers[i] == r {
					readers = append(readers[:i], readers[i+1:]...)
					break
				}
			}
		}
	}
	for range 3 { // each gets its part
		for _, r := range readers {
			settle(r)
			f.must(r.Renew(t.Context()))
		}
	}
	for n := 1; n > 0; {
		n = 0
		for _, r := range readers {
			n += fetch(r, 1000)
			settle(r)
		}
	}
	for key, n := range written {
		if settled[key] != n {
			t.Errorf("of the key %s %d were settled, want %d", key, settled[key], n)
		}
	}
	t.Logf("%d readers at the end", len(readers))
}
