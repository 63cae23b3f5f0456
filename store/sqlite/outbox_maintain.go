package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"time"

	"github.com/penstock/penstock/internal/tables"
)

// Maintain implements driver.Store. It deletes messages that every subscription has
// settled and that neither a retention nor an entry needs. It deletes ranges of seq, in chunks
// that hold the write lock for some milliseconds. It gives free pages back to the file
// system if the file was made with auto_vacuum=incremental, as Migrate does. Without a
// subscription nothing is settled.
func (s *Store) Maintain(ctx context.Context, name string) error {
	db := onTables{s}
	box, err := tables.FindOutbox(ctx, db, db, name, "")
	if err != nil {
		return err
	}
	// A message that was left before the reclaimed place was still needed then. After a sweep's time this
	// looks everywhere again.
	since := s.ledgerOf(name).reclaimed.Since(sweep)
	after := max(since.UnixMicro(), 0)
	var low int64
	b := new(tables.Batch).Row(new(bool), "select coalesce(min(position), 0) from {schema}.subscriptions where outbox_id = {outbox}", box.Args(nil), &low)
	if err := db.Run(ctx, b); err != nil {
		return err
	}
	first, err := s.reclaimable(ctx, &box, after, low)
	if err == nil && first > 0 {
		low, err = s.retained(ctx, &box, first, low)
	}
	if err == nil {
		err = s.reclaim(ctx, &box, after, low)
	}
	if err == nil && after == 0 {
		err = s.forgetGone(ctx, &box)
	}
	if err != nil {
		return err
	}
	since.Found(false, time.UnixMicro(low))
	return s.shrink(ctx)
}

// reclaimable finds the next message that no subscription needs, up to low, or returns 0.
func (s *Store) reclaimable(ctx context.Context, box *tables.Outbox, after, low int64) (first int64, err error) {
	b := new(tables.Batch).Row(new(bool), "reclaimable", box.Args(tables.Args{"after": after, "last": low}), &first)
	err = onTables{s}.Run(ctx, b)
	return first, err
}

// A chunk is sized by how long the last one took: rows may be 100 bytes or
// 64 MiB.
const (
	chunkTime  = 10 * time.Millisecond
	firstChunk = 256
	maxChunk   = 1 << 14
)

// reclaim deletes the messages behind a seq up to low.
func (s *Store) reclaim(ctx context.Context, box *tables.Outbox, after, low int64) error {
	for n := int64(firstChunk); after < low; {
		first, err := s.reclaimable(ctx, box, after, low)
		if err != nil || first == 0 {
			return err
		}
		last := min(first+n-1, low)
		var took time.Duration
		if err := (onTables{s}).Within(ctx, func(tx tables.Tx) error {
			began := time.Now()
			b := new(tables.Batch).Do("reclaim", box.Args(tables.Args{"after": first - 1, "last": last, "age": int64(box.Retention.Age), "bytes": box.Retention.Bytes}))
			err := tx.Run(ctx, b)
			took = time.Since(began)
			return err
		}); err != nil {
			return err
		}
		after = last
		switch {
		case took < chunkTime/2:
			n = min(2*n, maxChunk)
		case took > 2*chunkTime:
			n = max(n/2, 1)
		}
	}
	return nil
}

// mostGone is how many entries one transaction ends of messages that are gone.
const mostGone = 1000

// forgetGone ends entries of messages that an application has deleted itself. Parked, they would keep their keys waiting for ever.
func (s *Store) forgetGone(ctx context.Context, box *tables.Outbox) error {
	read := func(on tables.Runner) (map[int64]*tables.Writes, error) {
		of := map[int64]*tables.Writes{}
		return of, on.Run(ctx, new(tables.Batch).Rows(func(scan tables.Scan) error {
			var sub, seq int64
			var key, hold *string
			if err := scan(&sub, &seq, &key, &hold); err != nil {
				return err
			}
			if of[sub] == nil {
				of[sub] = &tables.Writes{Keys: map[string][]int64{}}
			}
			w := of[sub]
			w.Gone = append(w.Gone, seq)
			if key != nil {
				w.Keys[*key] = nil
			}
			if hold != nil {
				w.Released = append(w.Released, *hold)
			}
			return nil
		}, "gone", box.Args(tables.Args{"most": mostGone})))
	}
	for {
		if found, err := read(onTables{s}); err != nil || len(found) == 0 {
			return err
		}
		if err := (onTables{s}).Within(ctx, func(tx tables.Tx) error {
			found, err := read(tx)
			if err != nil {
				return err
			}
			b := &tables.Batch{}
			for sub, w := range found {
				change(b, box.Args(tables.Args{"sub": sub}), w)
			}
			return tx.Run(ctx, b)
		}); err != nil {
			return err
		}
	}
}

// Giving a page back moves another one: about 0.2 ms each. So the file keeps
// free pages that the next burst uses again, and a large surplus goes a few
// megabytes per Maintain.
const (
	reservePages = 4096
	shrinkPages  = 64
	shrinkSteps  = 8
)

func (s *Store) shrink(ctx context.Context) error {
	for range shrinkSteps {
		var free, mode int
		if err := s.readers.QueryRowContext(ctx, `select (select freelist_count from pragma_freelist_count), (select auto_vacuum from pragma_auto_vacuum)`).Scan(&free, &mode); err != nil {
			return s.explain(err)
		}
		const incremental = 2
		if mode != incremental || free <= reservePages {
			return nil
		}
		err := s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `pragma incremental_vacuum(`+strconv.Itoa(min(shrinkPages, free-reservePages))+`)`)
			return err
		})
		if err != nil {
			if errors.Is(err, ErrBusy) {
				return nil // it can wait
			}
			return err
		}
	}
	return nil
}
