package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/seqset"
)

// source is one reader. Only the source knows how far it has read: the next one begins at the
// durable position.
type source struct {
	store *Store
	box   outbox
	req   driver.Subscribe
	subID int64 // 0 when ephemeral
	epoch int64
	statements

	fetching sync.Mutex // one Fetch at a time
	next     int64      // the position in the log to read on from,
	before   seqset.Set // but for these, which a reader before has settled
	replay   replay     // that is being read
	inFlight inFlight   // parked keys
	turn     origin     // of the last batch
	size     int        // messages in the last batch, a guess for the next

	mu       sync.Mutex
	number   uint64  // of the last batch
	returned []int64 // keys of parked messages that were settled since the last Fetch
	spent    spent
	ended    error // why there is nothing more to come
	closed   bool
}

var _ driver.Source = (*source)(nil)

// Subscribe implements driver.Store.
func (s *Store) Subscribe(ctx context.Context, req driver.Subscribe) (driver.Source, error) {
	req.SetDefaults()
	if err := req.Validate(); err != nil {
		return nil, err
	}
	src := &source{store: s, req: req}
	join := src.attach
	in := s.write
	if req.Ephemeral {
		join, in = src.watch, s.read
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

// statements are what every Fetch runs, parsed once.
type statements struct {
	fetchable, log, waiting, behind, due, rest, again *sql.Stmt
}

func (s *source) prepare(ctx context.Context) (err error) {
	table := Table(s.box.name)
	texts := map[**sql.Stmt]string{&s.log: statement("fetch")}
	if s.subID != 0 {
		texts[&s.fetchable] = statement("fetchable")
		texts[&s.waiting] = `select exists (select 1 from {table} where seq > ?)`
		texts[&s.behind] = statement("behind")
		texts[&s.due] = statement("due_keys")
		texts[&s.rest] = statement("rest_of_key")
		texts[&s.again] = statement("fetch_replay")
	}
	for to, text := range texts {
		if *to, err = s.store.readers.PrepareContext(ctx, on(table, text)); err != nil {
			return err
		}
	}
	return nil
}

func (s *statements) close() {
	for _, statement := range []*sql.Stmt{s.fetchable, s.log, s.waiting, s.behind, s.due, s.rest, s.again} {
		if statement != nil {
			_ = statement.Close()
		}
	}
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
	if s.req.Start == driver.FromNow {
		return last, err
	}
	return first - 1, err
}

// attach takes the lease and finds the position.
func (s *source) attach(ctx context.Context, tx *sql.Tx) (err error) {
	if s.box, err = findOutbox(ctx, tx, s.req.Outbox); err != nil {
		return err
	}
	var holder, ahead string
	var until int64
	err = tx.QueryRowContext(ctx, `select id, position, ahead, holder, epoch, lease_until from penstock_subscriptions where outbox_id = ? and name = ?`,
		s.box.id, s.req.Subscription).Scan(&s.subID, &s.next, &ahead, &holder, &s.epoch, &until)
	now := time.Now()
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
	case now.UnixMicro() < until:
		return &penstock.HeldError{Subscription: s.req.Subscription, Holder: holder, Until: time.UnixMicro(until)}
	}
	if s.before, err = readRanges(cmp.Or(ahead, "[]"), nil); err != nil {
		return err
	}
	s.epoch++ // from here on the previous holder is fenced
	_, err = tx.ExecContext(ctx, `update penstock_subscriptions set holder = ?, holder_since = ?, epoch = ?, settles = 0, lease_until = ? where id = ?`,
		s.req.Holder, now.UnixMicro(), s.epoch, now.Add(s.req.Lease).UnixMicro(), s.subID)
	return err
}

// Renew implements driver.Source.
func (s *source) Renew(ctx context.Context) error {
	if err := s.usable(ctx); err != nil || s.subID == 0 {
		return err
	}
	return s.store.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		done, err := tx.ExecContext(ctx, `update penstock_subscriptions set lease_until = ? where id = ? and epoch = ?`,
			time.Now().Add(s.req.Lease).UnixMicro(), s.subID, s.epoch)
		if err != nil {
			return err
		}
		if err := s.mine(ctx, tx, done); err != nil {
			return err
		}
		return s.endReplay(ctx, tx)
	})
}

// ReportSink implements driver.SinkReporter.
func (s *source) ReportSink(ctx context.Context, down time.Time, why string) error {
	if err := s.usable(ctx); err != nil || s.subID == 0 {
		return err
	}
	var since int64
	if !down.IsZero() {
		since = down.UnixMicro()
	}
	return s.store.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		done, err := tx.ExecContext(ctx, `update penstock_subscriptions set sink_epoch = epoch, sink_down = ?, sink_error = ? where id = ? and epoch = ?`,
			since, why, s.subID, s.epoch)
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
		return s.gone(ctx, tx)
	}
	if err != nil {
		return err
	}
	return s.end(s.fenced())
}

// gone tells why the subscription's row is not there: it was dropped, or its
// outbox was.
func (s *source) gone(ctx context.Context, q querier) error {
	var found int
	err := q.QueryRowContext(ctx, `select 1 from penstock_outboxes where id = ?`, s.box.id).Scan(&found)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return s.end(noOutbox(s.box.name))
	case err != nil:
		return err
	}
	return s.end(s.fenced())
}

func (s *source) fenced() error {
	return fmt.Errorf("subscription %q of outbox %q: %w", s.req.Subscription, s.box.name, penstock.ErrFenced)
}

// end remembers why this source cannot be used any more; the first reason stays.
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

// failed explains an error of a read. A source that was closed meanwhile says so. If a table is
// missing, it was dropped.
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

// Close implements driver.Source. A second Close returns nil.
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
	s.statements.close()
	if s.subID == 0 {
		return nil
	}
	return s.store.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		// No row means that the lease is another reader's: nothing to give back.
		_, err := tx.ExecContext(ctx, `update penstock_subscriptions set holder = '', lease_until = 0 where id = ? and epoch = ?`, s.subID, s.epoch)
		return err
	})
}
