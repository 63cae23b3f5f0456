package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/penstock/penstock/driver"
)

// origin is where the messages of a batch are from. They take turns, so that
// neither a replay nor a thousand parked keys keep new messages waiting.
type origin uint8

const (
	fromLog origin = iota
	fromPark
	fromReplay
	origins
)

// fetchable is what a Fetch sees before it reads.
type fetchable struct {
	parked bool  // there are parked keys
	replay int64 // the first one that is not read yet, 0 without any
}

// Fetch implements driver.Source.
func (s *source) Fetch(ctx context.Context, limit driver.Limit) (driver.Batch, error) {
	if err := limit.Validate(); err != nil {
		return driver.Batch{}, err
	}
	if err := s.usable(ctx); err != nil {
		return driver.Batch{}, err
	}
	s.fetching.Lock()
	defer s.fetching.Unlock()
	// Not cancelled half way: a page takes milliseconds, and watching a context
	// costs a fifth of the throughput.
	ctx = context.WithoutCancel(ctx)
	p, more, err := s.read(ctx, limit)
	if err != nil {
		return driver.Batch{}, s.failed(err)
	}
	s.size = len(p.msgs)
	if len(p.msgs) == 0 {
		return driver.Batch{}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number++
	return driver.Batch{Messages: p.msgs, KeyOrder: p.keyOrder, Number: s.number, More: more, Source: p.fetched()}, nil
}

// read fills a page from the origin whose turn it is and that has rows.
func (s *source) read(ctx context.Context, limit driver.Limit) (p *page, more bool, err error) {
	p = newPage(s.box.ids, limit, s.size)
	if s.subID == 0 {
		err = s.readLog(ctx, p, fetchable{})
		return p, p.full, err
	}
	at, err := s.readFetchable(ctx)
	if err != nil {
		return p, false, err
	}
	for range origins {
		s.turn = (s.turn + 1) % origins
		switch s.turn {
		case fromLog:
			err = s.readLog(ctx, p, at)
		case fromPark:
			err = s.readParked(ctx, p, at)
		case fromReplay:
			err = s.readReplay(ctx, p, at)
		}
		if err != nil || len(p.msgs) > 0 {
			break
		}
	}
	if err != nil {
		return p, false, err
	}
	more = p.full || at.replay != 0 && s.turn != fromReplay
	if !more && s.turn != fromLog {
		// A hint only. An error here must not lose the page, whose keys are in flight.
		_ = s.waiting.QueryRowContext(ctx, s.next).Scan(&more)
	}
	return p, more, nil
}

// readFetchable reads the subscription's row, which also tells a reader that was
// fenced before it sends more.
//
// It comes before all other statements of the Fetch, and each of them sees the rows that are
// committed when it runs. So a key that was parked when the Fetch began is found, unless it was
// released meanwhile.
func (s *source) readFetchable(ctx context.Context) (at fetchable, err error) {
	var epoch int64
	err = s.fetchable.QueryRowContext(ctx, s.subID, s.replay.id).Scan(&epoch, &at.parked, &at.replay)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return at, s.gone(ctx, s.store.readers)
	case err == nil && epoch != s.epoch:
		return at, s.end(s.fenced())
	}
	if err == nil && s.replay.unread {
		at.replay = s.replay.id
	}
	return at, err
}

// readLog reads what is new.
func (s *source) readLog(ctx context.Context, p *page, at fetchable) error {
	next, err := p.readOn(s.next, s.before, func(after int64, limit int) (*sql.Rows, error) { return s.log.QueryContext(ctx, after, limit) })
	if err != nil {
		return err
	}
	if len(p.msgs) > 0 {
		if err := s.setBehindParked(ctx, p, at); err != nil {
			return err
		}
	}
	p.from, p.end, s.next = fromLog, next, next
	return nil
}

// setBehindParked finds the messages of a page whose keys are parked. The database
// does the comparing, so nothing here grows with the number of parked keys, and
// without any it costs nothing.
func (s *source) setBehindParked(ctx context.Context, p *page, at fetchable) error {
	if !at.parked {
		return nil
	}
	rows, err := s.behind.QueryContext(ctx, p.msgs[0].Seq, p.msgs[len(p.msgs)-1].Seq, s.subID)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	i := 0
	for rows.Next() {
		var seq int64
		if err := rows.Scan(&seq); err != nil {
			return err
		}
		for i < len(p.msgs) && p.msgs[i].Seq < seq {
			i++
		}
		if i < len(p.msgs) && p.msgs[i].Seq == seq { // a replay leaves some out
			p.setKeyOrder(i, driver.BehindParked)
		}
	}
	return rows.Err()
}
