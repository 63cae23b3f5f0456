package relay

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
)

func TestOutagePausesAndResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := &outbox{}, &sink{t: t, inOrder: true}
		l.sink = k
		down := newFlag(true)
		k.answer = func(*penstock.Message) error {
			if down.Load() {
				return penstock.Unavailable(errFlaky)
			}
			return nil
		}
		l.publishKeys(1000, "a", "b", "c", "")
		r, result := start(t, t.Context(), l, k, func(c *Config) { c.MaxInFlight, c.MaxBatch = 1000, 200 })
		pass(10 * time.Minute)

		// At most one Send per sender ran into the outage; from then on there were
		// only probes, at most some five seconds apart.
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
		if probes < 100 || probes > 260 {
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

// A message that makes the sink look down, each time it is tried, does not stop
// the others for ever: probes go round.
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
		r, result := start(t, t.Context(), l, k, func(c *Config) { c.MaxBatch = 1 })
		pass(10 * time.Minute)
		if k.delivered() != 49 { // all but 2 and the ten of key bad
			t.Errorf("%d delivered beside the two that upset the sink, want 49", k.delivered())
		}
		finish(t, r, result, l, k)
	})
}

func TestPause(t *testing.T) {
	now := time.Now()
	p := pause{delay: backoff{least: time.Second, most: 4 * time.Second}}
	if p.admits(now, 100) != 100 || p.begin() {
		t.Fatal("a sink that answers is not probed")
	}
	if !p.unavailable(now, false) || p.unavailable(now, false) {
		t.Fatal("of two Sends in one outage the first counts")
	}
	if p.admits(now, 100) != 0 {
		t.Fatal("no probe before its time")
	}
	later := now.Add(time.Second)
	if p.admits(later, 100) != probeSize || p.admits(later, 3) != 3 || !p.begin() || p.admits(later, 100) != 0 {
		t.Fatal("one small probe at a time")
	}
	p.unavailable(later, true)
	if p.until.Sub(later) < time.Second || p.until.Sub(later) > 2*time.Second {
		t.Errorf("second pause %v, want 1 to 2 s", p.until.Sub(later))
	}
	p.begin()
	p.interrupted()
	if p.admits(later.Add(2*time.Second), 100) != probeSize {
		t.Error("an interrupted probe is repeated")
	}
	p.answered()
	if p.admits(later, 100) != 100 {
		t.Error("an answer ends the pause")
	}
}
