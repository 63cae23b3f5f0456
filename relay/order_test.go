package relay

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
)

// gate is a sink.before that blocks chosen Sends until they are released.
type gate struct {
	pass map[int64]chan struct{} // by Seq of a Send's first message
}

func newGate(seqs ...int64) *gate {
	g := &gate{pass: map[int64]chan struct{}{}}
	for _, seq := range seqs {
		g.pass[seq] = make(chan struct{})
	}
	return g
}

func (g *gate) wait(ctx context.Context, msgs []penstock.Message) {
	if c, ok := g.pass[msgs[0].Seq]; ok {
		select {
		case <-c:
		case <-ctx.Done():
		}
	}
}

func TestPoisonKeyDoesNotStopOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := &outbox{}, &sink{t: t, inOrder: true}
		k.answer = func(m *penstock.Message) error {
			if m.Seq == 1 && m.Attempt < 6 {
				return errFlaky
			}
			return nil
		}
		l.publishKeys(40, "poison", "a", "b", "")
		r, result := start(t, t.Context(), l, k, nil)
		pass(50 * time.Millisecond) // before the second attempt
		synctest.Wait()
		if got := k.delivered(); got != 30 {
			t.Errorf("%d messages of other keys were delivered beside the poison, want 30", got)
		}
		if l.cursor() != 0 {
			t.Errorf("the cursor moved to %d, past the poison", l.cursor())
		}
		pass(time.Minute)
		finish(t, r, result, l, k)
		checkOrder(t, l, k)
		for _, m := range k.confirmed {
			if m.Seq == 1 && m.Attempt != 6 {
				t.Errorf("the poison was accepted at attempt %d, want 6", m.Attempt)
			}
		}
		if l.settled != 40 {
			t.Errorf("settled %d of 40 after the poison was accepted", l.settled)
		}
	})
}

func TestUnkeyedMessageFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := &outbox{}, &sink{t: t, inOrder: true}
		k.answer = func(m *penstock.Message) error {
			if m.Seq == 1 && m.Attempt == 1 {
				return errFlaky
			}
			return nil
		}
		l.publishKeys(20, "")
		r, result := start(t, t.Context(), l, k, nil)
		pass(20 * time.Millisecond)
		if got := k.delivered(); got != 19 {
			t.Errorf("%d delivered beside the refused one, want 19", got)
		}
		pass(time.Second)
		if got := k.delivered(); got != 20 {
			t.Errorf("%d delivered after the retry, want 20", got)
		}
		finish(t, r, result, l, k)
	})
}

// A sink that keeps order gets many messages of a key at once, and only the first failed one
// spends an attempt.
func TestInOrderSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := &outbox{}, &sink{t: t, inOrder: true}
		k.answer = func(m *penstock.Message) error {
			if m.Seq == 3 && m.Attempt == 1 {
				return errFlaky
			}
			return nil
		}
		l.publishKeys(8, "a")
		r, result := start(t, t.Context(), l, k, func(c *Options) { c.MaxBatch = 100 })
		pass(time.Second)
		finish(t, r, result, l, k)
		checkOrder(t, l, k)
		if len(k.sends) != 2 || k.sends[0].n != 8 || k.sends[1].n != 6 {
			t.Errorf("Sends %v, want one of 8 messages and one of 6", k.sends)
		}
		for _, m := range k.confirmed {
			if want := map[bool]int{false: 1, true: 2}[m.Seq == 3]; m.Attempt != want {
				t.Errorf("message %d was confirmed at attempt %d, want %d", m.Seq, m.Attempt, want)
			}
		}
	})
}

func TestRetryDelays(t *testing.T) {
	for name, c := range map[string]struct {
		err         error
		least, most time.Duration
	}{
		"plain":       {errFlaky, 50 * time.Millisecond, 100 * time.Millisecond},
		"retry after": {penstock.RetryAfter(errFlaky, 700*time.Millisecond), 700 * time.Millisecond, 700 * time.Millisecond},
		// It stays in the store this long, and the store is polled every PollMax.
		"long": {penstock.RetryAfter(errFlaky, 7*time.Second), 7 * time.Second, 7*time.Second + 300*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, k := &outbox{}, &sink{t: t}
				k.answer = func(m *penstock.Message) error {
					if m.Attempt == 1 {
						return c.err
					}
					return nil
				}
				l.publishKeys(1, "a")
				r, result := start(t, t.Context(), l, k, nil)
				pass(time.Minute)
				finish(t, r, result, l, k)
				if len(k.sends) != 2 {
					t.Fatalf("%d Sends, want 2", len(k.sends))
				}
				if d := k.sends[1].at.Sub(k.sends[0].at); d < c.least || d > c.most {
					t.Errorf("tried again after %v, want %v to %v", d, c.least, c.most)
				}
			})
		})
	}
}

// A running Send of a forgotten batch holds its key, but its result is ignored.
func TestRewindDuringSend(t *testing.T) {
	for name, refuse := range map[string]bool{"confirmed": false, "refused": true} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { rewindDuringSend(t, refuse) }) })
	}
}

func rewindDuringSend(t *testing.T, refuse bool) {
	g := newGate(1)
	l, k := &outbox{}, &sink{t: t, before: g.wait}
	l.sink = k
	k.answer = func(m *penstock.Message) error {
		if m.Seq == 1 && refuse {
			refuse = false
			return errFlaky
		}
		return nil
	}
	l.publishKeys(4, "a", "b")
	r, result := start(t, t.Context(), l, k, func(c *Options) { c.MaxBatch = 1 })
	pass(10 * time.Millisecond)
	l.mu.Lock()
	l.rewind = once()
	l.mu.Unlock()
	pass(time.Second)
	// Message 1 is being sent, message 3 waits behind it; 2 and 4 came twice.
	if got := k.firsts(); len(got["a"]) != 0 || len(got["b"]) != 2 || k.delivered() != 4 {
		t.Errorf("delivered %v (%d deliveries) while key a is held, want b's two messages twice", got, k.delivered())
	}
	if n := l.cursor(); n != 0 {
		t.Errorf("settled up to %d while message 1 is not confirmed", n)
	}
	close(g.pass[1])
	pass(time.Second)
	finish(t, r, result, l, k)
	checkOrder(t, l, k)
	tries := 0
	for _, m := range k.attempts {
		if m.Key == "a" {
			tries++
			if m.Attempt != 1 {
				t.Errorf("message %d at attempt %d: the forgotten one was kept", m.Seq, m.Attempt)
			}
		}
	}
	if tries != 3 {
		t.Errorf("key a was tried %d times, want 3: message 1 twice, 3 once", tries)
	}
	if l.settled != 4 {
		t.Errorf("settled %d of 4", l.settled)
	}
}

// once is true the first time.
func once() func() bool {
	first := true
	return func() bool { defer func() { first = false }(); return first }
}

// After a rewind, a key no longer waits for another attempt, and its old message is not sent in
// addition to the new one.
func TestRewindDuringRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := &outbox{}, &sink{t: t}
		fail := true
		k.answer = func(m *penstock.Message) error {
			if m.Seq == 1 && fail {
				fail = false
				return penstock.RetryAfter(errFlaky, 5*time.Minute)
			}
			return nil
		}
		l.publishKeys(2, "a")
		r, result := start(t, t.Context(), l, k, nil)
		pass(10 * time.Millisecond)
		l.mu.Lock()
		l.rewind = once()
		l.mu.Unlock()
		pass(10 * time.Minute)
		finish(t, r, result, l, k)
		if k.delivered() != 2 || l.settled != 2 {
			t.Errorf("delivered %d, settled %d, want 2 each", k.delivered(), l.settled)
		}
		checkOrder(t, l, k)
	})
}

// A sink that answers with the wrong number of results has confirmed nothing.
type brokenSink struct {
	sink
	broken bool
}

func (k *brokenSink) Send(ctx context.Context, msgs []penstock.Message) []error {
	if k.broken {
		k.broken = false
		return []error{}
	}
	return k.sink.Send(ctx, msgs)
}

func TestSinkThatMiscounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := &outbox{}, &brokenSink{sink: sink{t: t}, broken: true}
		l.sink = &k.sink
		l.publishKeys(3, "a", "b", "")
		r, result := start(t, t.Context(), l, k, func(c *Options) { c.Senders = 1 })
		pass(time.Minute)
		finish(t, r, result, l, &k.sink)
		if k.delivered() != 3 || l.settled != 3 {
			t.Errorf("delivered %d, settled %d, want 3 each", k.delivered(), l.settled)
		}
	})
}

func TestCounters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k, c := &outbox{}, &sink{t: t}, &Counters{}
		k.answer = func(m *penstock.Message) error {
			if m.Seq == 1 && m.Attempt < 3 {
				return errors.New("no")
			}
			return nil
		}
		l.publishKeys(10, "a", "b")
		r, result := start(t, t.Context(), l, k, func(cfg *Options) { cfg.Observer = c })
		pass(50 * time.Millisecond)
		if n := c.InFlightMessages.Load(); n != 10 {
			t.Errorf("in flight %d, want 10", n)
		}
		pass(time.Minute)
		finish(t, r, result, l, k)
		got := [...]int64{c.Delivered.Load(), c.Failed.Load(), c.Retried.Load(), c.SettledMessages.Load(), c.InFlightMessages.Load()}
		if want := [...]int64{10, 2, 2, 10, 0}; got != want {
			t.Errorf("delivered, failed, retried, settled, in flight: %v, want %v", got, want)
		}
	})
}
