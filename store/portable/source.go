package portable

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

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

func (s *source) Write(ctx context.Context, parts []*tables.Part) error {
	return s.SettleBy(ctx, s, parts)
}

// Once implements tables.Settling.
func (s *source) Once(ctx context.Context, b *tables.Batch) error {
	return s.store.send(ctx, s.store.pgBatch(b))
}

// Try implements tables.Settling.
func (s *source) Try(ctx context.Context, fn func(tx tables.Tx) error) error {
	return s.store.begin(ctx, func(tx pgx.Tx) error { return fn(pgTx{tx, s.store}) })
}

// Note implements tables.Settling.
func (s *source) Note(b *tables.Batch, w *tables.Writes) {
	if len(w.Entries) > 0 {
		b.Do("write_entries", s.Args(tables.Args{"entries": w.Entries}))
	}
	if len(w.Keys) > 0 {
		fresh := slices.Concat(slices.Collect(maps.Values(w.Keys))...)
		b.Do("heads", s.Args(tables.Args{"keys": slices.Sorted(maps.Keys(w.Keys)), "fresh": fresh}))
	}
}

// orEmpty: nil would be NULL.
func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// ReadPage implements tables.Reading. It reads the state of the subscription and a page of one origin, in one round trip.
func (s *source) ReadPage(ctx context.Context, p *tables.Page) error {
	p.Limit.Bytes = s.store.dialect().most(p.Limit.Bytes)
	seqs, times := []int64{}, []time.Time{}
	for seq, f := range s.InFlight() {
		seqs, times = append(seqs, seq), append(times, f.TS.UTC())
	}
	there, mine, reads := s.ID == 0, true, s.reads()
	b, args := &tables.Batch{}, s.owning(reads, tables.Args{"reads": reads, "in_flight": seqs, "times": times, "most": p.Most()})
	if s.ID != 0 {
		since := s.Due(s.store.opts.Sweep) // before it nothing that is parked is due
		args["since"] = since.UTC()
		b.Rows(func(scan tables.Scan) error {
			var now time.Time
			err := scan(&mine, &s.Has[tables.FromPark], &s.Has[tables.FromReplay], &now)
			if there = err == nil; there {
				s.IsDue(since, now, s.store.opts.Margin)
			}
			return err
		}, "state", args)
	} else {
		b.Do("select {by_index}", nil)
	}
	var look *tables.Look
	far := shards{behind: map[string]bool{}}
	switch p.From {
	case tables.FromLog:
		look = s.Look(p, len(reads), s.store.opts.Sweep)
		if s.Box.Adopted != nil {
			args["in_flight"] = s.RowsInFlight()
		}
		args = args.With(tables.Args{"low": s.Box.After(look.From), "per": look.Per, "bytes": p.Limit.Bytes})
		if s.Box.DistributedBy != "" {
			b.Rows(far.entry, "select e.seq, coalesce(e.parked_key, ''), coalesce(e.hold, '') from {schema}.entries e where e.subscription_id = {sub}", args)
		} else {
			b.Rows(look.Found, "fetch", args)
		}
	case tables.FromPark:
		b.Rows(s.parked(p), "fetch_parked", args.With(tables.Args{"in_flight_keys": s.KeysInFlight()}))
	case tables.FromReplay:
		b.Rows(func(scan tables.Scan) error { return p.Replayed(&s.Box, scan) }, "fetch_replay", args)
	}
	err := s.store.send(ctx, s.store.pgBatch(b))
	if err == nil && there && mine && look != nil && s.Box.DistributedBy != "" {
		err = s.readShards(ctx, &far, look, args)
	}
	switch {
	case err != nil:
	case !there || !mine:
		return s.gone(ctx)
	case look != nil:
		look.Done(s.store.opts.Margin)
	}
	return err
}

// each reads row after row.
func each(read func(scan tables.Scan) error) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			if err := read(rows.Scan); err != nil {
				rows.Close()
				return err
			}
		}
		return rows.Err()
	}
}

// parked reads parked messages that are due. None of a key comes again before its messages in flight are settled.
func (s *source) parked(p *tables.Page) func(tables.Scan) error {
	var refused int64 // a head whose followers are not taken
	return func(scan tables.Scan) error {
		var r tables.Row
		var head int64
		var attempts int
		var since *time.Time
		var failures []byte
		if err := scan(r.Dest(s.Box.More(&r, &r.InOrder, &head, &attempts, &since, &failures)...)...); err != nil {
			return err
		}
		if refused == head || attempts > 0 && r.Seq != head {
			refused = head // it was overtaken by a transaction that committed late
			return nil
		}
		return p.Parked(&s.Box, &r, attempts, since, failures)
	}
}
