package relay

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

func TestOutagePausesAndResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := &outbox{}, &sink{t: t, inOrder: true}
		l.sink = k
		down := newFlag(true)
		k.answer = func(*penstock.Message) error {
			if down.Load() {
				return penstock.Unavailable(fmt.Errorf("%w: %s", errFlaky, strings.Repeat("€", 200)))
			}
			return nil
		}
		l.publishKeys(1000, "a", "b", "c", "")
		r, result := start(t, t.Context(), l, k, func(c *Options) { c.MaxInFlight, c.MaxBatch = 1000, 200 })
		pass(10 * time.Minute)

		// At most one Send per sender ran into the outage. From then on there were only probes, about two
		// seconds apart at most.
		k.mu.Lock()
		probes := 0
		for i, s := range k.sends {
			if i >= 4 {
				probes++
				if s.n > probeSize {
					t.Errorf("Send %d had %d messages, more than a probe", i, s.n)
				}
			}
		}
		began := k.sends[0].at
		probe := slices.IndexFunc(k.sends, func(s send) bool { return s.at.After(began) })
		if d := k.sends[probe].at.Sub(began); d > 100*time.Millisecond {
			t.Errorf("the first probe came after %v", d)
		}
		first := len(k.sends)
		k.mu.Unlock()
		if probes < 280 || probes > 640 {
			t.Errorf("%d probes in ten minutes", probes)
		}
		if k.delivered() != 0 || l.cursor() != 0 {
			t.Errorf("delivered %d, settled %d during the outage", k.delivered(), l.cursor())
		}

		down.Store(false)
		pass(6 * time.Second)
		if k.delivered() != 1000 {
			t.Errorf("%d of 1000 delivered within six seconds of the broker's return", k.delivered())
		}
		finish(t, r, result, l, k)
		// Status is updated twice, whatever the number of probes; the first call failed.
		if len(l.reports) != 3 || !l.reports[0].down.Equal(began) || l.reports[1] != l.reports[0] || !l.reports[2].down.IsZero() {
			t.Errorf("told of the sink: %+v", l.reports)
		}
		if why := l.reports[0].why; len(why) > driver.MaxSinkErrorBytes || !utf8.ValidString(why) || !strings.Contains(why, errFlaky.Error()) {
			t.Errorf("why it is down: %q", why)
		}
		if k.sends[first].n > probeSize {
			t.Errorf("the first Send after the outage had %d messages", k.sends[first].n)
		}
		for _, m := range k.confirmed {
			if m.Attempt != 1 {
				t.Fatalf("message %d spent %d attempts on the outage", m.Seq, m.Attempt)
			}
		}
		checkOrder(t, l, k)
	})
}

// A message that makes the sink look down on each attempt does not stop the others forever: probes
// rotate.
func TestMessageThatLooksLikeAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := &outbox{}, &sink{t: t}
		k.answer = func(m *penstock.Message) error {
			if m.Seq == 1 || m.Seq == 2 {
				return penstock.Unavailable(errFlaky)
			}
			return nil
		}
		l.publishKeys(60, "bad", "", "a", "b", "c", "")
		r, result := start(t, t.Context(), l, k, func(c *Options) { c.MaxBatch = 1 })
		pass(10 * time.Minute)
		if k.delivered() != 49 { // all but 2 and the ten of key bad
			t.Errorf("%d delivered beside the two that upset the sink, want 49", k.delivered())
		}
		finish(t, r, result, l, k)
	})
}

// Messages that hang look like an outage as long as there are no others. A message that comes then
// is sent before the hanging ones have all been tried one after another. From then on, the hanging
// messages are at fault.
func TestHangingMessagesStopNoOther(t *testing.T) {
	for name, key := range map[string]func(i int) string{
		"keys": func(i int) string { return fmt.Sprint("hangs-", i) }, "no key": func(int) string { return "" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const hanging, timeout = 20, 2 * time.Second
				l, k := &outbox{}, &sink{t: t}
				k.before = func(ctx context.Context, msgs []penstock.Message) {
					if msgs[0].Topic == "hangs" {
						sleep(ctx, nil, timeout)
					}
				}
				answered := time.Time{}
				k.answer = func(m *penstock.Message) error {
					switch {
					case m.Topic != "hangs":
						answered = time.Now()
						return nil
					case time.Since(answered) < 2*timeout: // as the webhook sink knows
						return errFlaky
					}
					return penstock.Unavailable(errFlaky)
				}
				for i := range hanging {
					l.publish(penstock.Message{Key: key(i), Topic: "hangs"})
				}
				r, result := start(t, t.Context(), l, k, func(c *Options) { c.MaxBatch, c.Senders, c.MaxAttempts = 1, 2*hanging, 6 })
				pass(timeout + time.Second) // all have been tried, and one is tried again
				for range 3 {
					before := k.sent()
					l.publish(penstock.Message{Key: key(hanging), Topic: "well"})
					for n := k.delivered(); k.delivered() == n; pass(time.Millisecond) {
						if after := k.sent(); after > before+2 {
							t.Fatalf("%d Sends of messages that hang, and the one that does not has not arrived", after-before)
						}
					}
					pass(timeout + time.Second)
				}
				for i := range 600 { // and all of it ends while others are confirmed
					l.publish(penstock.Message{Key: fmt.Sprint("well", i), Topic: "well"})
					pass(time.Second)
				}
				if dead := len(l.deadSeqs()); dead != hanging || k.delivered() != 603 {
					t.Errorf("%d dead letters, %d delivered; want %d and 603", dead, k.delivered(), hanging)
				}
				finish(t, r, result, l, k)
			})
		})
	}
}

// If a part of the sink accepts nothing, for example a full stream, no message is at fault.
// Messages for that part wait, others do not, and no attempt is spent.
func TestPartThatTakesNothingSpendsNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := &outbox{}, &sink{t: t}
		l.sink, k.outbox = k, l
		full := newFlag(true)
		k.answer = func(m *penstock.Message) error {
			if m.Topic == "full" && full.Load() {
				return penstock.RetryAfter(penstock.Unavailable(errFlaky), time.Second)
			}
			return nil
		}
		r, result := start(t, t.Context(), l, k, func(c *Options) { c.MaxAttempts = 3 })
		const rounds = 60
		for i := range rounds {
			for j := range 30 {
				l.publish(penstock.Message{Key: fmt.Sprint("full", j%25), Topic: "full"}, penstock.Message{Key: fmt.Sprint("other", j%25), Topic: "other"})
			}
			pass(5 * time.Second) // more than the longest pause between probes
			if n := k.delivered(); n != 30*(i+1) {
				t.Fatalf("%d messages for elsewhere have arrived after %d rounds", n, i+1)
			}
		}
		if _, failures := l.parkedMessages(); failures > 0 || len(l.deadSeqs()) > 0 {
			t.Errorf("%d attempts were counted, %d dead letters", failures, len(l.deadSeqs()))
		}
		full.Store(false)
		pass(time.Minute)
		finish(t, r, result, l, k)
		if k.delivered() != 60*rounds {
			t.Errorf("%d of %d have arrived", k.delivered(), 60*rounds)
		}
		for _, m := range k.attempts {
			if m.Attempt != 1 {
				t.Fatalf("message %d was sent as attempt %d", m.Seq, m.Attempt)
			}
		}
		checkOrder(t, l, k)
	})
}

// A sink that refuses everything is also an outage: no attempt is counted, and nothing becomes a
// dead letter. When it accepts again, everything arrives in order. This holds from the first
// message on, whatever the sink says.
func TestSinkThatRefusesEverything(t *testing.T) {
	for name, err := range map[string]error{
		"for now": errFlaky, "for good": penstock.Permanent(errFlaky), "for long": penstock.RetryAfter(errFlaky, time.Hour),
	} {
		for _, batch := range []int{1, 8, 200} {
			t.Run(fmt.Sprintf("%s/batch=%d", name, batch), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { refuseEverything(t, err, batch) })
			})
		}
	}
}

func refuseEverything(t *testing.T, refusal error, batch int) {
	l, k := &outbox{}, &sink{t: t, inOrder: true}
	l.sink, k.outbox = k, l
	refuses := newFlag(true)
	k.answer = func(*penstock.Message) error {
		if refuses.Load() {
			return refusal
		}
		return nil
	}
	for i := range 150 {
		l.publishKeys(1, fmt.Sprint("k", i%60))
		l.publishKeys(1, "")
	}
	r, result := start(t, t.Context(), l, k, func(c *Options) { c.MaxInFlight, c.MaxBatch = 120, batch })
	for range 50 {
		pass(2 * time.Second)
		if _, failures := l.parkedMessages(); failures > 0 || len(l.deadSeqs()) > 0 {
			t.Fatalf("%d attempts are counted, %d dead letters", failures, len(l.deadSeqs()))
		}
	}
	// The delay between probes grows to a second, minus up to a half.
	if n := k.sent(); n > 230 {
		t.Errorf("%d Sends in 100 s", n)
	}
	// Parked ones come back later and later; otherwise probes would never try others.
	for seq, n := range l.parkedTimes() {
		if n > 15 {
			t.Fatalf("message %d was parked %d times", seq, n)
		}
	}
	k.mu.Lock()
	clear(k.never)
	k.mu.Unlock()
	refuses.Store(false)
	pass(3 * time.Minute)
	finish(t, r, result, l, k)
	checkOrder(t, l, k)
	for _, m := range k.confirmed {
		if m.Attempt != 1 {
			t.Fatalf("message %d was confirmed at attempt %d", m.Seq, m.Attempt)
		}
	}
}

// A drain does not count attempts that may be the sink's fault either.
func TestDrainWhileSinkRefuses(t *testing.T) {
	for name, err := range map[string]error{"for now": errFlaky, "for good": penstock.Permanent(errFlaky)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, k := &outbox{}, &sink{t: t, before: slowly(100 * time.Millisecond)}
				k.answer = func(*penstock.Message) error { return err }
				l.publishKeys(12, "a", "b", "")
				r, result := start(t, t.Context(), l, k, func(c *Options) { c.Senders, c.MaxBatch = 2, 3 })
				pass(50 * time.Millisecond) // the first are on the way
				finish(t, r, result, l, k)
				if parked, _ := l.parkedMessages(); parked+len(l.dead)+l.settled != 0 {
					t.Errorf("parked %d, %d dead, settled %d, want nothing", parked, len(l.dead), l.settled)
				}
			})
		})
	}
}

// A single poisoned message in an idle outbox is not an outage: it becomes a dead letter.
func TestPoisonInIdleOutboxIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := &outbox{}, &sink{t: t, answer: func(*penstock.Message) error { return errFlaky }}
		l.publishKeys(1, "a")
		r, result := start(t, t.Context(), l, k, func(c *Options) { c.RetryMax, c.MaxAttempts = time.Second, 40 })
		pass(time.Minute)
		if n := k.sent(); n != 40 {
			t.Errorf("tried %d times, want MaxAttempts = 40", n)
		}
		if !slices.Equal(l.deadSeqs(), []int64{1}) {
			t.Errorf("dead letters %v, want the poison", l.deadSeqs())
		}
		finish(t, r, result, l, k)
	})
}

// Many messages that were refused before, and are retried while there are no others, are not an
// outage either.
func TestParkedPoisonIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := &outbox{}, &sink{t: t}
		k.answer = func(m *penstock.Message) error {
			if m.Topic == "bad" {
				return errFlaky
			}
			return nil
		}
		for i := range 30 {
			l.publish(penstock.Message{Key: fmt.Sprint("bad", i), Topic: "bad"}, penstock.Message{Key: fmt.Sprint("good", i), Topic: "good"})
		}
		r, result := start(t, t.Context(), l, k, func(c *Options) { c.RetryMax, c.MaxAttempts = time.Second, 10 })
		pass(time.Minute)
		if dead := l.deadSeqs(); len(dead) != 30 || k.delivered() != 30 {
			t.Errorf("%d dead letters, %d delivered, want 30 each", len(dead), k.delivered())
		}
		finish(t, r, result, l, k)
	})
}

// A topic is refused as a whole, and a run of it much longer than the window is at the head. The
// relay gets past the run: the other topic behind it arrives, and the window never exceeds its
// limit.
func TestWholeTopicRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const run, window = 10_000, 1000
		l, k := &outbox{}, &sink{t: t}
		l.sink, k.outbox = k, l
		k.answer = func(m *penstock.Message) error {
			if m.Topic == "bad" {
				return errFlaky
			}
			return nil
		}
		for i := range run {
			l.publish(penstock.Message{Key: fmt.Sprint("bad", i), Topic: "bad"})
		}
		for i := range 500 {
			l.publish(penstock.Message{Key: fmt.Sprint("good", i), Topic: "good"})
		}
		most := 0
		r, result := start(t, t.Context(), l, k, func(c *Options) {
			c.MaxInFlight, c.MaxBatch = window, 512
			c.Observer = &levels{inFlight: func(n int) { most = max(most, n) }}
		})
		began := time.Now()
		for k.delivered() < 500 && time.Since(began) < 10*time.Minute {
			pass(time.Second)
		}
		t.Logf("the other topic arrived after %v", time.Since(began))
		if n := k.delivered(); n != 500 {
			t.Fatalf("%d of 500 messages of the other topic arrived within ten minutes", n)
		}
		// Now the two topics are mixed.
		for i := range 2000 {
			l.publish(penstock.Message{Key: fmt.Sprint("good", i), Topic: "good"}, penstock.Message{Key: fmt.Sprint("bad", run+i), Topic: "bad"})
		}
		pass(time.Minute)
		if n := k.delivered(); n != 2500 {
			t.Errorf("%d of 2500 messages of the good topic have arrived", n)
		}
		if most > window {
			t.Errorf("%d messages in flight at once, the window is %d", most, window)
		}
		finish(t, r, result, l, k)
	})
}

// A sink that asks for a pause as a whole gets nothing until then, whatever else was under way, and then
// a probe. No attempt is spent.
func TestSinkAsksForAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pause = 10 * time.Minute
		l, k := &outbox{}, &sink{t: t}
		l.sink = k
		began := time.Now()
		k.before = func(_ context.Context, msgs []penstock.Message) {
			time.Sleep(time.Duration(msgs[0].Seq%3) * 10 * time.Millisecond)
		}
		k.answer = func(*penstock.Message) error {
			if now := time.Now(); now.Before(began.Add(pause)) {
				return penstock.WithHint(penstock.Unavailable(penstock.RetryAfter(errFlaky, began.Add(pause).Sub(now))), "wait")
			}
			return nil
		}
		l.publishKeys(300, "a", "b", "c", "d", "e", "f", "")
		r, result := start(t, t.Context(), l, k, func(c *Options) { c.MaxBatch = 1 })
		pass(pause - time.Second)
		if n := k.sent(); n > 8 {
			t.Errorf("%d Sends in the pause, want at most one per sender", n)
		}
		pass(5 * time.Second)
		if n := k.delivered(); n != 300 {
			t.Errorf("%d of 300 messages after the pause", n)
		}
		finish(t, r, result, l, k)
		for _, m := range k.confirmed {
			if m.Attempt != 1 {
				t.Fatalf("message %d spent %d attempts", m.Seq, m.Attempt)
			}
		}
		checkOrder(t, l, k)
	})
}
