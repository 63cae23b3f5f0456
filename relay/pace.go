package relay

import (
	"math"
	"time"

	"github.com/penstock/penstock"
)

// pace lets a relay start as many messages as its rate says (GCRA), by the clock of this process. It outlives sessions.
// A session's mutex guards it; there is one session at a time.
type pace struct {
	every time.Duration // 0: there is no rate
	burst int
	next  time.Time // when the next message would start if they were evenly spread
}

func newPace(r penstock.Rate) (p pace) {
	if r.Jobs > 0 {
		p.every = r.Per / time.Duration(r.Jobs)
		p.burst = min(max(r.Burst, 1), int(math.MaxInt64/4/p.every)) // a burst of decades is none
	}
	return p
}

// allows is how many messages may start now.
func (p *pace) allows(now time.Time) int {
	if p.every == 0 {
		return math.MaxInt
	}
	return max(int((time.Duration(p.burst)*p.every-max(p.next.Sub(now), 0))/p.every), 0)
}

// started counts messages that start.
func (p *pace) started(now time.Time, n int) {
	if p.every > 0 {
		p.next = later(p.next, now).Add(time.Duration(n) * p.every)
	}
}

// from is when one more may start.
func (p *pace) from() time.Time { return p.next.Add(-time.Duration(p.burst-1) * p.every) }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
