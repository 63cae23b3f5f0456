package relay

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestSettlesAreCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := &outbox{}, &sink{t: t}
		r, result := start(t, t.Context(), l, k, func(c *Options) { c.MaxInFlight = 1000 })
		for range 3000 {
			l.publishKeys(1, "a")
			time.Sleep(time.Millisecond)
		}
		pass(time.Second)
		finish(t, r, result, l, k)
		if l.settled != 3000 {
			t.Errorf("settled %d of 3000", l.settled)
		}
		for i := 1; i < len(l.settles); i++ {
			if d := l.settles[i].Sub(l.settles[i-1]); d < 50*time.Millisecond {
				t.Fatalf("two writes of the cursor %v apart", d)
			}
		}
		if n := len(l.settles); n < 50 || n > 62 {
			t.Errorf("%d writes of the cursor in 3 s, want about 60", n)
		}
	})
}

// When confirmed messages fill the window, the cursor is written early. Otherwise throughput would
// be limited to one window per SettleEvery.
func TestSettlesEarlyUnderPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := &outbox{}, &sink{t: t, inOrder: true, before: slowly(time.Millisecond)}
		l.publishKeys(6400, "a", "b", "c", "d", "e", "f", "g")
		r, result := start(t, t.Context(), l, k, nil)
		pass(time.Second)
		if n := l.cursor(); n != 6400 {
			t.Errorf("settled %d of 6400 in a second, in windows of 64", n)
		}
		finish(t, r, result, l, k)
	})
}

// The cursor moves only over a prefix: later batches wait for the first.
func TestSettlesAPrefix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(5)
		l, k := &outbox{}, &sink{t: t, before: g.wait}
		l.sink = k
		l.maxFetch = func() int { return 4 }
		l.publishKeys(16, "")
		r, result := start(t, t.Context(), l, k, func(c *Options) { c.MaxBatch = 1 })
		pass(time.Second)
		if l.cursor() != 4 || k.delivered() != 15 {
			t.Errorf("settled %d, delivered %d; want 4 and 15 while message 5 hangs", l.cursor(), k.delivered())
		}
		close(g.pass[5])
		pass(time.Second)
		if l.cursor() != 16 {
			t.Errorf("settled %d of 16", l.cursor())
		}
		finish(t, r, result, l, k)
	})
}

// While the database cannot settle for minutes, sending continues until the window is full, and
// nothing is lost or sent twice.
func TestSettleOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := &outbox{}, &sink{t: t}
		l.sink = k
		down := newFlag(true)
		l.settleErr = func() error {
			if down.Load() {
				return errFlaky
			}
			return nil
		}
		l.publishKeys(1000, "a", "b", "")
		r, result := start(t, t.Context(), l, k, nil)
		pass(5 * time.Minute)
		if n := k.delivered(); n != 64 {
			t.Errorf("delivered %d, want the window of 64", n)
		}
		down.Store(false)
		pass(10 * time.Second)
		if l.cursor() != 1000 || k.delivered() != 1000 {
			t.Errorf("settled %d, delivered %d, want 1000 each", l.cursor(), k.delivered())
		}
		finish(t, r, result, l, k)
	})
}

// A Settle that hangs is ended, and tried again.
func TestSettleThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := &outbox{}, &sink{t: t}
		hang := newFlag(true)
		l.settleWait = func(ctx context.Context) {
			if hang.CompareAndSwap(true, false) {
				<-ctx.Done()
			}
		}
		l.publishKeys(10, "a")
		r, result := start(t, t.Context(), l, k, nil)
		pass(time.Minute)
		if l.cursor() != 10 {
			t.Errorf("settled %d of 10", l.cursor())
		}
		finish(t, r, result, l, k)
	})
}

// A Settle that was running when the source went back concerns forgotten batches, so its answer is
// ignored.
func TestRewindDuringSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(5)
		l, k := &outbox{}, &sink{t: t, before: g.wait}
		l.sink = k
		answer := make(chan struct{})
		l.settleWait = func(ctx context.Context) {
			select {
			case <-answer:
			case <-ctx.Done():
			}
		}
		l.maxFetch = func() int { return 4 }
		l.publishKeys(4, "a", "b", "c", "d")
		r, result := start(t, t.Context(), l, k, func(c *Options) { c.MaxBatch = 1 })
		pass(time.Second) // all four are confirmed, their Settle waits
		l.mu.Lock()
		l.rewind = once()
		l.maxFetch = func() int { return 1 }
		l.mu.Unlock()
		l.publishKeys(4, "e")
		pass(time.Second) // five batches of one message each, and message 5 hangs
		close(answer)
		pass(time.Second)
		if n := l.cursor(); n != 4 {
			t.Errorf("settled %d, want 4 while message 5 hangs", n)
		}
		close(g.pass[5])
		pass(time.Second)
		if n := l.cursor(); n != 8 {
			t.Errorf("settled %d of 8", n)
		}
		finish(t, r, result, l, k)
		checkOrder(t, l, k)
	})
}
