package mysql

import (
	"context"

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
