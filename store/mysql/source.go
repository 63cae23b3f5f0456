package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/penstock/penstock"
)

// source is one reader. What it has in flight is its own knowledge: whoever comes next begins
// with what has no entry.
type source struct {
	store *Store
	box   outbox
	req   penstock.Subscribe
	id    int64 // of the subscription, 0 when ephemeral
	epoch int64

	fetching sync.Mutex // one Fetch at a time
	low      time.Time  // nothing new is expected before
	swept    time.Time  // when it was last looked before low
	turn     origin     // of the last batch
	has      [origins]bool
	// perBucket is how many of each to read, if more than a few are to be: when all that waits is in few of them.
	perBucket int

	settling sync.Mutex // one Settle at a time
	attempt  int64      // number of the next one; its row in progress says that it happened, or will not
	unsure   []*part    // what was settled by the last attempt, if that has happened

	mu         sync.Mutex
	inFlight   map[int64]*flight // by seq; of an ephemeral reader what it has returned since low
	parkedKeys map[string]int    // in flight
	number     uint64            // of the last batch
	open       map[uint64]*openBatch
	ended      error // why there is nothing more to come
	closed     bool
}

// flight is a message that was returned and is not settled.
type flight struct {
	bucket  int
	ts      time.Time
	from    origin
	batch   uint64
	inOrder bool // of a parked key
}

// openBatch is what one Fetch returned, until it is settled.
type openBatch struct {
	msgs []penstock.Message
	left int
}

var _ penstock.Source = (*source)(nil)

// Subscribe implements penstock.Store. The outbox's row keeps others from making subscriptions or changing the retention.
func (s *Store) Subscribe(ctx context.Context, req penstock.Subscribe) (penstock.Source, error) {
	if err := req.Validate(); err != nil {
		return nil, err
	}
	src := &source{store: s, req: req, swept: time.Now(), inFlight: map[int64]*flight{}, parkedKeys: map[string]int{}, open: map[uint64]*openBatch{}}
	join := src.attach
	if req.Ephemeral {
		join = src.watch
	}
	if err := s.tx(ctx, func(t *tx) error { return join(ctx, t) }); err != nil {
		return nil, err
	}
	return src, nil
}

// words of the statements that a subscription has.
func (s *source) words(more words) words {
	w := words{"sub": s.id, "epoch": s.epoch, "attempt": s.attempt}
	for name, value := range more {
		w[name] = value
	}
	return w
}

func (s *source) sql(statement string, more words) string {
	return s.store.sql(statement, s.box.name, s.words(more))
}

// watch finds where an ephemeral reader begins: now is behind what it would find.
func (s *source) watch(ctx context.Context, t *tx) (err error) {
	if s.box, err = s.store.findOutbox(ctx, t, s.req.Outbox, ""); err != nil || s.req.Start == penstock.FromBeginning {
		return err
	}
	now := &batch{}
	now.read(func(rows *sql.Rows) error { return rows.Scan(&s.low) }, "select utc_timestamp(6)")
	if err := t.run(ctx, now); err != nil {
		return err
	}
	s.low = s.low.Add(-s.store.opts.Margin)
	b := &batch{}
	b.read(func(rows *sql.Rows) error {
		var seq int64
		f := &flight{}
		err := rows.Scan(&seq, &f.ts, &f.bucket)
		s.inFlight[seq] = f
		return err
	}, s.sql("select seq, ts, bucket from {table} where ts > "+at(s.low), nil))
	return t.run(ctx, b)
}

// attach takes the lease, of a subscription that it makes if there is none.
func (s *source) attach(ctx context.Context, t *tx) (err error) {
	if s.box, err = s.store.findOutbox(ctx, t, s.req.Outbox, "for update"); err != nil {
		return err
	}
	s.id = 0
	var held bool
	holder := penstock.HeldError{Subscription: s.req.Subscription}
	b, name := &batch{}, []byte(s.req.Subscription)
	b.read(func(rows *sql.Rows) error { return rows.Scan(&s.id, &holder.Holder, &holder.Until, &held) },
		s.sql("select id, holder, lease_until, lease_until > utc_timestamp(6) from {schema}.subscriptions where outbox_id = {outbox} and name = ? for update", words{"outbox": s.box.id}), name)
	if err := t.run(ctx, b); err != nil {
		return err
	}
	if held {
		return &holder
	}
	if s.id == 0 {
		if err := s.create(ctx, t); err != nil {
			return err
		}
	}
	b = &batch{}
	b.add(s.sql("update {schema}.subscriptions set epoch = epoch + 1, holder = ?, holder_since = utc_timestamp(6), lease_until = utc_timestamp(6) + interval {lease} microsecond where id = {sub}",
		words{"lease": s.req.Lease.Microseconds()}), []byte(s.req.Holder))
	b.read(func(rows *sql.Rows) error { return rows.Scan(&s.epoch, &s.low) }, s.sql("select epoch, low from {schema}.subscriptions where id = {sub}", nil))
	return t.run(ctx, b)
}

// create makes the subscription. What exists is settled for the others, or it is not: either way they note it from here on.
func (s *source) create(ctx context.Context, t *tx) error {
	b := &batch{}
	var others int64
	b.add(s.sql("update {schema}.subscriptions set marks = true where outbox_id = {outbox}", words{"outbox": s.box.id}))
	b.read(func(rows *sql.Rows) error { return rows.Scan(&others) }, s.sql("select count(*) from {schema}.subscriptions where outbox_id = {outbox}", words{"outbox": s.box.id}))
	b.add(s.sql("insert into {schema}.subscriptions (outbox_id, name, marks) values ({outbox}, ?, {retains} or (select c.n > 0 from (select count(*) as n from {schema}.subscriptions where outbox_id = {outbox}) c))",
		words{"outbox": s.box.id, "retains": s.box.retention != penstock.Retention{}}), []byte(s.req.Subscription))
	b.read(func(rows *sql.Rows) error { return rows.Scan(&s.id) }, "select last_insert_id()")
	if err := t.run(ctx, b); err != nil || s.req.Start != penstock.FromNow {
		return err
	}
	b = &batch{}
	b.add(s.sql("insert into {schema}.entries (subscription_id, seq, ts, state) select {sub}, seq, ts, 0 from {table}", nil))
	return t.run(ctx, b)
}

// update changes the subscription's row, if this reader still has the lease.
func (s *source) update(ctx context.Context, set string, args ...any) error {
	if err := s.usable(ctx); err != nil || s.id == 0 {
		return err
	}
	return s.store.explain(s.store.retries.Do(ctx, func() error {
		var mine, there bool
		b := &batch{}
		b.one(&there, s.sql("fence", nil), &mine)
		b.add(s.sql("update {schema}.subscriptions set "+set+" where id = {sub} and epoch = {epoch}", nil), args...)
		err := s.store.send(ctx, b)
		if err == nil && !mine {
			return s.gone(ctx, s.store)
		}
		return err
	}))
}

// Renew implements penstock.Source, and notes how far the reading has come: a settled message before that is not
// looked at again.
func (s *source) Renew(ctx context.Context) error {
	s.fetching.Lock()
	low := s.low
	s.fetching.Unlock()
	s.mu.Lock()
	for _, f := range s.inFlight {
		if f.from == fromLog && f.ts.Before(low) {
			low = f.ts.Add(-time.Microsecond)
		}
	}
	s.mu.Unlock()
	return s.update(ctx, fmt.Sprintf("lease_until = utc_timestamp(6) + interval %d microsecond, low = greatest(low, %s)", s.req.Lease.Microseconds(), at(low)))
}

// ReportSink implements penstock.SinkReporter.
func (s *source) ReportSink(ctx context.Context, down time.Time, why string) error {
	return s.update(ctx, "sink_epoch = epoch, sink_down = ?, sink_error = ?", timeOrNull(down), []byte(why))
}

// timeOrNull: the zero time is NULL.
func timeOrNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC()
}

// gone tells why the subscription's row is not there, or another's.
func (s *source) gone(ctx context.Context, on runner) error {
	there := false
	b := &batch{}
	b.read(func(rows *sql.Rows) error { return rows.Scan(&there) }, s.sql("select exists (select 1 from {schema}.outboxes where id = {outbox})", words{"outbox": s.box.id}))
	if err := on.run(ctx, b); err != nil {
		return err
	}
	if !there {
		return s.end(noOutbox(s.box.name))
	}
	return s.end(fmt.Errorf("subscription %q of outbox %q: %w", s.req.Subscription, s.box.name, penstock.ErrFenced))
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
	if err := s.store.use(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// Close implements penstock.Source. A second Close returns nil.
func (s *source) Close(ctx context.Context) error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}
	err := s.update(ctx, "holder = '', lease_until = '1970-01-01'")
	_ = s.end(penstock.ErrClosed)
	if errors.Is(err, penstock.ErrFenced) || errors.Is(err, penstock.ErrNoOutbox) {
		return nil // the lease is another reader's: nothing to give back
	}
	return err
}
