package portable_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/internal/test/wire"
	"github.com/penstock/penstock/store/portable"
)

// A reader whose database asks for retries and loses connections, before and after it has done what was asked, delivers
// everything, in order of keys, and settles each message once.
func TestFaults(t *testing.T) {
	t.Parallel()
	t.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	f := newFixture(t, portable.Options{Margin: time.Hour})
	p := far(t)
	store := openStore(t, p.Postgres(t, f.url), portable.Options{Margin: time.Hour})
	src, err := store.Subscribe(t.Context(), driver.Subscribe{Outbox: "orders", Subscription: "sub", Holder: "test", Lease: time.Hour})
	f.must(err)
	const total, keys = 400, 7
	var msgs []penstock.Message
	for i := range total {
		msgs = append(msgs, penstock.Message{Key: fmt.Sprint(i % keys), Payload: fmt.Append(nil, i)})
	}
	f.must(f.store.Publish(t.Context(), "orders", msgs...))

	rnd := testseed.New(t.Name(), 0)
	p.Decide(eachFault(rnd))
	var open []driver.Batch
	last, failed := map[string]int{}, 0
	for n := 0; n < total || len(open) > 0; {
		if t.Context().Err() != nil || failed > 3*total {
			t.Fatalf("%d messages came, %d calls failed", n, failed)
		}
		if b, err := src.Fetch(t.Context(), driver.Limit{Messages: 9, Bytes: plenty.Bytes}); err != nil {
			failed++
		} else if len(b.Messages) > 0 {
			open = append(open, b)
			for _, m := range b.Messages {
				var i int
				_, _ = fmt.Sscan(string(m.Payload), &i)
				if want, ok := last[m.Key]; ok && i != want+keys || !ok && i >= keys {
					t.Fatalf("%d came after %d", i, want)
				}
				last[m.Key] = i
				n++
			}
		}
		for len(open) > 0 {
			verdicts := make([]driver.Verdict, len(open[0].Messages))
			if open[0].Number%3 == 0 { // also the way of refusals; asked again, a batch has the same verdicts
				for i := range verdicts {
					verdicts[i] = driver.Verdict{Outcome: driver.Dead, Failures: []penstock.Failure{{Attempt: 1, Err: "no"}}}
				}
			}
			if err := storetest.Settle(t.Context(), src, driver.Settled{Batch: open[0], Verdicts: verdicts}); err != nil {
				failed++
				break
			}
			open = open[1:]
		}
	}
	p.Decide(nil)
	all, err := f.store.Status(t.Context())
	f.must(err)
	if s := all[0].Subscriptions[0]; s.Settled != total || s.Backlog != 0 {
		t.Errorf("%d settled and a backlog of %d, want %d and 0", s.Settled, s.Backlog, total)
	}
	t.Logf("%d calls failed, run again %v; %d refused, %d cut before, %d after", failed, store.Retries(), p.Happened(wire.Refuse), p.Happened(wire.CutBefore), p.Happened(wire.CutAfter))
	if again := store.Retries(); again["serialization"] == 0 || again["unknown"] == 0 || p.Happened(wire.CutAfter) == 0 {
		t.Errorf("nothing was injected, or not counted: %v", again)
	}
}

// A Settle whose context has ended reaches the server while the next one, of another batch, is being done. They are
// not mixed up, and each is settled once.
func TestLateSettle(t *testing.T) {
	t.Parallel()
	f := newFixture(t, portable.Options{Margin: time.Hour})
	skipPooled(t, f.url, "which does not pass on what comes late")
	p := wire.New()
	f.store = openStore(t, p.Postgres(t, f.url), portable.Options{Margin: time.Hour})
	src := f.subscribe()
	fetch := func() driver.Batch {
		t.Helper()
		b, err := src.Fetch(t.Context(), driver.Limit{Messages: 1, Bytes: plenty.Bytes})
		f.must(err)
		return b
	}
	settle := func(b driver.Batch) {
		t.Helper()
		f.must(src.Settle(t.Context(), b.Number, driver.Settled{Batch: b}))
	}
	for range 3 {
		f.publish("m")
	}
	settle(fetch()) // the driver knows the statements now
	first, second := fetch(), fetch()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	settles := 0
	p.Decide(func(trip []byte) wire.Fault {
		if !bytes.Contains(trip, []byte("delete from")) {
			return wire.Pass
		}
		switch settles++; settles {
		case 1:
			cancel()
			return wire.Late
		case 2:
			p.Arrive()
		}
		return wire.Pass
	})
	if err := src.Settle(ctx, first.Number, driver.Settled{Batch: first}); err == nil {
		t.Fatal("a Settle that did not reach the server succeeded")
	}
	settle(second)
	if b := fetch(); len(b.Messages) > 0 {
		t.Errorf("%d messages came again", len(b.Messages))
	}
	settle(first)
	all, err := f.store.Status(t.Context())
	f.must(err)
	if s := all[0].Subscriptions[0]; s.Settled != 3 || s.Backlog != 0 {
		t.Errorf("%d settled and a backlog of %d, want 3 and 0", s.Settled, s.Backlog)
	}
}

// far is a proxy that adds 2 to 20 ms to a round trip.
func far(t *testing.T) *wire.Proxy {
	rnd := testseed.New(t.Name(), 1)
	var mu sync.Mutex
	p := wire.New()
	p.Delay = func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(2+rnd.IntN(19)) * time.Millisecond
	}
	return p
}

// Workers whose database asks for retries and loses connections do every job, of a key one after another: none is lost, and
// one that was ended does not come again.
func TestQueueFaults(t *testing.T) {
	t.Parallel()
	t.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	f := newFixture(t, portable.Options{})
	f.must(f.store.CreateQueue(t.Context(), "jobs", penstock.FIFO))
	f.must(f.store.SetQueue(t.Context(), "jobs", penstock.QueueSettings{MaxAttempts: new(1_000_000)}))
	const total, keys = 100, 9
	jobs := make([]penstock.NewJob, total)
	for i := range jobs {
		jobs[i] = penstock.NewJob{Key: fmt.Sprint(i % keys), Payload: fmt.Append(nil, i)}
	}
	_, err := f.store.Queue("jobs").Enqueue(t.Context(), jobs...)
	f.must(err)
	p := far(t)
	q := openStore(t, p.Postgres(t, f.url), portable.Options{}).Queue("jobs")
	rnd := testseed.New(t.Name(), 0)
	p.Decide(eachFault(rnd))
	var acks []int64
	done, last, failed, again := map[int64]bool{}, map[string]int64{}, 0, 0
	claimed, ended := map[int64]int64{}, map[int64]bool{} // job by lease; those whose Ack said so
	for len(done) < total {
		if failed > 10*total {
			t.Fatalf("%d calls failed, and %d of %d jobs were done", failed, len(done), total)
		}
		acked, got, err := q.AckClaim(t.Context(), acks, driver.Claim{Jobs: 5, Lease: time.Second})
		for _, lease := range acked {
			done[claimed[lease]], ended[claimed[lease]] = true, true
		}
		if err != nil {
			failed++
			// Whether they have ended is not known: those that have not come again.
			for _, lease := range acks {
				done[claimed[lease]] = true
			}
			acks = nil
			continue
		}
		acks = nil
		for _, j := range got {
			if done[j.ID] {
				again++
			}
			delete(done, j.ID)
			if j.ID < last[j.Key] || ended[j.ID] {
				t.Fatalf("job %d of the key %s came after %d; it had ended: %v", j.ID, j.Key, last[j.Key], ended[j.ID])
			}
			last[j.Key], claimed[j.Lease] = j.ID, j.ID
			acks = append(acks, j.Lease)
		}
	}
	p.Decide(nil)
	for ended := time.Now().Add(time.Minute); ; { // a job whose claim was never answered comes back when its lease ends
		if time.Now().After(ended) {
			t.Fatalf("a minute later there are jobs left; the last of each key were %v", last)
		}
		all, err := f.store.QueueStatus(t.Context())
		f.must(err)
		if s := all[0]; s.Ready+s.Running+s.Delayed+s.Waiting+s.DeadLetters == 0 {
			break
		}
		held, got, err := q.AckClaim(t.Context(), acks, driver.Claim{Jobs: total, Lease: time.Minute})
		f.must(err)
		acks = acks[:0]
		for _, j := range got {
			if j.ID < last[j.Key] {
				t.Fatalf("job %d of the key %s came after %d", j.ID, j.Key, last[j.Key])
			}
			last[j.Key] = j.ID
			acks = append(acks, j.Lease)
		}
		if len(held)+len(got) == 0 {
			time.Sleep(20 * time.Millisecond)
		}
	}
	if len(last) != keys {
		t.Errorf("jobs of %d keys were done, want %d", len(last), keys)
	}
	for k, id := range last {
		if id <= total-keys {
			t.Errorf("of the key %s the last job was %d", k, id)
		}
	}
	t.Logf("%d calls failed, %d jobs came again", failed, again)
	if p.Happened(wire.Refuse)+p.Happened(wire.CutAfter) == 0 {
		t.Error("nothing was injected")
	}
}

// eachFault has each kind of fault among the first round trips, and then some by chance.
func eachFault(rnd *rand.Rand) func([]byte) wire.Fault {
	kinds, turns := len(faults), 4
	trips := 0
	return func([]byte) wire.Fault {
		if trips++; trips%3 == 0 && trips <= 3*kinds*turns {
			return faults[(trips/3-1)%kinds]
		}
		return wire.Some(rnd, faults...)
	}
}

// Each call that a relay makes all the time is one round trip.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	f := newFixture(t, portable.Options{})
	p := wire.New()
	f.store = openStore(t, p.Postgres(t, f.url), portable.Options{LookAgain: time.Hour, Sweep: time.Hour}) // no look again, however slow the machine
	src := f.subscribe()
	trips := func(what string, want int64, call func()) {
		t.Helper()
		before := p.Trips.Load()
		call()
		if n := p.Trips.Load() - before; n != want {
			t.Errorf("%s took %d round trips, want %d", what, n, want)
		}
	}
	for round := range 2 { // in the first one the driver asks what the statements return
		for range 3 {
			f.publish("m")
		}
		var b driver.Batch
		fetch := func() {
			var err error
			b, err = src.Fetch(t.Context(), plenty)
			f.must(err)
		}
		if round == 0 {
			fetch()
			f.must(src.Settle(t.Context(), b.Number, driver.Settled{Batch: b}))
			fetch()
			continue
		}
		trips("Publish", 1, func() { f.publish("m") })
		trips("Fetch", 1, fetch)
		if len(b.Messages) != 4 {
			t.Fatalf("%d messages", len(b.Messages))
		}
		trips("Settle", 1, func() { f.must(src.Settle(t.Context(), b.Number, driver.Settled{Batch: b})) })
		trips("Fetch of nothing", 1, fetch)
	}
	f.must(f.store.CreateQueue(t.Context(), "jobs", penstock.FIFO))
	q := f.store.Queue("jobs")
	for round := range 2 {
		budget := map[bool]int64{false: 0, true: 1}[round > 0]
		ask := func(what string, budget int64, call func() error) {
			t.Helper()
			if budget > 0 {
				trips(what, budget, func() { f.must(call()) })
			} else {
				f.must(call())
			}
		}
		var jobs []penstock.Job
		claim := func() (err error) {
			jobs, err = q.Claim(t.Context(), driver.Claim{Jobs: 2, Lease: time.Hour})
			return err
		}
		ask("Enqueue", budget, func() error {
			_, err := q.Enqueue(t.Context(), make([]penstock.NewJob, 4)...)
			return err
		})
		ask("Claim", budget, claim)
		ask("Extend", budget, func() error {
			_, err := q.Extend(t.Context(), time.Hour, jobs[0].Lease)
			return err
		})
		ask("AckClaim", budget, func() (err error) {
			_, jobs, err = q.AckClaim(t.Context(), []int64{jobs[0].Lease, jobs[1].Lease}, driver.Claim{Jobs: 1, Lease: time.Hour})
			return err
		})
		ask("Retry", 4*budget, func() error {
			_, err := q.Retry(t.Context(), jobs[0].Lease, time.Hour, "no")
			return err
		})
		ask("Claim", budget, claim)
		ask("Ack", budget, func() error {
			_, err := q.Ack(t.Context(), jobs[0].Lease)
			return err
		})
		ask("Claim of nothing", budget, claim)
		ask("Maintain", budget, func() error { return q.Maintain(t.Context()) })
	}
}
