package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// querier is a transaction or a pool.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// measurement is how large an outbox was and how long the answer may be given.
type measurement struct {
	bytes int64
	until time.Time
}

// pages are those of tables and indexes that are measured together, and the values by which their
// measurement is remembered.
type pages struct {
	as    string
	parts []string
}

// size asks dbstat, which walks the pages. The answer holds for twenty times as long as it took.
// That is short for a small table, and takes at most a twentieth of a caller's time for a large
// one.
func (s *Store) size(ctx context.Context, on querier, what pages) (int64, error) {
	s.mu.Lock()
	m := s.sizes[what.as]
	s.mu.Unlock()
	began := time.Now()
	if began.Before(m.until) {
		return m.bytes, nil
	}
	m.bytes = 0
	for _, part := range what.parts {
		var bytes int64
		if err := on.QueryRowContext(ctx, `select coalesce(sum(pgsize), 0) from dbstat where name = ? and aggregate = 1`, part).Scan(&bytes); err != nil {
			return 0, fmt.Errorf("size of %q: %w", part, err)
		}
		m.bytes += bytes
	}
	if took := time.Since(began); took > 20*time.Millisecond {
		m.until = began.Add(20 * took)
	}
	s.mu.Lock()
	s.sizes[what.as] = m
	s.mu.Unlock()
	return m.bytes, nil
}

// forgetSize is for something that is dropped.
func (s *Store) forgetSize(what pages) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sizes, what.as)
}
