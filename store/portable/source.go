package portable

import (
	"context"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/tables"
)

// source is one reader.
type source struct {
	*tables.Reader
	store *Store

	shared         bool
	owned, leaving []int16 // buckets, of one that is shared; leaving are some of those owned
}

var (
	_ driver.Source  = (*source)(nil)
	_ tables.Reading = (*source)(nil)
)

// newSource is a reader that has no lease yet.
func (s *Store) newSource(req driver.Subscribe) *source {
	src := &source{store: s}
	src.Reader = tables.NewReader(src, onTables{s}, s.explain, &s.retries, req)
	return src
}

// Subscribe implements driver.Store.
func (s *Store) Subscribe(ctx context.Context, req driver.Subscribe) (driver.Source, error) {
	src := s.newSource(req)
	if err := src.Subscribe(ctx, src.alone); err != nil {
		return nil, err
	}
	return src, nil
}

// alone takes the lease, unless others share the subscription.
func (s *source) alone(ctx context.Context, tx tables.Tx) error {
	held, shared := penstock.HeldError{Subscription: s.Req.Subscription}, false
	b := new(tables.Batch).Row(&shared, "select holder, lease_until from {schema}.members where subscription_id = {sub} and lease_until > {clock} order by lease_until desc limit 1", s.Args(nil), &held.Holder, &held.Until)
	if err := tx.Run(ctx, b); err != nil {
		return err
	}
	if shared {
		return &held
	}
	b = new(tables.Batch).Do("delete from {schema}.members where subscription_id = {sub}", s.Args(nil))
	if err := tx.Run(ctx, b); err != nil {
		return err
	}
	return s.Take(ctx, tx)
}

// Renew implements driver.Source.
func (s *source) Renew(ctx context.Context) error {
	if s.shared {
		return s.renewShared(ctx)
	}
	return s.Reader.Renew(ctx)
}

// ReportSink implements driver.SinkReporter.
func (s *source) ReportSink(ctx context.Context, down time.Time, why string) error {
	if s.shared {
		return nil // it is one of several
	}
	return s.Reader.ReportSink(ctx, down, why)
}

// gone explains why the subscription's row is not there, or another's.
func (s *source) gone(ctx context.Context) error { return s.Fenced(ctx, s.DB) }

func (s *source) Leave(ctx context.Context) error {
	if s.shared {
		return s.DB.Send(ctx, func(b *tables.Batch) {
			b.Do("delete from {schema}.members where subscription_id = {sub} and epoch = {epoch} and holder = {holder}", s.Args(nil))
		})
	}
	return s.Reader.Leave(ctx)
}
