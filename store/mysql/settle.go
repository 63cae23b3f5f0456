package mysql

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/penstock/penstock/internal/tables"
)

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
