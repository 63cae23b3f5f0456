package portable

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/tables"
)

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
	switch p.From {
	case tables.FromLog:
		look = s.Look(p, len(reads), s.store.opts.Sweep)
		if s.Box.Adopted != nil {
			args["in_flight"] = s.RowsInFlight()
		}
		b.Rows(look.Found, "fetch", args.With(tables.Args{"low": s.Box.After(look.From), "per": look.Per, "bytes": p.Limit.Bytes}))
	case tables.FromPark:
		b.Rows(s.parked(p), "fetch_parked", args.With(tables.Args{"in_flight_keys": s.KeysInFlight()}))
	case tables.FromReplay:
		b.Rows(func(scan tables.Scan) error { return p.Replayed(&s.Box, scan) }, "fetch_replay", args)
	}
	err := s.store.send(ctx, s.store.pgBatch(b))
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
