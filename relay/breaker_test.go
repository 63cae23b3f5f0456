package relay

import (
	"testing"
	"time"
)

func seqs(from, to int64) (s []int64) {
	for ; from <= to; from++ {
		s = append(s, from)
	}
	return s
}

func TestBreakerUnavailable(t *testing.T) {
	now := time.Now()
	b := newBreaker(time.Second, time.Minute)
	if b.allows(now, 100, false) != 100 || b.begin(false) {
		t.Fatal("a sink that answers is not probed")
	}
	b.ended(now, answer{unavailable: true})
	until := b.until
	b.ended(now.Add(time.Second), answer{unavailable: true})
	b.ended(now, answer{confirmed: 3})
	if b.state != unavailable || b.until != until {
		t.Fatal("of many Sends in one outage the first opens the breaker, and no other says more")
	}
	if b.allows(now, 100, false) != 0 {
		t.Fatal("no probe before its time")
	}
	later := now.Add(time.Second)
	if b.allows(later, 100, false) != probeSize || b.allows(later, 3, false) != 3 || !b.begin(false) || b.allows(later, 100, false) != 0 {
		t.Fatal("one small probe at a time")
	}
	b.ended(later, answer{probe: true, unavailable: true})
	if d := b.until.Sub(later); d < time.Second || d > 2*time.Second {
		t.Errorf("second pause %v, want 1 to 2 s", d)
	}
	b.begin(false)
	b.ended(later, answer{probe: true, unavailable: true, interrupted: true})
	if b.allows(later.Add(2*time.Second), 100, false) != probeSize {
		t.Error("a probe that the relay ended is repeated, and no longer waited for")
	}
	for range 10 {
		b.begin(false)
		b.ended(later, answer{probe: true, unavailable: true})
	}
	if d := b.until.Sub(later); d < time.Second || d > 2*time.Second || b.allows(later.Add(5*time.Second), 100, false) != probeSize {
		t.Errorf("after long the pause is %v, want 1 to 2 s", d)
	}
	b.begin(false)
	b.ended(later, answer{probe: true, confirmed: 1, unavailable: true})
	if b.state != closed {
		t.Error("any confirm of a probe closes it")
	}
	b.ended(later, answer{unavailable: true})
	b.begin(false)
	b.ended(later, answer{probe: true, fresh: seqs(1, 16)})
	if b.state != closed {
		t.Error("a sink that refuses a few messages is not unavailable any more")
	}
	b.ended(later, answer{fresh: seqs(17, 20)})
	if b.state != refusing {
		t.Error("but those it refused count")
	}
}

func TestBreakerRefusing(t *testing.T) {
	now := time.Now()
	b := newBreaker(time.Second, time.Minute)
	b.ended(now, answer{fresh: seqs(1, 19)})
	for range 100 {
		b.ended(now, answer{fresh: seqs(7, 8)})
		b.ended(now, answer{}) // refused, and not for the first time
	}
	if b.state != closed {
		t.Fatal("only different messages count, each on its first attempt")
	}
	b.ended(now, answer{fresh: seqs(20, 100), confirmed: 1})
	b.ended(now, answer{fresh: seqs(101, 119)})
	if b.state != closed {
		t.Fatal("a confirm starts the count anew, also in the same Send")
	}
	b.ended(now, answer{fresh: seqs(120, 120)})
	if b.state != refusing || b.since != now {
		t.Fatal("twenty in a row open it")
	}
	b.ended(now, answer{fresh: seqs(21, 100)})
	b.ended(now, answer{unavailable: true})
	if b.state != refusing || b.allows(now, 1000, false) != 0 {
		t.Fatal("what was under way says nothing new")
	}
	size := probeSize
	for range 8 {
		now = now.Add(time.Second)
		if n := b.allows(now, 300, false); n != min(size, 300) {
			t.Fatalf("a probe of %d, want %d", n, min(size, 300))
		}
		if !b.begin(false) {
			t.Fatal("not a probe")
		}
		b.ended(now, answer{probe: true, fresh: seqs(1, 16)})
		if d := b.until.Sub(now); d > time.Second {
			t.Fatalf("the next probe in %v", d)
		}
		size *= 2
	}
	b.begin(false)
	b.ended(now, answer{probe: true, unavailable: true})
	if b.state != unavailable || b.size != probeSize {
		t.Error("a refusing sink that goes away is unavailable")
	}
	b = newBreaker(time.Second, time.Minute)
	b.ended(now, answer{fresh: seqs(1, 20)})
	b.ended(now, answer{confirmed: 1})
	if b.state != closed {
		t.Error("any confirm closes it")
	}
	b.ended(now, answer{fresh: seqs(1, 19)})
	if b.state != closed {
		t.Error("the count starts anew")
	}
}

// Messages that were not tried do not wait for a probe of those that were: the sink may be up, and
// only these messages may hang.
func TestBreakerProbesOfTwoKinds(t *testing.T) {
	now := time.Now()
	b := newBreaker(time.Second, time.Minute)
	b.ended(now, answer{unavailable: true})
	later := b.until
	b.begin(true)
	if b.allows(later, 100, true) != 0 || b.allows(later, 100, false) != probeSize {
		t.Fatal("beside a probe of messages that were tried goes one of others, and of such alone")
	}
	b.begin(false)
	if b.allows(later, 100, true) != 0 || b.allows(later, 100, false) != 0 {
		t.Fatal("and no third")
	}
	b.ended(later, answer{probe: true, again: true, unavailable: true})
	if later = b.until; b.allows(later, 100, true) != 0 || b.allows(later, 100, false) != 0 {
		t.Fatal("while messages are probed that were not tried, none of the others are")
	}
	b.ended(later, answer{probe: true, confirmed: 1})
	if b.state != closed {
		t.Fatal("either closes it")
	}
}
