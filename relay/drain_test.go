package relay

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
)

// slowly makes every Send take d.
func slowly(d time.Duration) func(context.Context, []penstock.Message) {
	return func(ctx context.Context, _ []penstock.Message) { sleep(ctx, nil, d) }
}

// drained drains the relay and returns how long Run took to return nil.
func drained(t *testing.T, r *Relay, result <-chan error) time.Duration {
	t.Helper()
	began := time.Now()
	r.Drain()
	r.Drain()
	if err := <-result; err != nil {
		t.Errorf("Run: %v", err)
	}
	return time.Since(began)
}

// Drain sends nothing more. It settles what the running Sends deliver, and the next relay delivers
// the rest, each message once.
func TestDrainRepeatsNothing(t *testing.T) {
	for _, keys := range [][]string{{"a"}, {"a", "b", "c", "d", "e", "f", "g"}, {""}, {"a", "", "b", "a", "a"}} {
		synctest.Test(t, func(t *testing.T) {
			l, k := &outbox{}, &sink{t: t, before: slowly(100 * time.Millisecond)}
			l.sink = k
			l.publishKeys(100, keys...)
			for round := 0; l.cursor() < 100; round++ {
				if round == 60 {
					t.Fatalf("%q: settled %d of 100 after %d relays", keys, l.settled, round)
				}
				r, result := start(t, t.Context(), l, k, nil)
				pass(250 * time.Millisecond) // in the middle of the third Sends
				if d := drained(t, r, result); d > 50*time.Millisecond {
					t.Errorf("%q: the drain took %v", keys, d)
				}
				checkSettled(t, l, k)
			}
			if k.delivered() != 100 {
				t.Errorf("%q: %d deliveries of 100 messages", keys, k.delivered())
			}
			checkOrder(t, l, k)
		})
	}
}

// Messages that wait for another attempt are parked, so their attempts are kept.
func TestDrainParksWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := &outbox{}, &sink{t: t}
		k.answer = func(m *penstock.Message) error {
			if m.Seq == 5 {
				return penstock.RetryAfter(errFlaky, time.Second)
			}
			return nil
		}
		l.maxFetch = func() int { return 4 }
		l.publishKeys(8, "a", "b", "c", "d")
		r, result := start(t, t.Context(), l, k, nil)
		pass(500 * time.Millisecond)
		if l.settled != 4 {
			t.Errorf("settled %d while a message waits, want the first batch of 4", l.settled)
		}
		if d := drained(t, r, result); d > 100*time.Millisecond {
			t.Errorf("the drain took %v", d)
		}
		if parked, failures := l.parkedMessages(); l.settled != 8 || parked != 1 || failures != 1 {
			t.Errorf("settled %d, parked %d with %d failures, want 8, and 1 with 1", l.settled, parked, failures)
		}
		checkSettled(t, l, k)
	})
}

func TestDrainWhileSinkIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := &outbox{}, &sink{t: t, answer: func(*penstock.Message) error { return penstock.Unavailable(errFlaky) }}
		l.publishKeys(1000, "a", "b", "")
		r, result := start(t, t.Context(), l, k, nil)
		pass(3 * time.Second)
		if d := drained(t, r, result); d > time.Second {
			t.Errorf("the drain took %v", d)
		}
		checkSettled(t, l, k)
	})
}

// Drain waits for running Sends until DrainTimeout, and then gives them up.
func TestDrainTimeout(t *testing.T) {
	for name, c := range map[string]struct {
		before      func(context.Context, []penstock.Message)
		took        time.Duration
		deliveredOf int // of the 4 that are under way
	}{
		"slow":  {slowly(9 * time.Second), 8 * time.Second, 4},
		"hangs": {func(ctx context.Context, _ []penstock.Message) { <-ctx.Done() }, 10 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, k := &outbox{}, &sink{t: t, before: c.before}
				l.publishKeys(1000, "a", "b", "c", "d")
				r, result := start(t, t.Context(), l, k, func(c *Options) { c.MaxBatch, c.DrainTimeout = 1, 10*time.Second })
				pass(time.Second)
				if d := drained(t, r, result); d != c.took {
					t.Errorf("the drain took %v, want %v", d, c.took)
				}
				if k.delivered() != c.deliveredOf || l.settled != c.deliveredOf {
					t.Errorf("delivered %d, settled %d, want %d", k.delivered(), l.settled, c.deliveredOf)
				}
				checkSettled(t, l, k)
			})
		})
	}
}

func TestDrainWhileSettleFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := &outbox{}, &sink{t: t}
		l.settleErr = func() error { return errFlaky }
		l.publishKeys(10, "a", "b")
		r, result := start(t, t.Context(), l, k, nil)
		pass(time.Second)
		if d := drained(t, r, result); d > 20*time.Second {
			t.Errorf("the drain took %v", d)
		}
		if l.settled != 0 {
			t.Error("settled, though Settle failed")
		}
		checkSettled(t, l, k)
	})
}

func TestDrainSettlesAfterShortOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := &outbox{}, &sink{t: t}
		fails := 3
		l.settleErr = func() error {
			if fails--; fails > 0 {
				return errFlaky
			}
			return nil
		}
		l.publishKeys(10, "a", "b")
		r, result := start(t, t.Context(), l, k, nil)
		pass(3 * time.Millisecond)
		drained(t, r, result)
		if l.settled != 10 {
			t.Errorf("settled %d of 10 before the lease was given back", l.settled)
		}
	})
}

func TestDrainBeforeOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := &outbox{}, &sink{t: t}
		l.openErr = func() error { return errFlaky }
		r, result := start(t, t.Context(), l, k, nil)
		pass(time.Minute)
		if d := drained(t, r, result); d > 0 {
			t.Errorf("the drain took %v", d)
		}
		r, result = start(t, t.Context(), l, k, nil)
		drained(t, r, result)
	})
}

func TestCancelStopsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := &outbox{}, &sink{t: t, before: func(ctx context.Context, _ []penstock.Message) { <-ctx.Done() }}
		l.publishKeys(100, "a", "b", "")
		ctx, cancel := context.WithCancel(t.Context())
		r, result := start(t, ctx, l, k, nil)
		pass(time.Second)
		r.Drain() // the first signal
		pass(time.Second)
		began := time.Now()
		cancel() // the second
		if err := <-result; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v, want context.Canceled", err)
		}
		if d := time.Since(began); d > 0 {
			t.Errorf("it took %v", d)
		}
		if k.delivered() != 0 || l.settled != 0 {
			t.Errorf("delivered %d, settled %d", k.delivered(), l.settled)
		}
		checkSettled(t, l, k)
	})
}
