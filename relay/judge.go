package relay

import (
	"errors"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// judge reads the answer of a Send. It needs no mutex: until finish, only the sender uses the run.
func (s *session) judge(r *run) {
	r.confirmed, r.refused, r.unavailable, r.pause, r.fresh = len(r.entries), 0, nil, 0, r.fresh[:0]
	if r.errs != nil {
		r.confirmed = 0
		for _, h := range r.held {
			s.judgeLane(r, h)
		}
	}
	now := time.Now()
	s.cfg.Observer.Sent(Send{Messages: r.msgs[:len(r.entries)], Errors: r.errs, Answered: now, Took: now.Sub(r.began),
		Delivered: r.confirmed, Failed: r.refused, Retried: len(r.retries)})
}

// judgeLane counts the answers about the messages of one lane. Only the first failure of a key
// counts: the sink did not try those behind it.
func (s *session) judgeLane(r *run, h hold) {
	failed := false
	for i := h.from; i < h.to; i++ {
		err := r.errs[i]
		switch {
		case err == nil:
			r.confirmed++
			continue
		case failed && h.lane != &s.lanes.loose:
			continue
		case isAway(err):
			if r.unavailable == nil {
				r.unavailable = err
			}
			after, _ := penstock.RetryDelay(err)
			r.pause = max(r.pause, after)
		default:
			r.refused++
			if r.msgs[i].Attempt == 1 {
				r.fresh = append(r.fresh, r.msgs[i].Seq)
			}
		}
		failed = true
	}
}

// finish applies the result of a Send: to the breaker, to the messages, and to the lanes it
// held.
func (s *session) finish(r *run) {
	var now time.Time // read only if it matters: most Sends confirm everything
	if r.errs != nil || r.probe {
		now = time.Now()
	}
	s.mu.Lock()
	s.running--
	s.consult(r, now)
	if r.generation == s.generation {
		for _, h := range r.held {
			s.finishLane(r, h, now)
		}
		s.advance()
	} else { // the messages are forgotten, only their lanes are still held
		for _, h := range r.held {
			s.lanes.release(h.lane)
		}
	}
	s.unlock()
}

// advance wakes the settler if more batches can be settled than before.
func (s *session) advance() {
	if s.ledger.Advance() {
		notify(s.done)
		if s.starved && s.ledger.Pressing() {
			notify(s.hurry)
		}
	}
}

// consult passes the end of a Send to the breaker, and notes the breaker's conclusion for the log.
func (s *session) consult(r *run, now time.Time) {
	s.stats.delivered += r.confirmed
	s.stats.refused += r.refused
	s.stats.retried += len(r.retries)
	s.confirms += uint64(r.confirmed)
	if r.confirmed > 0 {
		s.provisional = s.provisional[:0]
	}
	was := s.breaker.state
	if was != closed && now.IsZero() {
		now = time.Now()
	}
	if s.confirms != r.before { // the sink accepts something, but twenty that hang at the same time are refused at one moment
		r.fresh = r.fresh[:0]
	}
	interrupted := r.unavailable != nil && r.term.Err() != nil // by this relay, not the sink
	s.breaker.ended(now, answer{probe: r.probe, again: r.again, confirmed: r.confirmed, unavailable: r.unavailable != nil, pause: r.pause, interrupted: interrupted, fresh: r.fresh})
	is := s.breaker.state
	if is == refusing && was != refusing {
		s.giveBack()
	}
	if is == closed && was != closed {
		s.lanes.trust()
	}
	if was == closed && is == closed || interrupted && was == is {
		return
	}
	err := r.unavailable
	if err == nil && is == refusing {
		err = r.firstRefusal()
	}
	s.noteBreaker(was, is, r.probe, err, now)
}

func (r *run) firstRefusal() error {
	for _, err := range r.errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// giveBack takes back the attempts counted against messages in memory since the last confirm: the
// sink is to blame for them.
func (s *session) giveBack() {
	for _, e := range s.provisional {
		e.tries, e.decided = 0, false
		e.batch.Note(e.index, driver.Verdict{})
	}
	s.provisional = s.provisional[:0]
}

// finishLane ends the hold on one lane.
func (s *session) finishLane(r *run, h hold, now time.Time) {
	switch {
	case r.errs == nil && len(r.retries) == 0:
		for _, e := range r.entries[h.from:h.to] {
			e.batch.Deliver(e.index)
		}
	case r.errs == nil:
		for _, e := range r.entries[h.from:h.to] {
			s.deliver(e)
		}
	case h.lane == &s.lanes.loose:
		for i := h.from; i < h.to; i++ {
			e := r.entries[i]
			switch {
			case r.errs[i] == nil:
				s.deliver(e)
			case isAway(r.errs[i]):
				s.doubt(e, nil)
			default:
				s.refused(r, i, nil, now)
			}
		}
	default:
		first := -1
		for i := h.to - 1; i >= h.from; i-- { // backwards, as they go back in front
			if r.errs[i] == nil {
				s.deliver(r.entries[i])
				continue
			}
			h.lane.pushFront(r.entries[i])
			first = i
		}
		switch {
		case first < 0:
		case isAway(r.errs[first]):
			s.doubt(r.entries[first], h.lane)
			return
		default:
			s.refused(r, first, h.lane, now)
			return
		}
	}
	s.lanes.release(h.lane)
}

// isAway reports whether err says that the sink accepts nothing. A delay of an Unavailable error
// concerns only a part of the sink: that is a refusal that costs no attempt. An Unavailable error of
// one with a delay concerns the sink.
func isAway(err error) bool {
	if !penstock.IsUnavailable(err) {
		return false
	}
	delayed := false
	for ; penstock.IsUnavailable(err); err = errors.Unwrap(err) {
		_, asked := penstock.RetryDelay(err)
		if delayed && !asked {
			return false
		}
		delayed = asked
	}
	return true
}

// doubt puts back a message, the first of its lane, if it is unclear whether the message or the
// sink is at fault.
func (s *session) doubt(e *entry, l *lane) {
	e.doubted = true
	if l == nil {
		s.lanes.returnLoose(e)
	} else {
		s.lanes.release(l)
	}
}

// refused decides about a refused message. It is the first of its lane, or has no key
// and no lane.
func (s *session) refused(r *run, i int, l *lane, now time.Time) {
	e := r.entries[i]
	switch {
	case s.breaker.state == closed && penstock.IsUnavailable(r.errs[i]):
		v := e.parked()
		in, _ := penstock.RetryDelay(r.errs[i])
		v.RetryIn = in/8 + apart(in) // not before, and not all at once
		s.noteUnavailable(&e.batch.Messages[e.index], r.errs[i], v.RetryIn)
		s.settleAlone(e, l, v)
	case s.breaker.state == closed:
		s.count(r, i, l, now)
	case s.breaker.state == refusing && r.probe:
		// Move it away, to let the next probe try other messages. The longer the outage, the later these
		// come back. Otherwise probes would only ever try them.
		v := e.parked()
		v.RetryIn = spread(min(max(now.Sub(s.breaker.since), 5*time.Second), s.cfg.RetryMax))
		s.settleAlone(e, l, v)
	default:
		s.doubt(e, l)
	}
}

// count counts an attempt and acts on the policy's decision.
func (s *session) count(r *run, i int, l *lane, now time.Time) {
	e, b, err := r.entries[i], r.entries[i].batch, r.errs[i]
	m := &b.Messages[e.index]
	fresh := m.Attempt == 1 && e.order() == driver.InOrder
	unvouched := r.confirmed == 0 && fresh && e.tries == 0
	if unvouched && s.draining { // there is no time left to find out who is to blame
		if l != nil {
			s.lanes.release(l)
		}
		return
	}
	e.tries++
	v := driver.Verdict{Failures: b.Noted(e.index).Failures}
	v.Failures = append(v.Failures, failure(m.Attempt+int(e.tries)-1, now, err))
	since := m.FailedSince
	if since.IsZero() {
		since = v.Failures[0].At
	}
	d := s.policy.decide(refusal{err: err, attempt: m.Attempt + int(e.tries) - 1, tries: int(e.tries), age: now.Sub(since),
		fresh: fresh && !s.draining, inOrder: m.Key != "" && e.order() == driver.InOrder})

	if unvouched {
		s.provisional = append(s.provisional, e)
	}
	switch d.action {
	case again:
		b.Note(e.index, v)
		s.note(noteAgain, m, v, d.in)
		s.wait(e, l, now.Add(d.in))
		return
	case park:
		v.Outcome, v.RetryIn = driver.Parked, d.in
	case die:
		v.Outcome, v.Hold = driver.Dead, d.hold
	}
	if unvouched && s.confirms == r.before {
		// Nothing shows that the sink accepts anything. The verdict waits a moment for the breaker to find
		// out.
		e.decided = true
		b.Note(e.index, v)
		s.wait(e, l, now.Add(min(s.cfg.RetryMin, longestWait)))
		return
	}
	s.settleAlone(e, l, v)
}

// wait makes a message wait at the head of its lane, or of a new lane.
func (s *session) wait(e *entry, l *lane, until time.Time) {
	if l == nil {
		s.lanes.delayLoose(e, until)
	} else {
		s.lanes.delay(l, until)
	}
}

// settleAlone is settle for a message that may have no lane.
func (s *session) settleAlone(e *entry, l *lane, v driver.Verdict) {
	if l != nil {
		s.settle(l, v)
		return
	}
	s.noteVerdict(e, v)
	s.conclude(e, nil, v)
}

// settle gives the first message of a lane its verdict, and the log a note.
func (s *session) settle(l *lane, v driver.Verdict) {
	s.noteVerdict(l.head, v)
	s.concludeHead(l, v)
	s.advance()
}

// parkWaiting parks the messages that wait in memory for another attempt. It leaves out those for
// which it is unclear whether they or the sink are to blame: they count as not tried.
func (s *session) parkWaiting() {
	if s.breaker.state != closed {
		return
	}
	s.giveBack()
	for len(s.lanes.waiting) > 0 {
		l := s.lanes.wake(s.lanes.waiting[0].due)
		switch e := l.head; {
		case e.decided:
			s.settle(l, e.batch.Noted(e.index))
		case e.tries == 0:
			s.lanes.pushReady(l)
		default:
			v := e.parked()
			v.RetryIn = time.Until(l.due)
			s.settle(l, v)
		}
	}
}
