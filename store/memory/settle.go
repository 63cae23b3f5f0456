package memory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/penstock/penstock"
)

// Settle implements penstock.Source.
func (s *source) Settle(ctx context.Context, settled ...penstock.Settled) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.store.db.Unlock()
	if s.sub == nil {
		return nil
	}
	// Nothing changes before everything is known to be right.
	marked := make([]*openBatch, len(settled))
	for i, st := range settled {
		if st.Batch.Number <= s.applied {
			continue // asked again, after an answer that did not arrive
		}
		at := slices.IndexFunc(s.open, func(b *openBatch) bool { return b.number == st.Batch.Number })
		if at < 0 {
			return fmt.Errorf("batch %d of subscription %q was not returned by Fetch", st.Batch.Number, s.req.Subscription)
		}
		if n := len(s.open[at].msgs); st.Verdicts != nil && len(st.Verdicts) != n {
			return fmt.Errorf("batch %d has %d messages and %d verdicts: give one for each, or nil", st.Batch.Number, n, len(st.Verdicts))
		}
		marked[i] = s.open[at]
	}
	for i, b := range marked {
		if b == nil || b.settled {
			continue
		}
		b.settled, b.verdicts = true, slices.Clone(settled[i].Verdicts)
	}
	for len(s.open) > 0 && s.open[0].settled {
		s.apply(s.open[0])
		s.applied = s.open[0].number
		s.open = s.open[1:]
	}
	return nil
}

// apply carries out the verdicts on the leading batch.
func (s *source) apply(b *openBatch) {
	now, done := s.store.db.now(), 0
	for i := range b.msgs {
		var v penstock.Verdict // delivered
		if b.verdicts != nil {
			v = b.verdicts[i]
		}
		s.judge(b, i, v, now)
		if v.Outcome != penstock.Parked {
			done++
		}
	}
	s.sub.tidy()
	s.sub.count(done, now)
	s.sub.cursor = b.cursor
	if b.origin == fromReplay {
		s.sub.replays = slices.Clone(s.sub.replays[len(b.msgs):])
		s.replayed -= len(b.msgs)
	}
}

// judge carries out the verdict on the i-th message of b.
func (s *source) judge(b *openBatch, i int, v penstock.Verdict, now time.Time) {
	how := b.lines[i]
	id := lineOf(&b.msgs[i], how)
	p := &parked{msg: b.msgs[i]}
	if b.origin == fromPark {
		p = s.sub.unpark(id, p.msg.Seq, now)
		delete(s.lent, id)
	}
	if len(v.Failures) > 0 {
		if p.msg.FailedSince.IsZero() {
			p.msg.FailedSince = v.Failures[0].At
		}
		p.failures = latest(p.failures, v.Failures)
	}
	switch v.Outcome {
	case penstock.Parked:
		p.msg.Attempt += len(v.Failures)
		s.sub.park(id, p, now.Add(v.RetryIn))
	case penstock.Dead:
		p.msg.Attempt += max(len(v.Failures)-1, 0) // the last one it has had
		s.sub.bury(p, now, v.Hold && id.key != "")
	case penstock.Delivered:
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
