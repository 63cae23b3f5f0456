package relay

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
)

// repeats counts repeated deliveries.
func (k *sink) repeats() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := len(k.confirmed)
	return n - len(k.seen)
}

// Whatever the sink's pace, relays that crash and relays that are drained finish the backlog. A
// crash repeats only the deliveries of about a second.
func TestCrashesRepeatASecondOfDeliveries(t *testing.T) {
	for name, keys := range map[string][]string{"one key": {"a"}, "many keys": {"a", "b", "c", "d", "e", "f", "g", "h"}, "no key": {""}} {
		for _, pace := range []time.Duration{200 * time.Millisecond, 20 * time.Millisecond} {
			t.Run(name+" "+pace.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l, k := &outbox{}, &sink{t: t, before: slowly(pace)}
					l.sink = k
					const messages, senders = 600, 4
					l.publishKeys(messages, keys...)
					perSecond := int(time.Second/pace) * min(senders, len(keys)+senders*(1-len(keys[0])))
					relays := 0
					for ; l.cursor() < messages && relays < 100; relays++ {
						ctx, cancel := context.WithCancel(t.Context())
						_, result := start(t, ctx, l, k, func(c *Options) { c.MaxInFlight, c.MaxBatch, c.Senders = 4*messages, 1, senders })
						before := k.repeats()
						pass(3900 * time.Millisecond)
						cancel()
						<-result
						if n := k.repeats() - before; n > perSecond {
							t.Fatalf("%d deliveries were repeated, at %d a second", n, perSecond)
						}
					}
					checkOrder(t, l, k)
					t.Logf("%d relays, %d deliveries repeated", relays, k.repeats())
				})
			})
		}
	}
}

// While one message hangs, the delivered messages around it are settled: a crash repeats none of
// them.
func TestHangingMessageHoldsBackNoVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(5)
		l, k := &outbox{}, &sink{t: t, before: g.wait}
		l.sink = k
		k.answer = func(m *penstock.Message) error {
			switch m.Seq {
			case 7:
				return penstock.Permanent(errFlaky)
			case 8:
				return penstock.RetryAfter(errFlaky, time.Hour)
			}
			return nil
		}
		l.maxFetch = func() int { return 10 }
		l.publishKeys(40, "")
		ctx, cancel := context.WithCancel(t.Context())
		_, result := start(t, ctx, l, k, func(c *Options) { c.MaxBatch = 1 })
		pass(3 * time.Second)
		if dead, parked := l.deadSeqs(), l.parkedTimes(); len(dead) != 1 || parked[8] != 1 || k.delivered() != 37 {
			t.Fatalf("%d dead letters, parked %v, delivered %d; want 1, message 8 and 37 while message 5 hangs", len(dead), parked, k.delivered())
		}
		cancel()
		<-result
		close(g.pass[5])
		r, result := start(t, t.Context(), l, k, nil)
		pass(time.Second)
		finish(t, r, result, l, k)
		if k.delivered() != 38 || l.settled != 40 {
			t.Errorf("delivered %d, settled %d, want the one message more, and all", k.delivered(), l.settled)
		}
	})
}

// A fast sink is not slowed down: batches are settled whole.
func TestFastSinkSettlesWholeBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := &outbox{}, &sink{t: t, inOrder: true, before: slowly(10 * time.Millisecond)}
		r, result := start(t, t.Context(), l, k, nil)
		for range 500 {
			l.publishKeys(7, "a", "b", "")
			time.Sleep(10 * time.Millisecond)
		}
		pass(time.Second)
		finish(t, r, result, l, k)
		if l.parts > 0 || l.settled != 3500 {
			t.Errorf("%d parts of batches were settled, and %d messages of 3500", l.parts, l.settled)
		}
	})
}
