package mysql

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/retry"
	"github.com/penstock/penstock/internal/tables"
)

// source is one reader.
type source struct {
	*tables.Reader
	store *Store
}

var _ driver.Source = (*source)(nil)

// Ready implements tables.Reading.
func (s *source) Ready(ctx context.Context) error { return s.store.use(ctx) }

// Explain implements tables.Reading.
func (s *source) Explain(err error) error { return s.store.explain(err) }

// Missing implements tables.Reading.
func (s *source) Missing(err error) bool { return onTables{s.store}.Missing(err) }

// Retries implements tables.Reading.
func (s *source) Retries() *retry.Counter { return &s.store.retries }

// Subscribe implements driver.Store. The outbox's row keeps others from making subscriptions or changing the retention.
func (s *Store) Subscribe(ctx context.Context, req driver.Subscribe) (driver.Source, error) {
	if err := req.Validate(); err != nil {
		return nil, err
	}
	src := &source{store: s}
	src.Reader = tables.NewReader(src, req)
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
	w := words{"sub": s.ID, "epoch": s.Epoch, "holder": "x'" + hex.EncodeToString([]byte(s.Req.Holder)) + "'", "attempt": s.Attempt}
	for name, text := range s.Box.Words {
		w[name] = string(text)
	}
	for name, value := range more {
		w[name] = value
	}
	return w
}

func (s *source) sql(statement string, more words) string {
	return s.store.sql(statement, s.Box.Name, s.words(more))
}

// watch finds where an ephemeral reader begins: now is behind what it would find.
func (s *source) watch(ctx context.Context, t *tx) (err error) {
	if s.Box, err = s.store.findOutbox(ctx, onTx{t, s.store}, s.Req.Outbox, ""); err != nil || s.Req.Start == driver.FromBeginning {
		return err
	}
	now := &batch{}
	now.read(func(rows *sql.Rows) error { return rows.Scan(&s.Low) }, "select utc_timestamp(6)")
	if err := t.run(ctx, now); err != nil {
		return err
	}
	s.Low = s.Low.Add(-s.store.opts.Margin)
	b := &batch{}
	b.read(func(rows *sql.Rows) error {
		var seq int64
		var f tables.Flight
		err := rows.Scan(&seq, &f.TS, &f.Bucket)
		s.Passes(seq, f)
		return err
	}, s.sql("select seq, ts, bucket from {table} where ts > "+at(s.Low), nil))
	return t.run(ctx, b)
}

// attach takes the lease, of a subscription that it makes if there is none.
func (s *source) attach(ctx context.Context, t *tx) (err error) {
	if s.Box, err = s.store.findOutbox(ctx, onTx{t, s.store}, s.Req.Outbox, "for update"); err != nil {
		return err
	}
	s.ID = 0
	var held bool
	holder := penstock.HeldError{Subscription: s.Req.Subscription}
	b, name := &batch{}, []byte(s.Req.Subscription)
	b.read(func(rows *sql.Rows) error { return rows.Scan(&s.ID, &holder.Holder, &holder.Until, &held) },
		s.sql("select id, holder, lease_until, lease_until > utc_timestamp(6) from {schema}.subscriptions where outbox_id = {outbox} and name = ? for update", words{"outbox": s.Box.ID}), name)
	if err := t.run(ctx, b); err != nil {
		return err
	}
	if held {
		return &holder
	}
	if s.ID == 0 {
		if err := s.create(ctx, t); err != nil {
			return err
		}
	}
	b = &batch{}
	b.add(s.sql("update {schema}.subscriptions set epoch = epoch + 1, holder = ?, holder_since = utc_timestamp(6), lease_until = utc_timestamp(6) + interval {lease} microsecond where id = {sub}",
		words{"lease": s.Req.Lease.Microseconds()}), []byte(s.Req.Holder))
	b.read(func(rows *sql.Rows) error { return rows.Scan(&s.Epoch, &s.Low) }, s.sql("select epoch, low from {schema}.subscriptions where id = {sub}", nil))
	return t.run(ctx, b)
}

// create makes the subscription. What exists is settled for the others, or it is not: either way they note it from here on.
func (s *source) create(ctx context.Context, t *tx) error {
	b := &batch{}
	var others int64
	b.add(s.sql("update {schema}.subscriptions set keeps_settled = true where outbox_id = {outbox}", words{"outbox": s.Box.ID}))
	b.read(func(rows *sql.Rows) error { return rows.Scan(&others) }, s.sql("select count(*) from {schema}.subscriptions where outbox_id = {outbox}", words{"outbox": s.Box.ID}))
	b.add(s.sql("insert into {schema}.subscriptions (outbox_id, name, keeps_settled) values ({outbox}, ?, {retains} or (select c.n > 0 from (select count(*) as n from {schema}.subscriptions where outbox_id = {outbox}) c))",
		words{"outbox": s.Box.ID, "retains": s.Box.Retention != admin.Retention{}}), []byte(s.Req.Subscription))
	b.read(func(rows *sql.Rows) error { return rows.Scan(&s.ID) }, "select last_insert_id()")
	if err := t.run(ctx, b); err != nil || s.Req.Start != driver.FromNow {
		return err
	}
	b = &batch{}
	b.add(s.sql("insert into {schema}.entries (subscription_id, seq, ts, state) select {sub}, seq, ts, 0 from {table}", nil))
	return t.run(ctx, b)
}

// update changes the subscription's row, if this reader still has the lease.
func (s *source) update(ctx context.Context, set string, args ...any) error {
	if err := s.Usable(ctx); err != nil || s.ID == 0 {
		return err
	}
	return s.store.explain(s.store.retries.Do(ctx, func() error {
		var mine, there bool
		b := &batch{}
		b.one(&there, s.sql("fence", nil), &mine)
		b.add(s.sql("update {schema}.subscriptions set "+set+" where id = {sub} and epoch = {epoch} and holder = {holder}", nil), args...)
		err := s.store.send(ctx, b)
		if err == nil && !mine {
			return s.gone(ctx, s.store)
		}
		return err
	}))
}

// Renew implements driver.Source, and notes how far the reading has come: a settled message before that is not
// looked at again.
func (s *source) Renew(ctx context.Context) error {
	return s.update(ctx, fmt.Sprintf("lease_until = utc_timestamp(6) + interval %d microsecond, low = greatest(low, %s)", s.Req.Lease.Microseconds(), at(s.SettledTo())))
}

// ReportSink implements driver.SinkReporter.
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

func nullTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// gone tells why the subscription's row is not there, or another's.
func (s *source) gone(ctx context.Context, on runner) error {
	if s.Box.Adopted != nil {
		return s.Gone(true)
	}
	there := false
	b := &batch{}
	b.read(func(rows *sql.Rows) error { return rows.Scan(&there) }, s.sql("select exists (select 1 from {schema}.outboxes where id = {outbox})", words{"outbox": s.Box.ID}))
	if err := on.run(ctx, b); err != nil {
		return err
	}
	return s.Gone(there)
}

// Leave implements tables.Reading.
func (s *source) Leave(ctx context.Context) error {
	return s.update(ctx, "holder = '', lease_until = '1970-01-01'")
}
