package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/penstock/penstock/driver"
)

// place is where a parked message is kept.
type place struct {
	key, number int64
	outOfOrder  bool
}

// inFlight is which parked keys were returned, and how far the reading of due ones has
// come. Only Fetch touches it.
type inFlight struct {
	keys map[int64]int // of their messages
	// Keys are read in order of (due, id), from here on: what is in flight is before
	// it, and is not passed over at every Fetch. What becomes due is behind it,
	// unless the transaction that said so committed after a Fetch that read later
	// keys; so now and then it starts anew.
	due, id int64
	restart time.Time // not before this
}

// restartEvery bounds how long such a key waits, and how often keys that are
// in flight are passed over. A variable for tests.
var restartEvery = 100 * time.Millisecond

// takeBack learns from Settle what it did since the last Fetch. Doing so before
// the database is asked means: a key that is not in flight is read as that Settle
// left it.
func (s *source) takeBack() {
	s.mu.Lock()
	returned := s.returned
	s.returned = nil
	s.mu.Unlock()
	for _, key := range returned {
		if n := s.inFlight.keys[key]; n > 1 {
			s.inFlight.keys[key] = n - 1
		} else {
			delete(s.inFlight.keys, key)
		}
	}
}

// readParked reads keys that are due: first their heads, then what is behind
// them, but nothing behind a head that was refused before.
func (s *source) readParked(ctx context.Context, p *page, at fetchable) error {
	s.takeBack()
	if !at.parked {
		return nil
	}
	now := time.Now()
	if !now.Before(s.inFlight.restart) {
		s.inFlight.due, s.inFlight.id = 0, 0
		s.inFlight.restart = now.Add(restartEvery)
	}
	p.from = fromPark
	rests, err := s.readHeads(ctx, p, now)
	for _, head := range rests {
		if err != nil || p.full {
			break
		}
		err = s.readRest(ctx, p, head)
	}
	if len(p.parked) > 0 && s.inFlight.keys == nil {
		s.inFlight.keys = map[int64]int{}
	}
	if err == nil {
		for _, at := range p.parked {
			s.inFlight.keys[at.key]++
		}
	}
	return err
}

// follow is a head with others behind it that may come in the same batch.
type follow struct{ key, seq int64 }

func (s *source) readHeads(ctx context.Context, p *page, now time.Time) (rests []follow, err error) {
	rows, err := s.due.QueryContext(ctx, s.subID, now.UnixMicro(), s.inFlight.due, s.inFlight.id)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var r row
	var at place
	var due, outOfOrder int64
	var past string
	var followed bool
	dest := append([]any{&at.key, &due, &outOfOrder, &at.number, &past, &followed}, r.dest()...)
	lastDue, lastKey := s.inFlight.due, s.inFlight.id
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return nil, err
		}
		if s.inFlight.keys[at.key] > 0 {
			lastDue, lastKey = due, at.key
			continue
		}
		h := readHistory(past)
		at.outOfOrder = outOfOrder != 0
		if !p.addParked(&r, h, at) {
			break
		}
		if followed && h.Attempt == 0 {
			rests = append(rests, follow{at.key, r.seq})
		}
		lastDue, lastKey = due, at.key
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	s.inFlight.due, s.inFlight.id = lastDue, lastKey
	return rests, nil
}

func (s *source) readRest(ctx context.Context, p *page, head follow) error {
	rows, err := s.rest.QueryContext(ctx, head.key, head.seq, p.room())
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	var r row
	var past string
	at := place{key: head.key}
	dest := append([]any{&at.number, &past}, r.dest()...)
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		h := readHistory(past)
		if h.Attempt > 0 || !p.addParked(&r, h, at) {
			break
		}
	}
	return rows.Err()
}

// addParked takes a parked message if it fits.
func (p *page) addParked(r *row, h history, at place) bool {
	m := r.message(p.ids)
	m.Attempt, m.FailedSince = h.Attempt+1, h.Since
	if !p.add(&m) {
		return false
	}
	p.parked = append(p.parked, at)
	if at.outOfOrder {
		p.setKeyOrder(len(p.msgs)-1, driver.OutOfOrder)
	} else if p.keyOrder != nil {
		p.setKeyOrder(len(p.msgs)-1, driver.InOrder)
	}
	return true
}

// release ends the holds of messages, and what waits for them is due.
func release(ctx context.Context, tx *sql.Tx, subID int64, seqs []int64, now int64) error {
	if len(seqs) == 0 {
		return nil
	}
	keys, err := readColumn[int64](ctx, tx, statement("held_keys"), subID, array(seqs))
	if err != nil || len(keys) == 0 {
		return err
	}
	if _, err := tx.ExecContext(ctx, `delete from penstock_holds where subscription_id = ? and seq in (select value from json_each(?))`, subID, array(seqs)); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, statement("release"), now, array(keys)); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, statement("end_keys"), array(keys))
	return err
}

// readColumn reads all rows of one column.
func readColumn[T any](ctx context.Context, tx *sql.Tx, query string, args ...any) (values []T, err error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var v T
		if err := rows.Scan(&v); err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, rows.Err()
}
