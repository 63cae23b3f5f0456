package portable

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

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

	shared         bool
	owned, leaving []int16 // buckets, of one that is shared; leaving are some of those owned

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

	mu       sync.Mutex
	inFlight map[int64]*flight // by seq; of an ephemeral reader what it has returned since low
	lines    map[string]int    // parked keys in flight
	number   uint64            // of the last batch
	open     map[uint64]*openBatch
	ended    error // why there is nothing more to come
	closed   bool
}

// flight is a message that was returned and is not settled.
type flight struct {
	bucket int16
	ts     time.Time
	from   origin
	batch  uint64
	line   bool // it is parked in order
}

// openBatch is what one Fetch returned, until it is settled.
type openBatch struct {
	msgs []penstock.Message
	left int
}

var _ penstock.Source = (*source)(nil)

// Subscribe implements penstock.Store. The outbox's row keeps others from making subscriptions or changing the retention.
func (s *Store) Subscribe(ctx context.Context, req penstock.Subscribe) (penstock.Source, error) {
	return s.subscribe(ctx, req, false)
}

func (s *Store) subscribe(ctx context.Context, req penstock.Subscribe, shared bool) (penstock.Source, error) {
	if err := req.Validate(); err != nil {
		return nil, err
	}
	src := &source{store: s, req: req, shared: shared, swept: time.Now(), inFlight: map[int64]*flight{}, lines: map[string]int{}, open: map[uint64]*openBatch{}}
	join := src.attach
	if req.Ephemeral {
		join = src.watch
	}
	if err := s.tx(ctx, func(tx pgx.Tx) error { return join(ctx, tx) }); err != nil {
		return nil, err
	}
	return src, nil
}

// watch finds where an ephemeral reader begins: now is behind what it would find.
func (s *source) watch(ctx context.Context, tx pgx.Tx) (err error) {
	if s.box, err = s.store.findOutbox(ctx, tx, s.req.Outbox, ""); err != nil || s.req.Start == penstock.FromBeginning {
		return err
	}
	if err := tx.QueryRow(ctx, "select clock_timestamp()").Scan(&s.low); err != nil {
		return err
	}
	s.low = s.low.Add(-s.store.opts.Margin)
	rows, err := tx.Query(ctx, s.store.sql("select seq, ts from {table} where ts > $1", s.box.name), s.low)
	if err != nil {
		return err
	}
	var seq int64
	var ts time.Time
	_, err = pgx.ForEachRow(rows, []any{&seq, &ts}, func() error { s.inFlight[seq] = &flight{ts: ts}; return nil })
	return err
}

// attach takes the lease, of a subscription that it makes if there is none.
func (s *source) attach(ctx context.Context, tx pgx.Tx) (err error) {
	if s.box, err = s.store.findOutbox(ctx, tx, s.req.Outbox, "for update"); err != nil {
		return err
	}
	sql := func(text string) string { return s.store.sql(text, s.box.name) }
	var held bool
	held2 := penstock.HeldError{Subscription: s.req.Subscription}
	err = tx.QueryRow(ctx, sql("select id, holder, lease_until, lease_until > clock_timestamp() from {schema}.subscriptions where outbox_id = $1 and name = $2 for update"),
		s.box.id, s.req.Subscription).Scan(&s.id, &held2.Holder, &held2.Until, &held)
	switch {
	case isNoRows(err):
		// What exists is settled for the others, or it is not: either way they note it from here on.
		done, err := tx.Exec(ctx, sql("update {schema}.subscriptions set marks = true where outbox_id = $1"), s.box.id)
		if err != nil {
			return err
		}
		marks := done.RowsAffected() > 0 || s.box.retention != penstock.Retention{}
		if err := tx.QueryRow(ctx, sql("insert into {schema}.subscriptions (outbox_id, name, marks) values ($1, $2, $3) returning id"), s.box.id, s.req.Subscription, marks).Scan(&s.id); err != nil {
			return err
		}
		if s.req.Start == penstock.FromNow {
			if _, err := tx.Exec(ctx, sql("insert into {schema}.entries (subscription_id, seq, bucket, ts, state) select $1, seq, bucket, ts, 0 from {table}"), s.id); err != nil {
				return err
			}
		}
	case err != nil:
		return err
	case held:
		return &held2
	}
	if s.shared {
		return s.join(ctx, tx)
	}
	err = tx.QueryRow(ctx, sql("select holder, lease_until from {schema}.members where subscription_id = $1 and lease_until > clock_timestamp() order by lease_until desc limit 1"), s.id).
		Scan(&held2.Holder, &held2.Until)
	if err == nil {
		return &held2
	}
	if !isNoRows(err) {
		return err
	}
	if _, err := tx.Exec(ctx, sql("delete from {schema}.members where subscription_id = $1"), s.id); err != nil {
		return err
	}
	return tx.QueryRow(ctx, sql("update {schema}.subscriptions set epoch = epoch + 1, holder = $2, holder_since = clock_timestamp(), lease_until = clock_timestamp() + $3 * interval '1 microsecond' where id = $1 returning epoch, low"),
		s.id, s.req.Holder, s.req.Lease.Microseconds()).Scan(&s.epoch, &s.low)
}

// update changes the subscription's row, if this reader still has the lease.
func (s *source) update(ctx context.Context, set string, args ...any) error {
	if err := s.usable(ctx); err != nil || s.id == 0 {
		return err
	}
	args = append([]any{s.id, s.epoch}, args...)
	return s.store.explain(s.store.retries.Do(ctx, func() error {
		done, err := s.store.pool.Exec(ctx, s.store.sql("update {schema}.subscriptions set "+set+" where id = $1 and epoch = $2", ""), args...)
		if err == nil && done.RowsAffected() == 0 {
			return s.gone(ctx)
		}
		return err
	}))
}

// Renew implements penstock.Source, and notes how far the reading has come: a settled message before that is not
// looked at again.
func (s *source) Renew(ctx context.Context) error {
	if s.shared {
		return s.renewShared(ctx)
	}
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
	return s.update(ctx, "lease_until = clock_timestamp() + $3 * interval '1 microsecond', low = greatest(low, $4)", s.req.Lease.Microseconds(), low)
}

// ReportSink implements penstock.SinkReporter.
func (s *source) ReportSink(ctx context.Context, down time.Time, why string) error {
	if s.shared {
		return nil // it is one of several
	}
	return s.update(ctx, "sink_epoch = epoch, sink_down = $3, sink_error = $4", orNullTime(down), why)
}

func orNullTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// gone tells why the subscription's row is not there, or another's.
func (s *source) gone(ctx context.Context) error {
	var there bool
	if err := s.store.pool.QueryRow(ctx, s.store.sql("select exists (select from {schema}.outboxes where id = $1)", ""), s.box.id).Scan(&there); err != nil {
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
	if err := s.store.ready(ctx); err != nil {
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
	var err error
	if s.shared {
		err = s.leave(ctx)
	} else {
		err = s.update(ctx, "holder = '', lease_until = '1970-01-01'")
	}
	_ = s.end(penstock.ErrClosed)
	if errors.Is(err, penstock.ErrFenced) || errors.Is(err, penstock.ErrNoOutbox) {
		return nil // the lease is another reader's: nothing to give back
	}
	return err
}
