package sqlite

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/penstock/penstock/admin"
)

// SetRetention implements driver.Operator.
func (s *Store) SetRetention(ctx context.Context, name string, r admin.Retention) error {
	if err := r.Validate(); err != nil {
		return err
	}
	return s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		box, err := findOutbox(ctx, tx, name)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `update penstock_outboxes set retention_age = ?, retention_bytes = ? where id = ?`, int64(r.Age), r.Bytes, box.id)
		return err
	})
}

// retained returns the seq up to which messages may go, low or a lower one,
// where everything up to low is settled.
func (s *Store) retained(ctx context.Context, tx *sql.Tx, box outbox, first, low int64) (int64, error) {
	r := box.retention
	if r == (admin.Retention{}) || low < first {
		return low, nil
	}
	free := first - 1
	if r.Age > 0 {
		// Reads what it lets go, and stops at the first that is young.
		err := tx.QueryRowContext(ctx, on(Table(box.name), `select coalesce((select seq - 1 from {table} where seq <= ? and created_at > ? order by seq limit 1), ?)`),
			low, time.Now().Add(-r.Age).UnixMilli(), low).Scan(&free)
		if err != nil {
			return 0, err
		}
	}
	if r.Bytes > 0 {
		beyond, err := s.beyond(ctx, tx, box, first, low)
		if err != nil {
			return 0, err
		}
		free = max(free, beyond)
	}
	return free, nil
}

// ledger is the size of an outbox's settled messages, piece by piece. Each message is measured once
// by each process that maintains its outbox. Each process sees which pieces are gone, whichever of
// them deleted them.
type ledger struct {
	upTo   int64 // measured so far
	pieces []piece
}

// piece is some messages in a row.
type piece struct {
	last  int64
	bytes int64
}

// pieces are a share of what is retained, so messages stay that much longer.
const pieces = 64

// measured is how many messages one Maintain measures for the ledger.
const measured = 100_000

// beyond returns the last seq that is settled and beyond the retention's bytes.
func (s *Store) beyond(ctx context.Context, tx *sql.Tx, box outbox, first, low int64) (int64, error) {
	s.mu.Lock()
	l := s.ledgers[box.ids.UID]
	s.mu.Unlock()
	l.pieces = slices.Clone(l.pieces)
	if err := l.measure(ctx, tx, box, max(first-1, l.upTo), low); err != nil {
		return 0, err
	}
	l.pieces = slices.DeleteFunc(l.pieces, func(p piece) bool { return p.last < first })
	s.mu.Lock()
	s.ledgers[box.ids.UID] = l
	s.mu.Unlock()
	var total int64
	for _, p := range l.pieces {
		total += p.bytes
	}
	last := first - 1
	for _, p := range l.pieces {
		if total -= p.bytes; total < box.retention.Bytes {
			break // without this one too little would be kept
		}
		last = p.last
	}
	return last, nil
}

// measure adds messages that were settled meanwhile.
func (l *ledger) measure(ctx context.Context, tx *sql.Tx, box outbox, after, low int64) error {
	l.upTo = after
	rows, err := tx.QueryContext(ctx, on(Table(box.name), `select seq, 40 + length(payload) + length(topic) + coalesce(length(id), 0) + coalesce(length(key), 0) + coalesce(length(headers), 0)
		from {table} where seq > ? and seq <= ? order by seq limit ?`), after, low, measured)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var size int64
		if err := rows.Scan(&l.upTo, &size); err != nil {
			return err
		}
		if n := len(l.pieces); n > 0 && l.pieces[n-1].bytes+size <= box.retention.Bytes/pieces {
			l.pieces[n-1].last = l.upTo
			l.pieces[n-1].bytes += size
		} else {
			l.pieces = append(l.pieces, piece{l.upTo, size})
		}
	}
	return rows.Err()
}
