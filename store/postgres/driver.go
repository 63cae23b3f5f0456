package postgres

import (
	"context"
	"log/slog"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/descriptor"
	"github.com/penstock/penstock/internal/pg"
)

// Driver describes this store for the list in internal/drivers.
var Driver = descriptor.Store{
	Title: "PostgreSQL", Usage: "postgres://USER@HOST/DATABASE", Schemes: []string{"postgres", "postgresql"}, Postgres: true,
	Open: func(ctx context.Context, url, schema string, log *slog.Logger) (driver.Database, error) {
		return descriptor.Opened(Open(ctx, url, Options{Schema: schema, Log: log}))
	},
	Place: pg.Place,
}
