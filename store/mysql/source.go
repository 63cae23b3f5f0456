package mysql

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"strings"
	"time"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/tables"
)

// source is one reader.
type source struct {
	*tables.Reader
	store *Store
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
	if err := src.Subscribe(ctx, src.Take); err != nil {
		return nil, err
	}
	return src, nil
}

func (s *source) Write(ctx context.Context, parts []*tables.Part) error {
	return s.SettleBy(ctx, s, parts)
}

// Once implements tables.Settling.
func (s *source) Once(ctx context.Context, b *tables.Batch) error {
	return s.store.send(ctx, b)
}

// Try implements tables.Settling.
func (s *source) Try(ctx context.Context, fn func(tx tables.Tx) error) error {
	return s.store.once(ctx, func(t *tx) error { return fn(t) })
}

// About implements tables.Settling.
func (s *source) About(rows tables.Args) tables.Args {
	return s.Args(rows).With(tables.Args{"attempt": s.Attempt})
}

// Fence implements tables.Settling.
func (s *source) Fence() string { return "fence" }

// Note implements tables.Settling.
func (s *source) Note(b *tables.Batch, w *tables.Writes) {
	for some := range slices.Chunk(w.Entries, 100) {
		rows, args := make([]string, len(some)), s.Args(nil)
		for n, e := range some {
			row, ts := "({sub}", tables.SQL(e.TS.Format("'2006-01-02 15:04:05.000000'")) // as it is, even before 1970
			for i, value := range []any{e.Seq, ts, orNull(e.RowID), e.State, e.Key, e.ParkedKey, e.Hold, e.Head, e.Due, e.Attempts, e.Since, []byte(e.Failures), e.Err, e.DiedAt} {
				name := fmt.Sprint("c", n, "_", i)
				args[name], row = value, row+", {"+name+"}"
			}
			rows[n] = row + ")"
		}
		b.Do("insert into {schema}.entries (subscription_id, seq, ts, row_id, state, `key`, parked_key, hold, head, due, attempts, since, failures, error, died_at) values "+strings.Join(rows, ", "), args)
	}
	for _, key := range slices.Sorted(maps.Keys(w.Keys)) {
		b.Do("heads", s.Args(tables.Args{"key": key, "fresh": w.Keys[key]}))
	}
}

// ReadPage implements tables.Reading. It reads the state of the subscription and a page of one origin, in one round trip. Parked messages take
// a second round trip.
func (s *source) ReadPage(ctx context.Context, p *tables.Page) error {
	there, mine := s.ID == 0, true
	b := &tables.Batch{}
	if s.ID != 0 {
		since := s.Due(s.store.opts.Sweep)
		var now time.Time
		b.Rows(func(scan tables.Scan) error {
			there = true
			err := scan(&mine, &s.Has[tables.FromPark], &s.Has[tables.FromReplay], &now)
			if err == nil {
				s.IsDue(since, now, s.store.opts.Margin)
			}
			return err
		}, "state", s.Args(tables.Args{"since": since.Time}))
	}
	inFlight := s.InFlight()
	var look *tables.Look
	var heads []head
	switch args := s.Args(tables.Args{"in_flight": slices.Collect(maps.Keys(inFlight)), "most": p.Most()}); p.From {
	case tables.FromLog:
		look = s.askLog(b, p, inFlight)
	case tables.FromPark: // none of a key comes again before its messages in flight are settled
		b.Rows(func(scan tables.Scan) error {
			var h head
			err := scan(&h.seq, &h.key, &h.ts, &h.attempts)
			heads = append(heads, h)
			return err
		}, "due", args.With(tables.Args{"keys": append(s.KeysInFlight(), "")}))
	case tables.FromReplay:
		b.Rows(func(scan tables.Scan) error { return p.Replayed(&s.Box, scan) }, "fetch_replay", args)
	}
	err := s.store.ask(ctx, b)
	switch {
	case err != nil:
	case !there || !mine:
		return s.Fenced(ctx, s.DB)
	case look != nil:
		look.Done(s.store.opts.Margin)
	case len(heads) > 0:
		return s.readParked(ctx, p, heads)
	}
	return err
}

// askLog asks for new messages.
func (s *source) askLog(b *tables.Batch, p *tables.Page, inFlight map[int64]tables.Flight) *tables.Look {
	look := s.Look(p, s.Box.Buckets, s.store.opts.Sweep)
	var seqs []int64
	var times []time.Time
	for seq, f := range inFlight {
		seqs, times = append(seqs, seq), append(times, f.TS)
	}
	args := s.Args(tables.Args{"in_flight": seqs, "times": times, "low": s.Box.After(look.From), "most": look.Per, "bytes": p.Limit.Bytes})
	if s.Box.Adopted != nil {
		args["rows_in_flight"] = append(s.RowsInFlight(), "") // no row has that
	}
	b.Rows(look.Found, "fetch", args)
	return look
}

// head is a message that is due, and before all others of its parked key.
type head struct {
	seq      int64
	key      []byte // nil for messages parked out of order
	ts       time.Time
	attempts int
}

// readParked reads the heads, and behind a head that was never refused the messages that follow it.
func (s *source) readParked(ctx context.Context, p *tables.Page, heads []head) error {
	behind := make([][]int64, len(heads))
	b := &tables.Batch{}
	for i, h := range heads {
		behind[i] = []int64{h.seq}
		if h.key != nil && h.attempts == 0 {
			b.Rows(tables.All(&behind[i]), "behind_head", s.Args(tables.Args{"key": h.key, "ts": h.ts, "head": h.seq, "most": p.Most()}))
		}
	}
	if err := s.store.ask(ctx, b); err != nil {
		return err
	}
	type parkedRow struct {
		tables.Row
		attempts int
		since    *time.Time
		failures []byte
	}
	found := map[int64]*parkedRow{}
	seqs := slices.Concat(behind...)
	b = new(tables.Batch).Rows(func(scan tables.Scan) error {
		r := &parkedRow{}
		err := scan(r.Dest(&r.InOrder, &r.attempts, &r.since, &r.failures)...)
		found[r.Seq] = r
		return err
	}, "fetch_parked", s.Args(tables.Args{"seqs": seqs[:min(len(seqs), p.Most())]}))
	if err := s.store.ask(ctx, b); err != nil {
		return err
	}
	for _, of := range behind {
		for i, seq := range of {
			r := found[seq]
			if r == nil || i > 0 && r.attempts > 0 {
				break // it was overtaken by a transaction that committed late, or the page ends here
			}
			if err := p.Parked(&s.Box, &r.Row, r.attempts, r.since, r.failures); err != nil {
				return err
			}
		}
	}
	return nil
}
