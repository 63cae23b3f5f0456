package relay

import (
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// parkPoint is the place from which a lane's messages are parked because an earlier one was. It
// lasts until the store knows of that one and returns the others BehindParked.
type parkPoint struct {
	from  driver.Place // the first of the key that is parked with batch
	batch *batch       // nil once the verdicts are durable
	tried bool         // they were passed to Settle
	clear uint64       // once they are durable: the first Fetch that began after that
}

// parks reports whether a message that came with a Fetch has to be parked.
func (l *lane) parks(at driver.Place, fetch uint64) bool {
	for i := range l.parkPoints {
		if m := &l.parkPoints[i]; !at.Before(m.from) && (m.batch != nil || fetch < m.clear) {
			return true
		}
	}
	return false
}

// lingering is a lane with a park point that the Fetch of that number clears.
type lingering struct {
	lane  *lane
	clear uint64
}

// parkFrom notes that messages of the lane are parked from a place on, with batch b.
func (s *session) parkFrom(l *lane, from driver.Place, b *batch) {
	for i := range l.parkPoints {
		if m := &l.parkPoints[i]; m.batch == b && !m.tried {
			if from.Before(m.from) {
				m.from = from
			}
			return
		}
	}
	if len(l.parkPoints) == 0 {
		s.lanes.parking++
	}
	l.parkPoints = append(l.parkPoints, parkPoint{from: from, batch: b})
	b.Of.parking = append(b.Of.parking, l)
}

// conclude gives a message a verdict other than delivered. Its lane is nil if it has no key.
func (s *session) conclude(e *entry, l *lane, v driver.Verdict) {
	b := e.batch
	b.Decide(e.index, v)
	s.vouch(e)
	if l != nil && l.key != "" && e.order() != driver.OutOfOrder {
		s.parkFrom(l, b.Place(int(e.index)), b)
	}
}

// deliver is conclude for a message that the sink confirmed, or that need not be sent.
func (s *session) deliver(e *entry) {
	e.batch.Deliver(e.index)
	s.vouch(e)
}

// vouch: a message that has its verdict is no longer counted among those for which the blame is unclear.
func (s *session) vouch(e *entry) {
	if e.tries > 0 {
		if i := slices.Index(s.provisional, e); i >= 0 {
			s.provisional = slices.Delete(s.provisional, i, i+1)
		}
	}
}

// concludeHead gives the first message of a lane its verdict and releases the lane. If others have
// to wait for it, they are parked behind it.
func (s *session) concludeHead(l *lane, v driver.Verdict) {
	e := l.popFront()
	s.conclude(e, l, v)
	if e.order() != driver.OutOfOrder {
		s.parkRest(l)
	}
	s.lanes.release(l)
}

// parkRest parks the other messages of a lane, unsent. Messages that are OutOfOrder stay.
func (s *session) parkRest(l *lane) {
	e := l.head
	l.head, l.tail = nil, nil
	for e != nil {
		next := e.next
		if e.order() == driver.OutOfOrder {
			l.pushBack(e)
		} else {
			s.conclude(e, l, e.parked())
		}
		e = next
	}
}

// parked is the verdict of a message that is parked without another refusal.
func (e *entry) parked() driver.Verdict {
	return driver.Verdict{Outcome: driver.Parked, Failures: e.batch.Noted(e.index).Failures}
}

// place is lanes.add for entries of which some may not need to be sent. One that an operator gives up dies as if it had been refused permanently.
func (s *session) place(entries []entry, fetch uint64) {
	for i := range entries {
		e := &entries[i]
		if e.skip {
			s.stats.filtered++
			s.deliver(e)
			continue
		}
		m := &e.batch.Messages[e.index]
		l, order := s.lanes.lane(m.Key), e.order()
		reason, givenUp := e.batch.GivenUp[int(e.index)]
		switch {
		case m.Key != "" && (order == driver.BehindParked || order == driver.InOrder && l.parks(e.batch.Place(int(e.index)), fetch)):
			s.conclude(e, l, driver.Verdict{Outcome: driver.Parked})
		case givenUp:
			v := driver.Verdict{Outcome: driver.Dead, Hold: s.policy.holds(m.Key != "" && order == driver.InOrder),
				Failures: []penstock.Failure{{At: time.Now(), Err: reason}}}
			s.noteVerdict(e, v)
			s.conclude(e, l, v)
		default:
			l.pushBack(e)
		}
		if l.state == idle {
			s.lanes.release(l)
		}
	}
}

// try notes that the verdicts of a batch, except those of some keys, are passed to Settle.
func (s *session) try(b *batch, but map[string]bool) {
	for _, l := range b.Of.parking {
		for i := range l.parkPoints {
			if m := &l.parkPoints[i]; m.batch == b && !but[l.key] {
				m.tried = true
			}
		}
	}
}

// linger is called when the verdicts of a batch that were passed to Settle are durable or
// forgotten. A Fetch that begins after that knows all about its keys.
func (s *session) linger(b *batch) {
	b.Of.parking = slices.DeleteFunc(b.Of.parking, func(l *lane) bool {
		for i := range l.parkPoints {
			if m := &l.parkPoints[i]; m.batch == b && m.tried {
				m.batch, m.clear = nil, s.fetches+1
				s.lingering = append(s.lingering, lingering{l, m.clear})
			}
		}
		return !slices.ContainsFunc(l.parkPoints, func(m parkPoint) bool { return m.batch == b })
	})
}

// clearParkPoints drops the park points that were known to the Fetch which now arrives, or to an
// earlier one.
func (s *session) clearParkPoints(fetch uint64) {
	n := 0
	for ; n < len(s.lingering) && s.lingering[n].clear <= fetch; n++ {
		l := s.lingering[n].lane
		if len(l.parkPoints) == 0 {
			continue // cleared with another park point of the same lane
		}
		l.parkPoints = slices.DeleteFunc(l.parkPoints, func(m parkPoint) bool { return m.batch == nil && m.clear <= fetch })
		if len(l.parkPoints) == 0 {
			s.lanes.parking--
			if l.state == idle {
				s.lanes.release(l)
			}
		}
	}
	s.lingering = slices.Delete(s.lingering, 0, n)
}

// forgetParkPoints drops those of forgotten batches, unless a Settle was tried: it may have taken
// effect in the middle of the Fetch that went back. If it takes effect later, the messages are in
// their lanes again.
func (s *session) forgetParkPoints() {
	for _, b := range s.ledger.Batches() {
		s.linger(b)
		for _, l := range b.Of.parking {
			l.parkPoints = slices.DeleteFunc(l.parkPoints, func(m parkPoint) bool { return m.batch == b })
			if len(l.parkPoints) == 0 {
				s.lanes.parking--
			}
		}
	}
}

// failure is the record of one refusal in the store.
func failure(attempt int, at time.Time, err error) penstock.Failure {
	return penstock.Failure{Attempt: attempt, At: at, Err: text(err)}
}

// maxErrorBytes is how much of an error's text is kept with a message. The window bounds how many
// of them are in memory.
const maxErrorBytes = 1000

// text is an error in a form that every database can store.
func text(err error) string {
	s := err.Error()
	if len(s) > maxErrorBytes {
		s = s[:maxErrorBytes] + "…"
	}
	return storable(s)
}

func storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
