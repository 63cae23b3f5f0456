package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
)

// refuse is a sink.answer that refuses the message of a Seq until it is let go,
// with err, or errFlaky.
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

// A message that keeps being refused is parked with what is behind it in its
// key; the cursor passes, and the key comes in order once it is accepted.
func TestParksAKey(t *testing.T) {
	bad := &refuse{seq: 1}
	testParking(t, bad, func(t *testing.T, l *outbox, k *sink) {
		c := &Counters{}
		l.publishKeys(40, "poison", "a", "b", "")
		r, result := start(t, t.Context(), l, k, func(cfg *Config) { cfg.Observer = c })
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

// One poisoned key among a thousand costs the others not one Send.
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
			r, result := start(t, t.Context(), l, k, func(c *Config) { c.MaxInFlight, c.MaxBatch, c.Senders = 4000, 512, 1 })
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

// A key that gets new messages all the time is retried all the same.
func TestBusyParkedKeyIsRetried(t *testing.T) {
	bad := &refuse{seq: 1}
	testParking(t, bad, func(t *testing.T, l *outbox, k *sink) {
		l.settleWait = func(ctx context.Context) { sleep(ctx, nil, 20*time.Millisecond) } // so that one is always under way
		r, result := start(t, t.Context(), l, k, func(c *Config) { c.MaxInFlight, c.MaxBatch = 4000, 100 })
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

// What is fetched while a Parked verdict becomes durable is not flagged Behind,
// and has to be parked by the relay.
func TestFetchDuringParkingSettle(t *testing.T) {
	bad := &refuse{seq: 1}
	testParking(t, bad, func(t *testing.T, l *outbox, k *sink) {
		hang, held := newFlag(false), make(chan struct{})
		l.fetchWait = func(ctx context.Context) {
			if hang.Load() {
				<-held
			}
		}
		l.publishKeys(1, "a")
		r, result := start(t, t.Context(), l, k, func(c *Config) { c.ParkAfter = 1 })
		synctest.Wait()
		hang.Store(true)
		pass(400 * time.Millisecond) // a Fetch has begun, and message 1 is parked since
		if parked, _ := l.parkedMessages(); parked != 1 {
			t.Fatalf("%d parked, want 1", parked)
		}
		l.publishKeys(3, "a", "b", "a")
		hang.Store(false)
		close(held)
		synctest.Wait()
		k.letGo(bad)
		pass(time.Minute)
		finish(t, r, result, l, k)
		checkOrder(t, l, k)
	})
}

// The verdict of a message that came Behind waits in memory for a message of
// its batch that is slow, while the rest of the line is delivered: what comes
// then is not flagged, though one before it is not delivered.
func TestBehindInASlowBatch(t *testing.T) {
	bad := &refuse{seq: 1}
	testParking(t, bad, func(t *testing.T, l *outbox, k *sink) {
		second, slow := make(chan struct{}), make(chan struct{})
		k.before = func(_ context.Context, msgs []penstock.Message) {
			switch m := &msgs[0]; {
			case m.Seq == 1 && m.Attempt == 2:
				<-second
			case m.Seq == 2:
				<-slow
			}
		}
		l.publishKeys(1, "a")
		r, result := start(t, t.Context(), l, k, func(c *Config) { c.ParkAfter, c.MaxBatch = 1, 1 })
		pass(time.Second) // 1 was parked and is tried again
		l.publishKeys(2, "", "a")
		pass(100 * time.Millisecond) // 2 hangs, 3 came behind 1
		k.letGo(bad)
		close(second)
		pass(100 * time.Millisecond)
		if parked, _ := l.parkedMessages(); parked != 0 || l.cursor() != 1 {
			t.Errorf("parked %d, settled %d, want none but a verdict in memory, and 1", parked, l.cursor())
		}
		l.publishKeys(1, "a")
		pass(time.Second)
		close(slow)
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

// A message that is refused for good becomes a dead letter and its key goes on;
// sent back, it stands alone, whether it is accepted then or not.
func TestDeadLetters(t *testing.T) {
	bad := &refuse{seq: 1, err: penstock.Permanent(errFlaky)}
	testParking(t, bad, func(t *testing.T, l *outbox, k *sink) {
		l.publishKeys(10, "a", "b")
		r, result := start(t, t.Context(), l, k, nil)
		pass(2 * time.Second)
		if !slices.Equal(l.deadSeqs(), []int64{1}) || k.delivered() != 9 || l.cursor() != 10 {
			t.Fatalf("dead %v, delivered %d, settled %d, want [1], 9 and 10", l.deadSeqs(), k.delivered(), l.cursor())
		}
		l.mu.Lock()
		l.retryDead(1)
		l.mu.Unlock()
		l.publishKeys(10, "a", "b")
		pass(time.Second)
		if !slices.Equal(l.deadSeqs(), []int64{1}) || k.delivered() != 19 {
			t.Fatalf("dead %v, delivered %d after the second time, want [1] and 19", l.deadSeqs(), k.delivered())
		}
		k.mu.Lock()
		bad.err = errFlaky
		k.mu.Unlock()
		l.mu.Lock()
		l.retryDead(1)
		l.mu.Unlock()
		l.publishKeys(10, "a", "b")
		pass(time.Second)
		if parked, _ := l.parkedMessages(); parked != 1 || k.delivered() != 29 {
			t.Fatalf("parked %d, delivered %d, want it alone and 29", parked, k.delivered())
		}
		k.letGo(bad)
		pass(time.Minute)
		if tries := k.tries(1); !slices.IsSorted(tries) || tries[0] != 1 || slices.Max(tries) != len(tries) {
			t.Errorf("attempts %v, want each once", tries)
		}
		finish(t, r, result, l, k)
		checkOrder(t, l, k)
		if len(l.dead) != 0 || k.delivered() != 30 {
			t.Errorf("%d dead letters are left, delivered %d of 30", len(l.dead), k.delivered())
		}
	})
}

// A dead letter that was sent back goes through the lane of its key, where it
// waits for nobody's verdict, nor anybody for its.
func TestAloneHoldsUpNobody(t *testing.T) {
	bad := &refuse{seq: 1, err: penstock.Permanent(errFlaky)}
	testParking(t, bad, func(t *testing.T, l *outbox, k *sink) {
		hang := make(chan struct{})
		k.before = func(_ context.Context, msgs []penstock.Message) {
			if m := &msgs[0]; m.Seq == 1 && m.Attempt == 3 {
				<-hang
			}
		}
		second := &refuse{seq: 2}
		k.answer = func(m *penstock.Message) error { return errors.Join(bad.answer(m), second.answer(m)) }
		l.publishKeys(1, "a")
		r, result := start(t, t.Context(), l, k, nil)
		pass(time.Second)
		retry := func() {
			l.mu.Lock()
			l.retryDead(1)
			l.mu.Unlock()
		}

		l.publishKeys(2, "a") // 2 waits in memory for its next attempt, 3 behind it
		pass(60 * time.Millisecond)
		if n := len(k.tries(2)); n == 0 || l.cursor() != 1 {
			t.Fatalf("message 2 was tried %d times, settled %d", n, l.cursor())
		}
		retry()
		pass(time.Second) // 2 is parked with 3
		if len(k.tries(1)) != 2 || l.parkings[1] != 0 || l.parkings[3] == 0 {
			t.Errorf("attempts %v of the dead letter; parked %v", k.tries(1), l.parkings)
		}
		k.letGo(second)
		pass(time.Minute)

		retry()
		pass(100 * time.Millisecond)
		k.mu.Lock()
		bad.err = nil // it will not be dead, but parked
		k.mu.Unlock()
		l.publishKeys(2, "a") // wait for the Send that hangs
		pass(100 * time.Millisecond)
		close(hang)
		pass(time.Second)
		if l.parkings[1] == 0 || l.parkings[4]+l.parkings[5] != 0 || k.delivered() != 4 {
			t.Errorf("parked %v, delivered %d", l.parkings, k.delivered())
		}
		k.letGo(bad)
		pass(time.Minute)
		finish(t, r, result, l, k)
		checkOrder(t, l, k)
	})
}

// With on_dead: hold, nothing of the key is sent until a person has dealt with
// the dead letter.
func TestHold(t *testing.T) {
	for _, act := range []string{"discard", "retry"} {
		bad := &refuse{seq: 1, err: penstock.Permanent(errFlaky)}
		t.Run(act, func(t *testing.T) {
			testParking(t, bad, func(t *testing.T, l *outbox, k *sink) {
				l.publishKeys(20, "a", "b")
				r, result := start(t, t.Context(), l, k, func(c *Config) { c.OnDead = OnDeadHold })
				pass(time.Second)
				l.publishKeys(10, "a", "b")
				pass(time.Hour)
				if k.delivered() != 15 || l.cursor() != 30 {
					t.Errorf("delivered %d, settled %d, want the other key's 15, and 30", k.delivered(), l.cursor())
				}
				k.letGo(bad)
				l.mu.Lock()
				if act == "retry" {
					l.retryDead(1)
				} else {
					l.discardDead(1)
				}
				l.mu.Unlock()
				pass(5 * time.Second)
				finish(t, r, result, l, k)
				checkOrder(t, l, k)
			})
		})
	}
}

func TestMaxAge(t *testing.T) {
	bad := &refuse{seq: 1}
	testParking(t, bad, func(t *testing.T, l *outbox, k *sink) {
		l.publishKeys(4, "a", "b")
		r, result := start(t, t.Context(), l, k, func(c *Config) { c.MaxAge, c.RetryMax, c.MaxAttempts = 10*time.Minute, time.Minute, -1 })
		pass(9 * time.Minute)
		if n := len(l.deadSeqs()); n != 0 {
			t.Errorf("%d dead letters before MaxAge", n)
		}
		pass(2*time.Minute + time.Second)
		if n := len(l.deadSeqs()); n != 1 || k.delivered() != 3 {
			t.Errorf("%d dead letters after MaxAge, delivered %d", n, k.delivered())
		}
		finish(t, r, result, l, k)
		checkOrder(t, l, k)
	})
}

// The answer of a Settle that parked a key is lost, and the source goes back,
// in a Fetch that saw the cursor after it and the park before it. Whether the Settle is
// under way again by then or not, nothing is sent out of turn.
func TestRewindDuringParkingSettle(t *testing.T) {
	for _, underWay := range []bool{false, true} {
		t.Run(fmt.Sprintf("underway=%v", underWay), func(t *testing.T) { rewindDuringParkingSettle(t, underWay) })
	}
}

func rewindDuringParkingSettle(t *testing.T, underWay bool) {
	bad := &refuse{seq: 1}
	testParking(t, bad, func(t *testing.T, l *outbox, k *sink) {
		inFetch, fetchGo, settleGo := make(chan struct{}), make(chan struct{}), make(chan struct{})
		hold, settles := newFlag(false), 0
		l.fetchWait = func(context.Context) {
			if hold.CompareAndSwap(true, false) {
				close(inFetch)
				<-fetchGo
			}
		}
		l.settleWait = func(ctx context.Context) {
			switch settles++; settles {
			case 1: // takes effect between the two halves of the next Fetch
				hold.Store(true)
				<-inFetch
			case 2:
				<-settleGo
			}
		}
		lie := once()
		l.settleLie = func() error {
			if lie() {
				return errFlaky
			}
			return nil
		}
		l.publishKeys(4, "a")
		r, result := start(t, t.Context(), l, k, func(c *Config) { c.ParkAfter = 1 })
		for l.cursor() == 0 {
			pass(time.Millisecond)
		}
		if underWay {
			pass(200 * time.Millisecond)
		}
		l.mu.Lock()
		l.rewind = once()
		l.mu.Unlock()
		l.publishKeys(4, "a")
		k.letGo(bad)
		close(fetchGo)
		pass(40 * time.Millisecond)
		close(settleGo)
		pass(time.Minute)
		finish(t, r, result, l, k)
		checkOrder(t, l, k)
	})
}

// What the filter does not choose is settled unsent, also behind parked ones.
func TestFilter(t *testing.T) {
	bad := &refuse{seq: 1}
	testParking(t, bad, func(t *testing.T, l *outbox, k *sink) {
		l.filtered = map[int64]bool{}
		publish := func() {
			for i := range 60 {
				topic := []string{"yes", "no"}[i%2]
				l.publish(penstock.Message{Key: []string{"a", "b", ""}[i/2%3], Topic: topic})
				if topic == "no" {
					l.filtered[int64(len(l.messages))] = true
				}
			}
		}
		publish()
		c := &Counters{}
		r, result := start(t, t.Context(), l, k, func(cfg *Config) {
			cfg.Filter, cfg.Observer = penstock.Filter{Topics: []string{"yes"}}, c
		})
		pass(time.Second)
		publish()
		pass(100 * time.Millisecond)
		if parked, _ := l.parkedMessages(); parked != 20 || l.cursor() != 120 {
			t.Errorf("parked %d, settled %d, want the chosen 20 of one key, and 120", parked, l.cursor())
		}
		k.letGo(bad)
		pass(time.Minute)
		finish(t, r, result, l, k)
		for _, m := range k.attempts {
			if m.Topic != "yes" {
				t.Fatalf("message %d was sent, though the filter does not choose it", m.Seq)
			}
		}
		if n := c.Delivered.Load(); n != 60 || k.delivered() != 60 {
			t.Errorf("delivered %d, counted %d, want 60", k.delivered(), n)
		}
	})
}

// All of a batch may be settled without a Send, and a window may be full of such.
func TestFilterThatChoosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := &outbox{}, &sink{t: t}
		l.publishKeys(1000, "a", "b", "")
		r, result := start(t, t.Context(), l, k, func(c *Config) { c.Filter.Headers = map[string]string{"region": "eu"} })
		pass(5 * time.Second)
		if l.cursor() != 1000 || k.sent() != 0 {
			t.Errorf("settled %d of 1000 with %d Sends", l.cursor(), k.sent())
		}
		r.Drain()
		if err := <-result; err != nil {
			t.Error(err)
		}
	})
}
