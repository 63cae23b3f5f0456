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
	state := true
	buckets := s.reads()
	b := &pgx.Batch{}
	var since *tables.Since // before which nothing that is parked is due
	if s.ID != 0 {
		since = s.Due(s.store.opts.Sweep)
		b.Queue(s.sql("state", buckets), s.ID, s.Epoch, buckets, since.UTC()).QueryRow(func(r pgx.Row) error {
			var now time.Time
			err := r.Scan(&state, &s.Has[tables.FromPark], &s.Has[tables.FromReplay], &now)
			if err == nil {
				s.IsDue(since, now, s.store.opts.Margin)
			}
			return err
		})
	} else {
		b.Queue(s.store.text("select {by_index}"))
	}
	switch p.From {
	case tables.FromLog:
		s.queueLog(b, p, buckets, seqs, times)
	case tables.FromPark:
		s.queueParked(b, p, buckets, seqs, since)
	case tables.FromReplay:
		b.Queue(s.sql("fetch_replay", buckets), s.ID, s.Epoch, seqs, p.Most(), buckets).Query(each(func(scan tables.Scan) error { return p.Replayed(&s.Box, scan) }))
	}
	err := s.store.send(ctx, b)
	if isNoRows(err) || err == nil && !state {
		return s.gone(ctx)
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

// queueLog asks for new messages.
func (s *source) queueLog(b *pgx.Batch, p *tables.Page, buckets []int16, seqs []int64, times []time.Time) {
	look := s.Look(p, len(buckets), s.store.opts.Sweep)
	var known any = seqs
	if s.Box.Adopted != nil {
		known = s.RowsInFlight()
	}
	b.Queue(s.sql("fetch", buckets), s.ID, s.Epoch, s.Box.After(look.From), known, look.Per, p.Most(), p.Limit.Bytes, buckets, times).Query(func(rows pgx.Rows) error {
		err := each(look.Found)(rows)
		if err == nil {
			look.Done(s.store.opts.Margin)
		}
		return err
	})
}

// queueParked asks for parked messages that are due. None of a key comes again before its messages in flight are
// settled.
func (s *source) queueParked(b *pgx.Batch, p *tables.Page, buckets []int16, seqs []int64, since *tables.Since) {
	var refused int64 // a head whose followers are not taken
	b.Queue(s.sql("fetch_parked", buckets), s.ID, s.Epoch, seqs, p.Most(), s.KeysInFlight(), buckets, since.UTC()).Query(each(func(scan tables.Scan) error {
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
	}))
}
