package sqlite

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/tables"
)

// retained returns the seq up to which messages may go, low or a lower one,
// where everything up to low is settled. first is the first that no subscription needs.
func (s *Store) retained(ctx context.Context, box *tables.Outbox, first, low int64) (int64, error) {
	r := box.Retention
	if r == (admin.Retention{}) {
		return low, nil
	}
	free := first - 1
	b := &tables.Batch{}
	if r.Age > 0 { // reads the messages that it lets go, and stops at the first that is young
		b.Row(new(bool), "select coalesce((select seq - 1 from {table} where seq >= {first} and seq <= {last} and created_at > {then} order by seq limit 1), {last})",
			box.Args(tables.Args{"first": first, "last": low, "then": time.Now().Add(-r.Age).UnixMilli()}), &free)
	}
	if err := (onTables{s}).Run(ctx, b); err != nil || r.Bytes == 0 {
		return free, err
	}
	beyond, err := s.ledgerOf(box.Name).beyond(ctx, onTables{s}, box, first, low)
	return max(free, beyond), err
}

// ledger is a process's knowledge of an outbox that it maintains: up to where it has reclaimed, and the size of settled messages, piece by piece. Each
// message is measured once. A process sees which pieces are gone, whichever process has deleted them.
type ledger struct {
	reclaimed tables.Passed // seqs, as microseconds

	mu     sync.Mutex
	upTo   int64 // measured so far
	pieces []piece
}

func (s *Store) ledgerOf(outbox string) *ledger {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.ledgers[outbox]
	if l == nil {
		l = &ledger{}
		s.ledgers[outbox] = l
	}
	return l
}

// forget is for an outbox that is dropped: a new one may have its name.
func (s *Store) forget(outbox string) {
	s.forgetSize(outboxPages(outbox))
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ledgers, outbox)
}

// piece is some messages in a row.
type piece struct {
	last  int64
	bytes int64
}

// pieces are a share of the retained messages, so messages stay that much longer.
const pieces = 64

// measured is how many messages one Maintain measures for the ledger.
const measured = 100_000

// beyond returns the last seq that is settled and beyond the retention's bytes.
func (l *ledger) beyond(ctx context.Context, on tables.Runner, box *tables.Outbox, first, low int64) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.measure(ctx, on, box, max(first-1, l.upTo), low); err != nil {
		return 0, err
	}
	l.pieces = slices.DeleteFunc(l.pieces, func(p piece) bool { return p.last < first })
	var total int64
	for _, p := range l.pieces {
		total += p.bytes
	}
	last := first - 1
	for _, p := range l.pieces {
		if total -= p.bytes; total < box.Retention.Bytes {
			break // without this one too little would be kept
		}
		last = p.last
	}
	return last, nil
}

// measure adds messages that were settled meanwhile.
func (l *ledger) measure(ctx context.Context, on tables.Runner, box *tables.Outbox, after, low int64) error {
	l.upTo = after
	b := new(tables.Batch).Rows(func(scan tables.Scan) error {
		var size int64
		if err := scan(&l.upTo, &size); err != nil {
			return err
		}
		if n := len(l.pieces); n > 0 && l.pieces[n-1].bytes+size <= box.Retention.Bytes/pieces {
			l.pieces[n-1].last = l.upTo
			l.pieces[n-1].bytes += size
		} else {
			l.pieces = append(l.pieces, piece{l.upTo, size})
		}
		return nil
	}, `select seq, 40 + length(payload) + length(topic) + coalesce(length(id), 0) + coalesce(length(key), 0) + coalesce(length(headers), 0)
		from {table} where seq > {after} and seq <= {last} order by seq limit {most}`, box.Args(tables.Args{"after": after, "last": low, "most": measured}))
	return on.Run(ctx, b)
}
