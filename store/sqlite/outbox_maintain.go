package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"time"
)

// Maintain implements driver.Store. It deletes messages that every subscription has
// settled and that no retention or replay needs. It deletes ranges of seq, in chunks
// that hold the write lock for some milliseconds. It gives free pages back to the file
// system if the file was made with auto_vacuum=incremental, as Migrate does. Without a
// subscription nothing is settled.
func (s *Store) Maintain(ctx context.Context, name string) error {
	var box outbox
	var first, low int64
	err := s.read(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		if box, err = findOutbox(ctx, tx, name); err != nil {
			return err
		}
		if first, _, err = box.extent(ctx, tx); err != nil {
			return err
		}
		var replayed int64
		if err := tx.QueryRowContext(ctx, statement("settled"), box.id).Scan(&low, &replayed); err != nil {
			return err
		}
		if low, err = s.retained(ctx, tx, box, first, low); err != nil {
			return err
		}
		low = min(low, replayed)
		return nil
	})
	if err != nil {
		return err
	}
	if err := s.reclaim(ctx, box, first, low); err != nil {
		return err
	}
	return s.shrink(ctx)
}

// A chunk is sized by how long the last one took: rows may be 100 bytes or
// 64 MiB.
const (
	chunkTime  = 10 * time.Millisecond
	firstChunk = 256
	maxChunk   = 1 << 14
)

// reclaim deletes the messages from first to low.
func (s *Store) reclaim(ctx context.Context, box outbox, first, low int64) error {
	for n := int64(firstChunk); first <= low; {
		var took time.Duration
		last := min(first+n-1, low)
		err := s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
			began := time.Now()
			_, err := tx.ExecContext(ctx, on(Table(box.name), statement("reclaim")), sql.Named("last", last), sql.Named("outbox", box.id),
				sql.Named("age", int64(box.retention.Age)), sql.Named("bytes", box.retention.Bytes))
			took = time.Since(began)
			return err
		})
		if err != nil {
			return err
		}
		first = last + 1
		switch {
		case took < chunkTime/2:
			n = min(2*n, maxChunk)
		case took > 2*chunkTime:
			n = max(n/2, 1)
		}
	}
	return nil
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
