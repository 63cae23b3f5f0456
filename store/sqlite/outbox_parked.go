package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/penstock/penstock"
)

// place is where a parked message is kept.
type place struct {
	line, number int64
	alone        bool
}

// lent is which lines were handed out, and how far the reading of due lines has
// come. Only Fetch touches it.
type lent struct {
	lines map[int64]bool
	// Lines are read in order of (due, id), from here on: what is lent is before
	// it, and is not passed over at every Fetch. What becomes due is behind it,
	// unless the transaction that said so committed after a Fetch that read later
	// lines; so now and then it starts anew.
	due, id int64
	restart time.Time // not before this
}

// restartEvery bounds how long such a line waits, and how often lines that are
// lent are passed over. A variable for tests.
var restartEvery = 100 * time.Millisecond

// takeBack learns from Settle what it did since the last Fetch. Doing so before
// the database is asked means: a line that is not lent is read as that Settle
// left it.
func (s *source) takeBack() {
	s.mu.Lock()
	returned := s.returned
	s.returned = nil
	s.mu.Unlock()
	for _, line := range returned {
		delete(s.lent.lines, line)
	}
}

// readParked reads lines that are due: first their heads, then what is behind
// them, but nothing behind a head that was refused before.
func (s *source) readParked(ctx context.Context, p *page, at sight) error {
	s.takeBack()
	if !at.parked {
		return nil
	}
	now := time.Now()
	if !now.Before(s.lent.restart) {
		s.lent.due, s.lent.id = 0, 0
		s.lent.restart = now.Add(restartEvery)
	}
	p.from = fromPark
	rests, err := s.readHeads(ctx, p, now)
	for _, head := range rests {
		if err != nil || p.full {
			break
		}
		err = s.readRest(ctx, p, head)
	}
	if len(p.parked) > 0 && s.lent.lines == nil {
		s.lent.lines = map[int64]bool{}
	}
	if err == nil {
		for _, at := range p.parked {
			s.lent.lines[at.line] = true
		}
	}
	return err
}

// follow is a head with others behind it that may come in the same batch.
type follow struct{ line, seq int64 }

func (s *source) readHeads(ctx context.Context, p *page, now time.Time) (rests []follow, err error) {
	rows, err := s.due.QueryContext(ctx, s.subID, now.UnixMicro(), s.lent.due, s.lent.id)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var r row
	var at place
	var due, alone int64
	var past string
	var followed bool
	dest := append([]any{&at.line, &due, &alone, &at.number, &past, &followed}, r.dest()...)
	lastDue, lastLine := s.lent.due, s.lent.id
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return nil, err
		}
		if s.lent.lines[at.line] {
			lastDue, lastLine = due, at.line
			continue
		}
		h, err := readHistory(past)
		if err != nil {
			return nil, err
		}
		at.alone = alone != 0
		if !p.addParked(&r, h, at) {
			break
		}
		if followed && !h.refused() {
			rests = append(rests, follow{at.line, r.seq})
		}
		lastDue, lastLine = due, at.line
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	s.lent.due, s.lent.id = lastDue, lastLine
	return rests, nil
}

func (s *source) readRest(ctx context.Context, p *page, head follow) error {
	rows, err := s.rest.QueryContext(ctx, head.line, head.seq, p.room())
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	var r row
	var past string
	at := place{line: head.line}
	dest := append([]any{&at.number, &past}, r.dest()...)
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		h, err := readHistory(past)
		if err != nil {
			return err
		}
		if h.refused() || !p.addParked(&r, h, at) {
			break
		}
	}
	return rows.Err()
}

// addParked takes a parked message if it fits.
func (p *page) addParked(r *row, h history, at place) bool {
	m := r.message(p.ids)
	m.Attempt, m.FailedSince = h.Attempts+1, h.Since
	if !p.add(&m) {
		return false
	}
	p.parked = append(p.parked, at)
	if at.alone {
		p.mark(len(p.msgs)-1, penstock.OutOfOrder)
	} else if p.lines != nil {
		p.mark(len(p.msgs)-1, penstock.InOrder)
	}
	return true
}

// release ends the holds of messages, and what waits for them is due.
func release(ctx context.Context, tx *sql.Tx, subID int64, seqs []int64, now int64) error {
	if len(seqs) == 0 {
		return nil
	}
	lines, err := readColumn[int64](ctx, tx, heldLinesSQL, subID, array(seqs))
	if err != nil || len(lines) == 0 {
		return err
	}
	if _, err := tx.ExecContext(ctx, `delete from penstock_holds where subscription_id = ? and seq in (select value from json_each(?))`, subID, array(seqs)); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, releaseSQL, now, array(lines)); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, endLinesSQL, array(lines))
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
