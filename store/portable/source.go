package portable

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

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

	shared         bool
	owned, leaving []int16 // buckets, of one that is shared; leaving are some of those owned
}

var _ driver.Source = (*source)(nil)

// Ready implements tables.Reading.
func (s *source) Ready(ctx context.Context) error { return s.store.ready(ctx) }

// Explain implements tables.Reading.
func (s *source) Explain(err error) error { return s.store.explain(err) }

// Missing implements tables.Reading.
func (s *source) Missing(err error) bool { return onTables{s.store}.Missing(err) }

// Retries implements tables.Reading.
func (s *source) Retries() *retry.Counter { return &s.store.retries }

// Subscribe implements driver.Store. The outbox's row keeps others from making subscriptions or changing the retention.
func (s *Store) Subscribe(ctx context.Context, req driver.Subscribe) (driver.Source, error) {
	return s.subscribe(ctx, req, false)
}

func (s *Store) subscribe(ctx context.Context, req driver.Subscribe, shared bool) (driver.Source, error) {
	if err := req.Validate(); err != nil {
		return nil, err
	}
	src := &source{store: s, shared: shared}
	src.Reader = tables.NewReader(src, req)
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
	if s.Box, err = s.store.findOutbox(ctx, pgTx{tx, s.store}, s.Req.Outbox, ""); err != nil || s.Req.Start == driver.FromBeginning {
		return err
	}
	if err := tx.QueryRow(ctx, "select clock_timestamp()").Scan(&s.Low); err != nil {
		return err
	}
	s.Low = s.Low.Add(-s.store.opts.Margin)
	rows, err := tx.Query(ctx, s.store.sql("select seq, ts from {table} where ts > $1", s.Box.Name), s.Low)
	if err != nil {
		return err
	}
	var seq int64
	var f tables.Flight
	_, err = pgx.ForEachRow(rows, []any{&seq, &f.TS}, func() error { s.Passes(seq, f); return nil })
	return err
}

// attach takes the lease, of a subscription that it makes if there is none.
func (s *source) attach(ctx context.Context, tx pgx.Tx) (err error) {
	if s.Box, err = s.store.findOutbox(ctx, pgTx{tx, s.store}, s.Req.Outbox, "for update"); err != nil {
		return err
	}
	sql := func(text string) string { return s.store.sql(text, s.Box.Name) }
	var held bool
	held2 := penstock.HeldError{Subscription: s.Req.Subscription}
	err = tx.QueryRow(ctx, sql("select id, holder, lease_until, lease_until > clock_timestamp() from {schema}.subscriptions where outbox_id = $1 and name = $2 for update"),
		s.Box.ID, s.Req.Subscription).Scan(&s.ID, &held2.Holder, &held2.Until, &held)
	switch {
	case isNoRows(err):
		// What exists is settled for the others, or it is not: either way they note it from here on.
		done, err := tx.Exec(ctx, sql("update {schema}.subscriptions set keeps_settled = true where outbox_id = $1"), s.Box.ID)
		if err != nil {
			return err
		}
		keeps := done.RowsAffected() > 0 || s.Box.Retention != admin.Retention{}
		if err := tx.QueryRow(ctx, sql("insert into {schema}.subscriptions (outbox_id, name, keeps_settled) values ($1, $2, $3) returning id"), s.Box.ID, s.Req.Subscription, keeps).Scan(&s.ID); err != nil {
			return err
		}
		if s.Req.Start == driver.FromNow {
			if _, err := tx.Exec(ctx, sql("insert into {schema}.entries (subscription_id, seq, bucket, ts, state) select $1, seq, bucket, ts, 0 from {table}"), s.ID); err != nil {
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
	err = tx.QueryRow(ctx, sql("select holder, lease_until from {schema}.members where subscription_id = $1 and lease_until > clock_timestamp() order by lease_until desc limit 1"), s.ID).
		Scan(&held2.Holder, &held2.Until)
	if err == nil {
		return &held2
	}
	if !isNoRows(err) {
		return err
	}
	if _, err := tx.Exec(ctx, sql("delete from {schema}.members where subscription_id = $1"), s.ID); err != nil {
		return err
	}
	return tx.QueryRow(ctx, sql("update {schema}.subscriptions set epoch = epoch + 1, holder = $2, holder_since = clock_timestamp(), lease_until = clock_timestamp() + $3 * interval '1 microsecond' where id = $1 returning epoch, low"),
		s.ID, s.Req.Holder, s.Req.Lease.Microseconds()).Scan(&s.Epoch, &s.Low)
}

// update changes the subscription's row, if this reader still has the lease.
func (s *source) update(ctx context.Context, set string, args ...any) error {
	if err := s.Usable(ctx); err != nil || s.ID == 0 {
		return err
	}
	args = append([]any{s.ID, s.Epoch, s.Req.Holder}, args...)
	return s.store.explain(s.store.retries.Do(ctx, func() error {
		done, err := s.store.pool.Exec(ctx, s.store.sql("update {schema}.subscriptions set "+set+" where id = $1 and epoch = $2 and holder = $3", ""), args...)
		if err == nil && done.RowsAffected() == 0 {
			return s.gone(ctx)
		}
		return err
	}))
}

// Renew implements driver.Source, and notes how far the reading has come: a settled message before that is not
// looked at again.
func (s *source) Renew(ctx context.Context) error {
	if s.shared {
		return s.renewShared(ctx)
	}
	return s.update(ctx, "lease_until = clock_timestamp() + $4 * interval '1 microsecond', low = greatest(low, $5)", s.Req.Lease.Microseconds(), s.SettledTo())
}

// ReportSink implements driver.SinkReporter.
func (s *source) ReportSink(ctx context.Context, down time.Time, why string) error {
	if s.shared {
		return nil // it is one of several
	}
	return s.update(ctx, "sink_epoch = epoch, sink_down = $4, sink_error = $5", orNullTime(down), why)
}

func orNullTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// gone tells why the subscription's row is not there, or another's.
func (s *source) gone(ctx context.Context) error {
	if s.Box.Adopted != nil {
		return s.Gone(true)
	}
	var there bool
	if err := s.store.pool.QueryRow(ctx, s.store.sql("select exists (select from {schema}.outboxes where id = $1)", ""), s.Box.ID).Scan(&there); err != nil {
		return err
	}
	return s.Gone(there)
}

// Leave implements tables.Reading.
func (s *source) Leave(ctx context.Context) error {
	if s.shared {
		return s.leave(ctx)
	}
	return s.update(ctx, "holder = '', lease_until = '1970-01-01'")
}
