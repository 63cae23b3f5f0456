package portable

import (
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/tables"
)

func (s *source) Write(ctx context.Context, parts []*tables.Part) error {
	return s.SettleBy(ctx, s, parts)
}

// Once implements tables.Settling.
func (s *source) Once(ctx context.Context, b *tables.Batch) error {
	return s.store.send(ctx, s.store.pgBatch(b))
}

// Try implements tables.Settling.
func (s *source) Try(ctx context.Context, fn func(tx tables.Tx) error) error {
	return s.store.begin(ctx, func(tx pgx.Tx) error { return fn(pgTx{tx, s.store}) })
}

// Note implements tables.Settling.
func (s *source) Note(b *tables.Batch, w *tables.Writes) {
	if len(w.Entries) > 0 {
		b.Do("write_entries", s.Args(tables.Args{"entries": w.Entries}))
	}
	if len(w.Keys) > 0 {
		fresh := slices.Concat(slices.Collect(maps.Values(w.Keys))...)
		b.Do("heads", s.Args(tables.Args{"keys": slices.Sorted(maps.Keys(w.Keys)), "fresh": fresh}))
	}
}

// orEmpty: nil would be NULL.
func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
