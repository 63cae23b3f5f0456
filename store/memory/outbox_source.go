package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// source is one reader. What it has in flight is its own
// knowledge: when it goes, the next reader begins at what is durable.
type source struct {
	store    *Store
	outbox   *outbox
	sub      *subscription // nil when ephemeral
	req      driver.Subscribe
	epoch    int64
	next     int64            // the position to read on from
	inFlight map[parkedID]int // messages of each parked key
	replayed int              // how many of sub.replays were returned
	number   uint64           // of the last batch
	open     map[uint64]*openBatch
	closed   bool
}

var _ driver.Source = (*source)(nil)

// Subscribe implements driver.Store.
func (s *Store) Subscribe(ctx context.Context, req driver.Subscribe) (driver.Source, error) {
	if err := req.Validate(); err != nil {
		return nil, err
	}
	o, err := s.enterOutbox(ctx, req.Outbox)
	if err != nil {
		return nil, err
	}
	defer s.db.Unlock()
	start := o.base
	if req.Start == driver.FromNow {
		start = o.end()
	}
	src := &source{store: s, outbox: o, req: req, next: start, inFlight: map[parkedID]int{}, open: map[uint64]*openBatch{}}
	if req.Ephemeral {
		return src, nil
	}
	sub := o.subs[req.Subscription]
	if sub == nil {
		sub = &subscription{cursor: start, ahead: map[int64]bool{}, parked: map[parkedID]*parkedKey{}, deadLetters: map[int64]*deadLetter{}}
		o.subs[req.Subscription] = sub
	}
	now := s.db.now()
	if sub.holder != "" && now.Before(sub.until) {
		return nil, &penstock.HeldError{Subscription: req.Subscription, Holder: sub.holder, Until: sub.until}
	}
	sub.epoch++ // from here on the previous holder is fenced
	sub.holder, sub.since, sub.until = req.Holder, now, now.Add(req.Lease)
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
	case s.sub != nil && (s.sub.dropped || s.sub.epoch != s.epoch):
		err = fmt.Errorf("subscription %q: %w", s.req.Subscription, penstock.ErrFenced)
	}
	if err != nil {
		s.store.db.Unlock()
	}
	return err
}

// Renew implements driver.Source.
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

// Close implements driver.Source; a second Close returns nil. It works on a
// closed store too: who has crashed is played by not calling it.
func (s *source) Close(context.Context) error {
	s.store.db.Lock()
	defer s.store.db.Unlock()
	if s.sub != nil && !s.closed && s.sub.epoch == s.epoch {
		s.sub.holder, s.sub.since, s.sub.until = "", time.Time{}, time.Time{}
	}
	s.closed = true
	return nil
}

// ReportSink implements driver.SinkReporter.
func (s *source) ReportSink(ctx context.Context, down time.Time, why string) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.store.db.Unlock()
	if s.sub != nil {
		s.sub.sink = sinkState{s.sub.epoch, down.UTC(), why}
	}
	return nil
}
