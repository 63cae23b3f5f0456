package relay

import (
	"slices"
	"time"
)

// probeSize is how many messages a probe sends to a sink that was unavailable. If the sink answers
// and refuses them all, probes grow.
const (
	probeSize    = 16
	maxProbeSize = 1 << 16
)

// refusedInARow is how many different messages must be refused on their first attempt, with
// nothing confirmed in between, before the sink is the suspect instead of the messages.
const refusedInARow = 20

type breakerState uint8

const (
	closed      breakerState = iota // messages flow
	unavailable                     // the sink cannot be reached
	refusing                        // the sink answers, and refuses everything
)

// breaker distinguishes "this message is bad" from "the sink is down". While it is open, only an
// occasional probe is sent, and no refusal is counted against its message. Not safe for concurrent
// use.
type breaker struct {
	state breakerState
	// Running probes: of messages that were not tried yet, and of others.
	probing, reprobing bool
	since              time.Time // it is open
	until              time.Time // when the next probe may start
	size               int       // of that probe
	delay              backoff
	// The longest delay between probes, by the fault. A refusing sink is probed more often: each
	// probe moves messages out of the way, and those behind them may be accepted.
	mostUnavailable, mostRefusing time.Duration
	// fresh has the Seqs of the messages that were refused on their first attempt since the last
	// confirm, each once.
	fresh []int64
}

func newBreaker(least, most time.Duration) breaker {
	return breaker{delay: backoff{least: least}, mostUnavailable: min(most, 2*time.Second), mostRefusing: min(most, time.Second)}
}

// allows returns how many messages a Send may have now, up to limit. again is true for messages
// that were tried before. Messages that were not tried do not wait for a probe of tried ones,
// because the tried ones may be the cause.
func (b *breaker) allows(now time.Time, limit int, again bool) int {
	switch {
	case b.state == closed:
		return limit
	case b.probing || again && b.reprobing || now.Before(b.until):
		return 0
	}
	return min(limit, b.size)
}

// begin notes that a Send starts and reports whether it is a probe.
func (b *breaker) begin(again bool) bool {
	switch {
	case b.state == closed:
		return false
	case again:
		b.reprobing = true
	default:
		b.probing = true
	}
	return true
}

// answer is the news of one Send about the sink.
type answer struct {
	probe       bool
	again       bool // of messages that were tried before
	confirmed   int
	unavailable bool
	pause       time.Duration // for which the sink takes nothing, if it says that
	interrupted bool          // the relay ended the Send, so it does not show that the sink is unavailable
	fresh       []int64       // Seqs of those refused on their first attempt
}

// ended notes how a Send ended.
func (b *breaker) ended(now time.Time, a answer) {
	switch {
	case !a.probe:
	case a.again:
		b.reprobing = false
	default:
		b.probing = false
	}
	if a.confirmed > 0 {
		b.fresh = b.fresh[:0]
	}
	switch {
	case a.unavailable && a.interrupted:
		if a.confirmed > 0 && a.probe {
			b.state = closed
		}
	case a.unavailable && b.state == closed:
		b.open(now, unavailable)
	case b.state == closed:
		b.count(now, a)
	case a.confirmed > 0 && (a.probe || b.state == refusing):
		// A Send that began before the outage may confirm after it, so only a probe shows that the sink is
		// back. If the sink answers, any confirm shows it.
		b.state = closed
	case !a.probe:
	case a.unavailable:
		b.state = unavailable
		b.prolong(now)
	case b.state == unavailable: // it is back, but it refuses at least these messages
		b.state = closed
		b.count(now, a)
	default:
		b.size = min(2*b.size, maxProbeSize)
		b.prolong(now)
	}
	if a.pause > 0 && b.state == unavailable {
		b.until = later(b.until, now.Add(a.pause))
	}
}

// count adds up the refusals of a trusted sink.
func (b *breaker) count(now time.Time, a answer) {
	if a.confirmed > 0 {
		return
	}
	for _, seq := range a.fresh {
		if !slices.Contains(b.fresh, seq) {
			b.fresh = append(b.fresh, seq)
		}
		if len(b.fresh) >= refusedInARow {
			b.fresh = b.fresh[:0]
			b.open(now, refusing)
			return
		}
	}
}

func (b *breaker) open(now time.Time, state breakerState) {
	b.state, b.since, b.size = state, now, probeSize
	b.delay.reset()
	b.prolong(now)
}

func (b *breaker) prolong(now time.Time) {
	b.delay.most = b.mostRefusing
	if b.state == unavailable {
		b.delay.most, b.size = b.mostUnavailable, probeSize
	}
	b.until = now.Add(b.delay.next())
}
