package relay

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
)

// refuse is a sink.answer that refuses the message with a Seq until it is released, with err, or
// else errFlaky.
type refuse struct {
	seq  int64
	err  error
	gone bool // guarded by the sink's mutex
}

func (r *refuse) answer(m *penstock.Message) error {
	switch {
	case m.Seq != r.seq || r.gone:
		return nil
	case r.err != nil:
		return r.err
	}
	return errFlaky
}

func (k *sink) letGo(r *refuse) {
	k.mu.Lock()
	r.gone = true
	delete(k.never, r.seq)
	k.mu.Unlock()
}

// tries returns the attempts with which a message was sent, in order.
func (k *sink) tries(seq int64) (attempts []int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, m := range k.attempts {
		if m.Seq == seq {
			attempts = append(attempts, m.Attempt)
		}
	}
	return attempts
}

func testParking(t *testing.T, bad *refuse, f func(t *testing.T, l *outbox, k *sink)) {
	whole := *bad
	for _, inOrder := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			l, k := &outbox{}, &sink{t: t, inOrder: inOrder}
			l.sink, k.outbox = k, l
			*bad = whole
			k.answer = bad.answer
			f(t, l, k)
		})
	}
}

// A message that keeps being refused is parked with those behind it in its key. The cursor passes
// it, and the key is delivered in order once the sink accepts the message.
func TestParksAKey(t *testing.T) {
	bad := &refuse{seq: 1}
	testParking(t, bad, func(t *testing.T, l *outbox, k *sink) {
		c := &Counters{}
		l.publishKeys(40, "poison", "a", "b", "")
		r, result := start(t, t.Context(), l, k, func(cfg *Options) { cfg.Observer = c })
		for began := time.Now(); l.cursor() < 40 && time.Since(began) < time.Second; {
			pass(time.Millisecond)
		}
		if l.cursor() != 40 || k.delivered() != 30 {
			t.Errorf("settled %d, delivered %d, want 40 and the 30 of other keys", l.cursor(), k.delivered())
		}
		if parked, failures := l.parkedMessages(); parked != 10 || failures != 3 {
			t.Errorf("parked %d with %d failures, want the key's 10 with 3 of the first", parked, failures)
		}
		if got := [...]int64{c.ParkedMessages.Load(), c.DeadLetters.Load()}; got != [...]int64{10, 0} {
			t.Errorf("parked, dead: %v", got)
		}
		l.publishKeys(8, "poison", "c")
		pass(time.Minute)
		if k.delivered() != 34 {
			t.Errorf("%d delivered, want the 34 of other keys", k.delivered())
		}
		k.letGo(bad)
		pass(5 * time.Minute)
		finish(t, r, result, l, k)
		checkOrder(t, l, k)
		tries := k.tries(1)
		for i, attempt := range tries {
			if attempt != i+1 {
				t.Fatalf("attempts %v", tries)
			}
		}
		if len(tries) < 8 || len(tries) > 14 {
			t.Errorf("%d attempts in about a minute of growing delays", len(tries))
		}
	})
}

// One poisoned key among a thousand does not cost the others a single Send.
func TestPoisonedKeyDoesNotSlowOthers(t *testing.T) {
	sends, took := map[int64]int{}, map[int64]time.Duration{}
	for _, poison := range []int64{0, 1} {
		bad := &refuse{seq: poison}
		synctest.Test(t, func(t *testing.T) {
			l, k := &outbox{}, &sink{t: t, inOrder: true, answer: bad.answer, before: slowly(time.Millisecond)}
			for i := range 50_000 {
				l.publish(penstock.Message{Key: fmt.Sprint("k", i%1000)})
			}
			began := time.Now()
			r, result := start(t, t.Context(), l, k, func(c *Options) { c.MaxInFlight, c.MaxBatch, c.Senders = 4000, 512, 1 })
			for k.delivered() < 49_950 {
				pass(time.Millisecond)
			}
			sends[poison], took[poison] = k.sent(), time.Since(began)
			k.letGo(bad)
			pass(time.Minute)
			finish(t, r, result, l, k)
			checkOrder(t, l, k)
		})
	}
	if sends[1] > sends[0]+5 || took[1] > took[0]+took[0]/20 { // the time is virtual
		t.Errorf("%d Sends and %v with the poison, %d and %v without", sends[1], took[1], sends[0], took[0])
	}
}

// A key that constantly gets new messages is still retried.
func TestBusyParkedKeyIsRetried(t *testing.T) {
	bad := &refuse{seq: 1}
	testParking(t, bad, func(t *testing.T, l *outbox, k *sink) {
		l.settleWait = func(ctx context.Context) { sleep(ctx, nil, 20*time.Millisecond) } // so one is always in flight
		r, result := start(t, t.Context(), l, k, func(c *Options) { c.MaxInFlight, c.MaxBatch = 4000, 100 })
		for range 1000 {
			l.publishKeys(1, "a")
			time.Sleep(4 * time.Millisecond)
		}
		if n := len(k.tries(1)); n < 6 {
			t.Errorf("%d attempts in 4 s", n)
		}
		k.letGo(bad)
		pass(time.Minute)
		finish(t, r, result, l, k)
		checkOrder(t, l, k)
	})
}

func TestUnkeyedParksAlone(t *testing.T) {
	bad := &refuse{seq: 3}
	testParking(t, bad, func(t *testing.T, l *outbox, k *sink) {
		l.publishKeys(20, "")
		r, result := start(t, t.Context(), l, k, nil)
		pass(2 * time.Second)
		l.publishKeys(20, "")
		pass(2 * time.Second)
		if parked, _ := l.parkedMessages(); parked != 1 || k.delivered() != 39 || l.cursor() != 40 {
			t.Errorf("parked %d, delivered %d, settled %d, want 1, 39 and 40", parked, k.delivered(), l.cursor())
		}
		k.letGo(bad)
		pass(time.Minute)
		finish(t, r, result, l, k)
		checkOrder(t, l, k)
	})
}
