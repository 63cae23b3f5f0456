package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
)

// A message that is refused permanently becomes a dead letter and its key continues. Once retried,
// it is sent alone, whether the sink accepts it or not.
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

// The log reports a dead letter at once, even if no more messages come, and shows how to look at
// it.
func TestDeadLetterIsLoggedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := &outbox{}, &sink{t: t}
		k.answer = (&refuse{seq: 1, err: penstock.Permanent(errFlaky)}).answer
		var log strings.Builder
		l.publishKeys(1, "a")
		r, result := start(t, t.Context(), l, k, func(c *Options) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		pass(time.Second)
		if !strings.Contains(log.String(), "a message became a dead letter") || !strings.Contains(log.String(), "penstock dead show orders ") {
			t.Errorf("a second later the log is %q", log.String())
		}
		finish(t, r, result, l, k)
	})
}

// Messages behind a dead letter are not sent before the dead letter is durable. Otherwise a crash
// could bring it back after its successors were accepted.
func TestDeadLetterIsDurableBeforeItsKeyGoesOn(t *testing.T) {
	bad := &refuse{seq: 2, err: penstock.Permanent(errFlaky)}
	testParking(t, bad, func(t *testing.T, l *outbox, k *sink) {
		hang := make(chan struct{})
		settling := newFlag(true)
		l.settleWait = func(ctx context.Context) {
			if settling.Load() {
				select {
				case <-hang:
				case <-ctx.Done():
				}
			}
		}
		l.publishKeys(6, "b", "a") // 2, 4 and 6 are a's
		r, result := start(t, t.Context(), l, k, nil)
		pass(2 * time.Second)
		l.publishKeys(2, "b", "a")
		pass(2 * time.Second)
		if len(k.tries(2)) == 0 || len(k.tries(4))+len(k.tries(6))+len(k.tries(8)) != 0 || len(k.tries(5)) == 0 {
			t.Errorf("tried 2: %v, 4: %v, 6: %v, 8: %v, 5: %v; want 2 and 5", k.tries(2), k.tries(4), k.tries(6), k.tries(8), k.tries(5))
		}
		settling.Store(false)
		close(hang)
		pass(5 * time.Second)
		if !slices.Equal(l.deadSeqs(), []int64{2}) || k.delivered() != 7 {
			t.Errorf("dead %v, delivered %d, want [2] and 7", l.deadSeqs(), k.delivered())
		}
		finish(t, r, result, l, k)
		checkOrder(t, l, k)
	})
}

// A dead letter that was retried goes through the lane of its key, where it waits for no other
// verdict, and no message waits for its verdict.
func TestAloneHoldsUpNoOther(t *testing.T) {
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
		if p := l.parkedTimes(); len(k.tries(1)) != 2 || p[1] != 0 || p[3] == 0 {
			t.Errorf("attempts %v of the dead letter; parked %v", k.tries(1), p)
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
		if p := l.parkedTimes(); p[1] == 0 || p[4]+p[5] != 0 || k.delivered() != 4 {
			t.Errorf("parked %v, delivered %d", p, k.delivered())
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
				r, result := start(t, t.Context(), l, k, func(c *Options) { c.OnDead = OnDeadHold })
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

// A parked message that an operator gives up is not sent again. It dies as after its last attempt: its key waits with on_dead: hold only.
func TestGivenUp(t *testing.T) {
	for _, onDead := range []OnDead{OnDeadContinue, OnDeadHold} {
		bad := &refuse{seq: 1}
		testParking(t, bad, func(t *testing.T, l *outbox, k *sink) {
			l.publishKeys(10, "a", "b")
			r, result := start(t, t.Context(), l, k, func(c *Options) { c.OnDead, c.MaxAttempts = onDead, -1 })
			pass(time.Minute)
			tries := len(k.tries(1))
			l.mu.Lock()
			for _, pk := range l.parked {
				pk.givenUp, pk.due = "wrong address", time.Now()
			}
			l.mu.Unlock()
			pass(time.Minute)
			want := 9
			if onDead == OnDeadHold {
				want = 5 // those of the other key
			}
			if dead := l.deadSeqs(); len(dead) != 1 || dead[0] != 1 || k.delivered() != want || len(k.tries(1)) != tries {
				t.Errorf("%s: dead %v, delivered %d, want 1 and %d; %d attempts, want %d", onDead, dead, k.delivered(), want, len(k.tries(1)), tries)
			}
			k.letGo(bad)
			l.mu.Lock()
			l.discardDead(1)
			l.mu.Unlock()
			pass(5 * time.Second)
			finish(t, r, result, l, k)
			checkOrder(t, l, k)
		})
	}
}

func TestMaxAge(t *testing.T) {
	bad := &refuse{seq: 1}
	testParking(t, bad, func(t *testing.T, l *outbox, k *sink) {
		l.publishKeys(4, "a", "b")
		r, result := start(t, t.Context(), l, k, func(c *Options) { c.MaxAge, c.RetryMax, c.MaxAttempts = 10*time.Minute, time.Minute, -1 })
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

// More keys than make the sink a suspect are refused at the same moment, but the sink has confirmed
// something meanwhile. So the messages are at fault and become dead letters.
func TestManySlowRefusalsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &outbox{}
		k := &sink{t: t, outbox: l,
			answer: func(m *penstock.Message) error {
				if m.Key == "well" {
					return nil
				}
				return errFlaky
			},
			before: func(_ context.Context, msgs []penstock.Message) {
				if msgs[0].Key != "well" {
					time.Sleep(2 * time.Second)
				}
			}}
		for i := range refusedInARow + 5 {
			l.publish(penstock.Message{Key: fmt.Sprint("slow-", i), Topic: "t"})
		}
		r, result := start(t, t.Context(), l, k, func(c *Options) { c.MaxBatch, c.Senders, c.MaxAttempts = 1, 64, 3 })
		for range 30 {
			time.Sleep(950 * time.Millisecond)
			l.publish(penstock.Message{Key: "well", Topic: "t"})
		}
		pass(3 * time.Second)
		if dead := len(l.deadSeqs()); dead != refusedInARow+5 || k.delivered() != 30 {
			t.Errorf("%d dead letters and %d delivered after half a minute, want %d and 30", dead, k.delivered(), refusedInARow+5)
		}
		finish(t, r, result, l, k)
	})
}
