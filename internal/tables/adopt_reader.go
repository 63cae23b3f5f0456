package tables

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/penstock/penstock/driver"
)

// adoptedReader is one reader of an adopted table.
type adoptedReader struct {
	AdoptedSource
	reader *Reader
	of     *Adopted
	kept   time.Time // when it was looked last for rows that are gone
}

// Fetch implements driver.Source.
func (r *adoptedReader) Fetch(ctx context.Context, limit driver.Limit) (driver.Batch, error) {
	limit.Messages = min(limit.Messages, r.of.config.Batch)
	return r.AdoptedSource.Fetch(ctx, limit)
}

// Renew implements driver.Source. From time to time it adds up settled rows, and forgets rows that were deleted by others: parked, they would
// keep their keys waiting for ever.
func (r *adoptedReader) Renew(ctx context.Context) error {
	err := r.AdoptedSource.Renew(ctx)
	if err != nil || time.Since(r.kept) < r.of.config.Sweep {
		return err
	}
	r.kept = time.Now()
	return r.of.on.Within(ctx, func(tx Tx) error { return r.keep(ctx, tx) })
}

// forgotten is how many rows are forgotten at a time.
const forgotten = 1000

func (r *adoptedReader) keep(ctx context.Context, tx Tx) error {
	args := r.reader.Box.Args(Args{"sub": r.reader.ID, "holder": r.reader.Req.Holder, "most": forgotten})
	var epoch int64
	b := new(Batch).Rows(func(scan Scan) error { return scan(&epoch) }, "select epoch from {schema}.subscriptions where id = {sub} and holder = {holder} for update", args)
	if err := tx.Run(ctx, b); err != nil || epoch != r.reader.Epoch {
		return err // the next Renew says so
	}
	if err := r.of.rows.fold(ctx, tx, r.reader.ID); err != nil {
		return err
	}
	var seqs []int64
	keys := map[string]bool{}
	if err := tx.Run(ctx, new(Batch).Rows(func(scan Scan) error {
		var seq int64
		var key string
		err := scan(&seq, &key)
		seqs, keys[key] = append(seqs, seq), true
		return err
	}, "adopt_gone", args)); err != nil || len(seqs) == 0 {
		return err
	}
	b = new(Batch).Do("end_discarded_entries", args.With(Args{"seqs": seqs}))
	for key := range keys {
		b.Do("adopt_head", args.With(Args{"key": key}))
	}
	b.Do("release", args.With(Args{"keys": slices.Sorted(maps.Keys(keys))}))
	return tx.Finish(ctx, b)
}
