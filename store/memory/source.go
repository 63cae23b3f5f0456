package memory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/penstock/penstock"
)

// source is one reader. What it has handed out and not settled is its own
// knowledge: when it goes, the next reader begins at the durable cursor.
type source struct {
	store   *Store
	outbox  *outbox
	sub     *subscription // nil when ephemeral
	req     penstock.Subscribe
	epoch   int64
	next    int64          // the position to read on from
	retried map[int64]bool // seqs of sub.retries that were handed out
	number  uint64         // of the last batch
	applied uint64         // the cursor is past this batch
	open    []*openBatch   // in order, the leading one not settled
	closed  bool
}

type openBatch struct {
	number   uint64
	msgs     []penstock.Message
	end      int64 // the cursor once this is settled
	settled  bool
	verdicts []penstock.Verdict
}

var _ penstock.Source = (*source)(nil)

// Subscribe implements penstock.Store.
func (s *Store) Subscribe(ctx context.Context, req penstock.Subscribe) (penstock.Source, error) {
	if req.Lease <= 0 {
		req.Lease = penstock.DefaultLease
	}
	o, err := s.enterOutbox(ctx, req.Outbox)
	if err != nil {
		return nil, err
	}
	defer s.db.Unlock()
	start := o.base
	if req.Start == penstock.FromNow {
		start = o.end()
	}
	src := &source{store: s, outbox: o, req: req, next: start, retried: map[int64]bool{}}
	if req.Ephemeral {
		return src, nil
	}
	sub := o.subs[req.Subscription]
	if sub == nil {
		sub = &subscription{cursor: start}
		o.subs[req.Subscription] = sub
	}
	now := s.db.now()
	if sub.holder != "" && now.Before(sub.until) {
		return nil, &penstock.HeldError{Subscription: req.Subscription, Holder: sub.holder, Until: sub.until}
	}
	sub.epoch++ // from here on the previous holder is fenced
	sub.holder, sub.until = req.Holder, now.Add(req.Lease)
	src.sub, src.epoch, src.next = sub, sub.epoch, sub.cursor
	return src, nil
}

// enter begins an operation; when it returns nil the database is locked.
func (s *source) enter(ctx context.Context) error {
	if err := s.store.enter(ctx); err != nil {
		return err
	}
	var err error
	switch {
	case s.closed:
		err = penstock.ErrClosed
	case s.outbox.dropped:
		err = fmt.Errorf("outbox %q: %w", s.req.Outbox, penstock.ErrNoOutbox)
	case s.sub != nil && s.sub.epoch != s.epoch:
		err = fmt.Errorf("subscription %q: %w", s.req.Subscription, penstock.ErrFenced)
	}
	if err != nil {
		s.store.db.Unlock()
	}
	return err
}

// Fetch implements penstock.Source.
func (s *source) Fetch(ctx context.Context, limit penstock.Limit) (penstock.Batch, error) {
	if err := s.enter(ctx); err != nil {
		return penstock.Batch{}, err
	}
	defer s.store.db.Unlock()
	s.next = max(s.next, s.outbox.base) // only an ephemeral reader can be behind
	batch := &openBatch{}
	size := 0
	add := func(m penstock.Message) bool {
		if n := len(batch.msgs); n > 0 && (n >= limit.Messages || size+m.Size() > limit.Bytes) {
			return false
		}
		size += m.Size()
		batch.msgs = append(batch.msgs, clone(m))
		return true
	}
	more := s.readRetries(add) || s.readLog(add)
	if len(batch.msgs) == 0 {
		return penstock.Batch{}, nil
	}
	s.number++
	batch.number, batch.end = s.number, s.next
	if s.sub != nil {
		s.open = append(s.open, batch)
	}
	return penstock.Batch{Messages: slices.Clone(batch.msgs), Number: batch.number, More: more}, nil
}

// readRetries adds the dead letters that were sent back, until add says that
// the batch is full; then it returns true.
func (s *source) readRetries(add func(penstock.Message) bool) (full bool) {
	if s.sub == nil {
		return false
	}
	for _, m := range s.sub.retries {
		if s.retried[m.Seq] {
			continue
		}
		if !add(m) {
			return true
		}
		s.retried[m.Seq] = true
	}
	return false
}

// readLog is readRetries for the log.
func (s *source) readLog(add func(penstock.Message) bool) (full bool) {
	for ; s.next < s.outbox.end(); s.next++ {
		if !add(s.outbox.log[s.next-s.outbox.base]) {
			return true
		}
	}
	return false
}

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

// apply moves the cursor past the leading batch.
func (s *source) apply(b *openBatch) {
	now := s.store.db.now()
	for i, m := range b.msgs {
		if s.retried[m.Seq] {
			delete(s.retried, m.Seq)
			s.sub.retries = slices.DeleteFunc(s.sub.retries, func(r penstock.Message) bool { return r.Seq == m.Seq })
		}
		if b.verdicts != nil && b.verdicts[i].Outcome == penstock.Dead {
			s.sub.dead = append(s.sub.dead, penstock.DeadLetter{Message: clone(m), Err: b.verdicts[i].Err, At: now})
		}
	}
	s.sub.cursor = b.end
	s.sub.settled += int64(len(b.msgs))
	s.sub.recent = slices.DeleteFunc(s.sub.recent, func(r settlement) bool { return now.Sub(r.at) >= time.Minute })
	s.sub.recent = append(s.sub.recent, settlement{now, len(b.msgs)})
}

// Renew implements penstock.Source.
func (s *source) Renew(ctx context.Context) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.store.db.Unlock()
	if s.sub != nil {
		s.sub.until = s.store.db.now().Add(s.req.Lease)
	}
	return nil
}

// Close implements penstock.Source; a second Close returns nil. It works on a
// closed store too: who has crashed is played by not calling it.
func (s *source) Close(context.Context) error {
	s.store.db.Lock()
	defer s.store.db.Unlock()
	if s.sub != nil && !s.closed && s.sub.epoch == s.epoch {
		s.sub.holder, s.sub.until = "", time.Time{}
	}
	s.closed = true
	return nil
}
