package memory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/penstock/penstock/driver"
)

// Settle implements driver.Source.
func (s *source) Settle(ctx context.Context, settled ...driver.Settled) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.store.db.Unlock()
	if s.sub == nil {
		return nil
	}
	// Nothing changes before everything is known to be right.
	for _, st := range settled {
		b := s.open[st.Batch.Number]
		switch {
		case st.Batch.Number > s.number:
			return fmt.Errorf("batch %d of subscription %q was not returned by Fetch", st.Batch.Number, s.req.Subscription)
		case b != nil && st.Verdicts != nil && len(st.Verdicts) != len(b.msgs):
			return fmt.Errorf("batch %d has %d messages and %d verdicts: give one for each, or nil", st.Batch.Number, len(b.msgs), len(st.Verdicts))
		}
	}
	for _, st := range settled {
		if b := s.open[st.Batch.Number]; b != nil { // or it is settled: asked again, after an answer that did not arrive
			s.apply(b, st.Verdicts)
		}
	}
	return nil
}

// apply carries out the verdicts on a batch, but for those that it has already.
func (s *source) apply(b *openBatch, verdicts []driver.Verdict) {
	now, done := s.store.db.now(), 0
	for i := range b.msgs {
		var v driver.Verdict // delivered
		if verdicts != nil {
			v = verdicts[i]
		}
		if b.settled[i] || v.Outcome == driver.Undecided {
			continue
		}
		b.settled[i] = true
		b.left--
		s.judge(b, i, v, now)
		if v.Outcome != driver.Parked {
			done++
		}
		switch b.origin {
		case fromLog:
			s.sub.pass(b.at[i])
		case fromReplay:
			b.replays[i].settled = true
		}
	}
	s.sub.dropEmpty()
	s.sub.count(done, now)
	for len(s.sub.replays) > 0 && s.sub.replays[0].settled {
		s.sub.replays = s.sub.replays[1:]
		s.replayed--
	}
	if b.left == 0 {
		delete(s.open, b.number)
	}
}

// pass notes that the message at a position of the log is settled, and moves the
// cursor as far as it can go.
func (sub *subscription) pass(at int64) {
	for sub.ahead[at] = true; sub.ahead[sub.cursor]; sub.cursor++ {
		delete(sub.ahead, sub.cursor)
	}
}

// judge carries out the verdict on the i-th message of b.
func (s *source) judge(b *openBatch, i int, v driver.Verdict, now time.Time) {
	id := parkedIDOf(&b.msgs[i], b.order[i])
	p := &parked{msg: b.msgs[i]}
	if b.origin == fromPark {
		p = s.sub.unpark(id, p.msg.Seq, now)
		if s.inFlight[id]--; s.inFlight[id] == 0 {
			delete(s.inFlight, id)
		}
	}
	if len(v.Failures) > 0 {
		if p.msg.FailedSince.IsZero() {
			p.msg.FailedSince = v.Failures[0].At
		}
		p.failures = latest(p.failures, v.Failures)
	}
	switch v.Outcome {
	case driver.Parked:
		p.msg.Attempt += len(v.Failures)
		s.sub.park(id, p, now.Add(v.RetryIn))
	case driver.Dead:
		p.msg.Attempt += max(len(v.Failures)-1, 0) // the last one it has had
		s.sub.deadLetter(p, now, v.Hold && id.key != "")
	case driver.Delivered:
		if p.holds {
			s.sub.release(p.msg.Key, p.msg.Seq, now)
		}
	}
}

// count adds n settled messages to what status shows.
func (sub *subscription) count(n int, now time.Time) {
	sub.settled += int64(n)
	sub.recent = slices.DeleteFunc(sub.recent, func(r settlement) bool { return now.Sub(r.at) >= time.Minute })
	sub.recent = append(sub.recent, settlement{now, n})
}
