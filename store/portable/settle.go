package portable

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/tables"
)

func (s *source) Write(ctx context.Context, parts []*tables.Part) error {
	if tables.Plain(parts) {
		return s.settlePlain(ctx, parts)
	}
	return s.store.begin(ctx, func(tx pgx.Tx) error { return s.settleAll(ctx, tx, parts) })
}

// settlePlain settles messages that are new and were delivered, in one round trip.
func (s *source) settlePlain(ctx context.Context, parts []*tables.Part) error {
	b := &pgx.Batch{}
	var mine bool
	keys := keysOf(parts)
	b.Queue(s.fence(keys["buckets"].([]int16)), s.ID, s.Epoch, s.Req.Holder).QueryRow(func(r pgx.Row) error { return r.Scan(&mine) })
	text, args := s.settling("progress_of", keys)
	b.Queue(text, args...)
	s.queueDone(b, parts)
	err := s.store.send(ctx, b)
	if isNoRows(err) || err == nil && !mine {
		return s.gone(ctx)
	}
	return err
}

// queueDone notes or deletes delivered messages. How many were settled is in progress by then.
func (s *source) queueDone(b *pgx.Batch, delivered []*tables.Part) {
	if len(delivered) == 0 {
		return
	}
	statements := []string{"keep_settled", "delete"}
	if s.Box.Adopted != nil {
		statements = []string{s.Box.Adopted.Settles}
	}
	for _, statement := range statements {
		text, args := s.settling(statement, keysOf(delivered))
		b.Queue(text, args...)
	}
}

// keysOf are the primary keys of messages.
func keysOf(parts []*tables.Part) tables.Args {
	var buckets []int16
	var times []time.Time
	var seqs []int64
	var rowIDs []string
	for _, p := range parts {
		buckets, times, seqs, rowIDs = append(buckets, p.Bucket), append(times, p.TS.UTC()), append(seqs, p.Msg.Seq), append(rowIDs, p.RowID)
	}
	return tables.Args{"buckets": buckets, "times": times, "seqs": seqs, "row_ids": rowIDs}
}

// settleAll settles messages with verdicts: it reads their entries and writes the rest. The lock waits for the same
// call, if that is under way still.
func (s *source) settleAll(ctx context.Context, tx pgx.Tx, parts []*tables.Part) error {
	var mine, happened bool
	var now time.Time
	before, there := map[int64]*tables.Entry{}, map[int64]bool{}
	keys := keysOf(parts)
	known, buckets := keys["seqs"].([]int64), keys["buckets"].([]int16)
	existing, args := s.settling("existing", keys)
	b := &pgx.Batch{}
	b.Queue(s.fence(buckets), s.ID, s.Epoch, s.Req.Holder).QueryRow(func(r pgx.Row) error { return r.Scan(&mine) })
	b.Queue(s.store.sql("select exists (select from {schema}.progress where subscription_id = $1 and epoch = $2 and attempt = $3)", ""),
		s.ID, s.Epoch, s.Attempt).QueryRow(func(r pgx.Row) error { return r.Scan(&happened) })
	b.Queue("select clock_timestamp()").QueryRow(func(r pgx.Row) error { return r.Scan(&now) })
	b.Queue(s.store.sql("read_entries", ""), s.ID, known).Query(each(func(scan tables.Scan) error {
		e := &tables.Entry{}
		err := e.Before(scan)
		before[e.Seq] = e
		return err
	}))
	b.Queue(existing, args...).Query(each(func(scan tables.Scan) error {
		var seq int64
		err := scan(&seq)
		there[seq] = true
		return err
	}))
	err := tx.SendBatch(ctx, b).Close()
	if isNoRows(err) || err == nil && !mine {
		return s.gone(ctx)
	}
	if err != nil || happened {
		return err
	}
	w, err := tables.Judge(now, parts, before, there)
	if err != nil {
		return err
	}
	return s.write(ctx, tx, w)
}

func (s *source) write(ctx context.Context, tx pgx.Tx, w *tables.Writes) error {
	b := &pgx.Batch{}
	if len(w.Gone) > 0 {
		b.Queue(s.store.sql("delete from {schema}.entries e using (select $1::bigint as sub, unnest($2::bigint[]) as seq) d where e.subscription_id = any (array[d.sub]) and e.seq = d.seq", ""), s.ID, w.Gone)
	}
	if len(w.Entries) > 0 {
		b.Queue(s.store.sql("write_entries", ""), s.ID, w.Entries)
	}
	if len(w.Keys) > 0 {
		b.Queue(s.store.sql("heads", ""), s.ID, slices.Sorted(maps.Keys(w.Keys)), orEmpty(slices.Concat(slices.Collect(maps.Values(w.Keys))...)))
	}
	if len(w.Released) > 0 {
		text, args := s.store.rendered("release", tables.Args{"sub": s.ID, "keys": w.Released})
		b.Queue(text, args...)
	}
	b.Queue(s.sql("progress", nil), s.ID, s.Epoch, s.Attempt, w.Settled)
	s.queueDone(b, w.Delivered)
	if failed := w.Failed(&s.Box); failed != nil {
		text, args := s.settling("adopt_failed", failed)
		b.Queue(text, args...)
	}
	return tx.SendBatch(ctx, b).Close()
}

// orEmpty: nil would be NULL.
func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
