package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/internal/tables"
)

// ReadPage implements tables.Reading. It reads the state of the subscription and a page of one origin, in one round trip. Parked messages take
// a second round trip.
func (s *source) ReadPage(ctx context.Context, p *tables.Page) error {
	there, mine := s.ID == 0, true
	b := &batch{}
	if s.ID != 0 {
		since := s.Due(s.store.opts.Sweep)
		var now time.Time
		b.read(func(rows *sql.Rows) error {
			there = true
			err := rows.Scan(&mine, &s.Has[tables.FromPark], &s.Has[tables.FromReplay], &now)
			if err == nil {
				s.IsDue(since, now, s.store.opts.Margin)
			}
			return err
		}, s.sql("state", words{"since": at(since.Time)}))
	}
	inFlight := s.InFlight()
	var after func() error
	switch p.From {
	case tables.FromLog:
		after = s.queueLog(b, p, inFlight)
	case tables.FromPark:
		after = s.queueDue(ctx, b, p, inFlight)
	case tables.FromReplay:
		b.read(func(rows *sql.Rows) error { return p.Replayed(&s.Box, rows.Scan) },
			s.sql("fetch_replay", words{"in_flight": list(slices.Collect(maps.Keys(inFlight))), "most": p.Most()}))
	}
	err := s.store.ask(ctx, b)
	if err == nil && !(there && mine) {
		return s.Fenced(ctx, s.DB)
	}
	if err == nil && after != nil {
		err = after()
	}
	return err
}

// queueLog asks for new messages. Call after once the batch has run.
func (s *source) queueLog(b *batch, p *tables.Page, inFlight map[int64]tables.Flight) (after func() error) {
	look := s.Look(p, s.Box.Buckets, s.store.opts.Sweep)
	seqs, times, buckets := make([][]int64, s.Box.Buckets), make([]string, s.Box.Buckets), make([]string, s.Box.Buckets)
	for seq, f := range inFlight {
		seqs[f.Bucket] = append(seqs[f.Bucket], seq)
		times[f.Bucket] += at(f.TS) + ","
	}
	known, args := "", []any(nil)
	if s.Box.Adopted != nil {
		known, args = rowsInFlight(s.RowsInFlight())
	}
	low := fmt.Sprint(s.Box.After(look.From))
	if place, is := s.Box.After(look.From).(time.Time); is {
		low = at(place)
	}
	for i := range buckets {
		buckets[i] = s.sql("fetch_bucket", words{"bucket": i, "low": low, "in_flight": list(seqs[i]), "rows_in_flight": known, "times": times[i] + at(time.Time{}), "per": look.Per})
	}
	b.read(func(rows *sql.Rows) error { return look.Found(rows.Scan) },
		s.sql("fetch", words{"of_buckets": strings.Join(buckets, " union all "), "most": p.Most(), "bytes": p.Limit.Bytes}), args...)
	return func() error {
		look.Done(s.store.opts.Margin)
		return nil
	}
}

// head is a message that is due, and before all others of its parked key.
type head struct {
	seq      int64
	key      []byte // nil for messages parked out of order
	ts       time.Time
	attempts int
}

// queueDue asks for heads that are due. None of a key comes again before its messages in flight are settled.
func (s *source) queueDue(ctx context.Context, b *batch, p *tables.Page, inFlight map[int64]tables.Flight) (after func() error) {
	keys, args := texts(s.KeysInFlight())
	var heads []head
	statement := s.sql("due", words{"in_flight": list(slices.Collect(maps.Keys(inFlight))), "keys": keys, "most": p.Most()})
	if len(args) == 0 {
		statement = strings.ReplaceAll(statement, "h.parked_key not in (null)", "true")
	}
	b.read(func(rows *sql.Rows) error {
		var h head
		err := rows.Scan(&h.seq, &h.key, &h.ts, &h.attempts)
		heads = append(heads, h)
		return err
	}, statement, args...)
	return func() error {
		if len(heads) == 0 {
			return nil
		}
		return s.readParked(ctx, p, heads)
	}
}

// readParked reads the heads, and behind a head that was never refused the messages that follow it.
func (s *source) readParked(ctx context.Context, p *tables.Page, heads []head) error {
	behind := make([][]int64, len(heads))
	b := &batch{}
	for i, h := range heads {
		behind[i] = []int64{h.seq}
		if h.key == nil || h.attempts > 0 {
			continue
		}
		b.read(func(rows *sql.Rows) error {
			var seq int64
			err := rows.Scan(&seq)
			behind[i] = append(behind[i], seq)
			return err
		}, s.sql("behind_head", words{"ts": at(h.ts), "head": h.seq, "most": p.Most()}), h.key)
		if b.size > packet {
			if err := s.store.ask(ctx, b); err != nil {
				return err
			}
			b = &batch{}
		}
	}
	if len(b.reads) > 0 {
		if err := s.store.ask(ctx, b); err != nil {
			return err
		}
	}
	type parkedRow struct {
		tables.Row
		attempts int
		since    *time.Time
		failures []byte
	}
	found := map[int64]*parkedRow{}
	seqs := slices.Concat(behind...)
	b = &batch{}
	b.read(func(rows *sql.Rows) error {
		r := &parkedRow{}
		err := rows.Scan(r.Dest(&r.InOrder, &r.attempts, &r.since, &r.failures)...)
		found[r.Seq] = r
		return err
	}, s.sql("fetch_parked", words{"seqs": list(seqs[:min(len(seqs), p.Most())])}))
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
