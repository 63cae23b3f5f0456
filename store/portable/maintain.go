package portable

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/tables"
)

// reclaimed is how many messages one transaction of Maintain deletes at most.
const reclaimed = 2000

// Maintain implements penstock.Store: it deletes what every subscription has settled and is not retained, in
// batches, and adds up what Settle has counted.
func (s *Store) Maintain(ctx context.Context, outbox string) error {
	for {
		n := 0
		err := s.tx(ctx, func(tx pgx.Tx) (err error) {
			n, err = s.maintain(ctx, tx, outbox)
			return err
		})
		if err != nil || n < reclaimed {
			return err
		}
	}
}

func (s *Store) maintain(ctx context.Context, tx pgx.Tx, name string) (n int, err error) {
	box, err := s.findOutbox(ctx, tx, name, "")
	if err != nil {
		return 0, err
	}
	rows, err := tx.Query(ctx, s.sql("select id from {schema}.subscriptions where outbox_id = $1 order by id for update", ""), box.ID)
	if err != nil {
		return 0, err
	}
	subs, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return 0, err
	}
	for _, sub := range subs {
		if err := s.fold(ctx, tx, sub); err != nil {
			return 0, err
		}
	}
	if rows, err = tx.Query(ctx, s.sql("reclaimable", name), box.ID, box.Retention.Age.Microseconds(), box.Retention.Bytes, reclaimed); err != nil {
		return 0, err
	}
	var buckets []int16
	var times []time.Time
	var seqs []int64
	var f tables.Flight
	var seq int64
	if _, err := pgx.ForEachRow(rows, []any{&f.Bucket, &f.TS, &seq}, func() error {
		buckets, times, seqs = append(buckets, f.Bucket), append(times, f.TS), append(seqs, seq)
		return nil
	}); err != nil || len(seqs) == 0 {
		return 0, err
	}
	b := &pgx.Batch{}
	b.Queue(s.sql("reclaim", name), buckets, times, seqs)
	b.Queue(s.sql("reclaim_entries", ""), box.ID, seqs)
	return len(seqs), tx.SendBatch(ctx, b).Close()
}

// fold adds up rows of progress that are too old to be asked for.
func (s *Store) fold(ctx context.Context, tx pgx.Tx, sub int64) error {
	rows, err := tx.Query(ctx, s.sql("fold", ""), sub)
	if err != nil {
		return err
	}
	var attempt, epoch, settled, sum int64
	var attempts, epochs []int64
	if _, err := pgx.ForEachRow(rows, []any{&attempt, &epoch, &settled}, func() error {
		attempts, epochs, sum = append(attempts, attempt), append(epochs, epoch), sum+settled
		return nil
	}); err != nil || len(attempts) == 0 {
		return err
	}
	b := &pgx.Batch{}
	b.Queue(s.sql("delete from {schema}.progress p using unnest($2::bigint[], $3::bigint[]) d(epoch, attempt) where p.subscription_id = $1 and p.epoch = d.epoch and p.attempt = d.attempt", ""), sub, epochs, attempts)
	b.Queue(s.sql("update {schema}.subscriptions set settled = settled + $2 where id = $1", ""), sub, sum)
	return tx.SendBatch(ctx, b).Close()
}

func isNoOutbox(err error) bool { return errors.Is(err, penstock.ErrNoOutbox) }
