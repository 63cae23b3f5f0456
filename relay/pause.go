package relay

import "time"

// probeSize is how many messages try out a sink that was unavailable.
const probeSize = 16

// pause holds back all Sends while the sink as a whole is unavailable, but for
// a probe now and then: one small Send at a time. Not safe for concurrent use.
type pause struct {
	on      bool
	probing bool // a probe is running
	since   time.Time
	until   time.Time // when the next probe may start
	delay   backoff
}

// admits returns how many messages a Send may have now, of the limit.
func (p *pause) admits(now time.Time, limit int) int {
	switch {
	case !p.on:
		return limit
	case p.probing || now.Before(p.until):
		return 0
	}
	return min(limit, probeSize)
}

// begin notes that a Send starts and reports whether it is a probe.
func (p *pause) begin() bool {
	p.probing = p.on
	return p.on
}

// unavailable notes a Send that found the sink unavailable. It reports whether
// this began or prolonged a pause: of many Sends that run into the same outage,
// the first begins it and the others count for nothing.
func (p *pause) unavailable(now time.Time, probe bool) bool {
	if p.on && !probe {
		return false
	}
	if !p.on {
		p.on, p.since = true, now
		p.delay.reset()
	}
	p.probing = false
	p.until = now.Add(p.delay.next())
	return true
}

// answered notes that a probe was answered by the sink, and ends the pause.
func (p *pause) answered() { p.on, p.probing = false, false }

// interrupted notes that a probe ended without saying anything about the sink.
func (p *pause) interrupted() { p.probing = false }
