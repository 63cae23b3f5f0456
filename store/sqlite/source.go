package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/penstock/penstock"
)

// source is one reader. What it handed out and did not settle is its own
// knowledge: whoever comes next begins at the durable position.
type source struct {
	store *Store
	box   outbox
	req   penstock.Subscribe
	subID int64 // 0 when ephemeral
	epoch int64
	look  *sql.Stmt // at the subscription's row; nil when ephemeral
	fetch *sql.Stmt

	fetching sync.Mutex // one Fetch at a time
	next     int64      // the position to read on from
	retried  int64      // the last retry number handed out
	number   uint64     // of the last batch
	size     int        // messages in the last batch, a guess for the next

	settling sync.Mutex // one Settle at a time
	mu       sync.Mutex
	open     []*openBatch // in order; the leading one is not settled
	ended    error        // why there is nothing more to come
	closed   bool
}

var _ penstock.Source = (*source)(nil)

// Subscribe implements penstock.Store.
func (s *Store) Subscribe(ctx context.Context, req penstock.Subscribe) (penstock.Source, error) {
	if req.Lease <= 0 {
		req.Lease = penstock.DefaultLease
	}
	src := &source{store: s, req: req}
	join := src.attach
	in := s.write
	if req.Ephemeral {
		join, in = src.watch, s.read
	} else if req.Subscription == "" {
		return nil, &penstock.FieldError{Field: "subscription", Problem: "is empty", Hint: "name the subscription: its cursor is kept under the name"}
	}
	if err := in(ctx, join); err != nil {
		return nil, err
	}
	if err := src.prepare(ctx); err != nil {
		_ = src.Close(context.WithoutCancel(ctx))
		return nil, s.explain(err)
	}
	return src, nil
}

// prepare parses what every Fetch runs.
func (s *source) prepare(ctx context.Context) (err error) {
	if s.subID != 0 {
		if s.look, err = s.store.readers.PrepareContext(ctx, `select epoch, retries from penstock_subscriptions where id = ?`); err != nil {
			return err
		}
	}
	s.fetch, err = s.store.readers.PrepareContext(ctx, on(Table(s.box.name), fetchSQL))
	return err
}

// watch finds where an ephemeral reader begins.
func (s *source) watch(ctx context.Context, tx *sql.Tx) (err error) {
	if s.box, err = findOutbox(ctx, tx, s.req.Outbox); err == nil {
		s.next, err = s.start(ctx, tx)
	}
	return err
}

// start is the position before the first message of a new reader.
func (s *source) start(ctx context.Context, tx *sql.Tx) (int64, error) {
	first, last, err := s.box.extent(ctx, tx)
	if s.req.Start == penstock.FromNow {
		return last, err
	}
	return first - 1, err
}

// attach takes the lease and finds the position.
func (s *source) attach(ctx context.Context, tx *sql.Tx) (err error) {
	if s.box, err = findOutbox(ctx, tx, s.req.Outbox); err != nil {
		return err
	}
	var holder string
	var until int64
	err = tx.QueryRowContext(ctx, `select id, position, holder, epoch, lease_until from penstock_subscriptions where outbox_id = ? and name = ?`,
		s.box.id, s.req.Subscription).Scan(&s.subID, &s.next, &holder, &s.epoch, &until)
	now := time.Now().UnixMilli()
	switch {
	case errors.Is(err, sql.ErrNoRows):
		if s.next, err = s.start(ctx, tx); err != nil {
			return err
		}
		made, err := tx.ExecContext(ctx, `insert into penstock_subscriptions (outbox_id, name, position) values (?, ?, ?)`,
			s.box.id, s.req.Subscription, s.next)
		if err != nil {
			return err
		}
		if s.subID, err = made.LastInsertId(); err != nil {
			return err
		}
	case err != nil:
		return err
	case now < until:
		return &penstock.HeldError{Subscription: s.req.Subscription, Holder: holder, Until: time.UnixMilli(until)}
	}
	s.epoch++ // from here on the previous holder is fenced
	_, err = tx.ExecContext(ctx, `update penstock_subscriptions set holder = ?, epoch = ?, lease_until = ? where id = ?`,
		s.req.Holder, s.epoch, now+s.req.Lease.Milliseconds(), s.subID)
	return err
}

// Fetch implements penstock.Source.
func (s *source) Fetch(ctx context.Context, limit penstock.Limit) (penstock.Batch, error) {
	if err := s.usable(ctx); err != nil {
		return penstock.Batch{}, err
	}
	s.fetching.Lock()
	defer s.fetching.Unlock()
	// Not cancelled half way: a page takes milliseconds, and watching a context
	// costs a fifth of the throughput.
	ctx = context.WithoutCancel(ctx)
	p := page{limit: limit, uid: s.box.uid, end: s.next, retried: s.retried}
	if limit.Messages > 0 {
		p.msgs = make([]penstock.Message, 0, min(limit.Messages, 2*s.size+16))
	}
	if s.subID != 0 {
		if err := s.readRetries(ctx, &p); err != nil {
			return penstock.Batch{}, s.failed(err)
		}
	}
	if !p.full {
		rows, err := s.fetch.QueryContext(ctx, s.next, p.room())
		if err != nil {
			return penstock.Batch{}, s.failed(err)
		}
		if err := p.readLog(rows); err != nil {
			return penstock.Batch{}, s.failed(err)
		}
	}
	s.size = len(p.msgs)
	if len(p.msgs) == 0 {
		return penstock.Batch{}, nil
	}
	s.number++
	if s.subID != 0 {
		s.mu.Lock()
		s.open = append(s.open, p.batch(s.number))
		s.mu.Unlock()
	}
	s.next, s.retried = p.end, p.retried
	return penstock.Batch{Messages: p.msgs, Number: s.number, More: p.full}, nil
}

// readRetries looks at the subscription's row, which also tells a reader that
// was fenced before it sends more, and reads the dead letters sent back.
func (s *source) readRetries(ctx context.Context, p *page) error {
	var epoch, retries int64
	err := s.look.QueryRowContext(ctx, s.subID).Scan(&epoch, &retries)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return s.end(noOutbox(s.box.name))
	case err != nil:
		return err
	case epoch != s.epoch:
		return s.end(s.fenced())
	case retries <= s.retried:
		return nil
	}
	rows, err := s.store.readers.QueryContext(ctx, fetchRetriesSQL, s.subID, s.retried, p.room())
	if err != nil {
		return err
	}
	return p.readRetries(rows)
}

// Renew implements penstock.Source.
func (s *source) Renew(ctx context.Context) error {
	if err := s.usable(ctx); err != nil || s.subID == 0 {
		return err
	}
	return s.store.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		done, err := tx.ExecContext(ctx, `update penstock_subscriptions set lease_until = ? where id = ? and epoch = ?`,
			time.Now().Add(s.req.Lease).UnixMilli(), s.subID, s.epoch)
		if err != nil {
			return err
		}
		return s.mine(ctx, tx, done)
	})
}

// mine checks that a statement with "where id = ? and epoch = ?" found the row.
func (s *source) mine(ctx context.Context, tx *sql.Tx, done sql.Result) error {
	if n, err := done.RowsAffected(); err != nil || n == 1 {
		return err
	}
	var epoch int64
	err := tx.QueryRowContext(ctx, `select epoch from penstock_subscriptions where id = ?`, s.subID).Scan(&epoch)
	if errors.Is(err, sql.ErrNoRows) {
		return s.end(noOutbox(s.box.name))
	}
	if err != nil {
		return err
	}
	return s.end(s.fenced())
}

func (s *source) fenced() error {
	return fmt.Errorf("subscription %q of outbox %q: %w", s.req.Subscription, s.box.name, penstock.ErrFenced)
}

// end remembers why this source is no use any more; the first reason stays.
func (s *source) end(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == nil {
		s.ended = err
	}
	return s.ended
}

func (s *source) usable(ctx context.Context) error {
	if err := s.store.ready(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// failed explains an error of a read. What was closed meanwhile says so; a table
// that has gone away was dropped.
func (s *source) failed(err error) error {
	if ended := s.usable(context.Background()); ended != nil {
		return ended
	}
	err = s.store.explain(err)
	if errors.Is(err, penstock.ErrNotMigrated) {
		return noOutbox(s.box.name)
	}
	return err
}

// Close implements penstock.Source. A second Close returns nil.
func (s *source) Close(ctx context.Context) error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	if s.ended == nil {
		s.ended = penstock.ErrClosed
	}
	s.mu.Unlock()
	if closed {
		return nil
	}
	for _, statement := range []*sql.Stmt{s.look, s.fetch} {
		if statement != nil {
			_ = statement.Close()
		}
	}
	if s.subID == 0 {
		return nil
	}
	return s.store.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		// No row means that the lease is another reader's: nothing to give back.
		_, err := tx.ExecContext(ctx, `update penstock_subscriptions set holder = '', lease_until = 0 where id = ? and epoch = ?`, s.subID, s.epoch)
		return err
	})
}
