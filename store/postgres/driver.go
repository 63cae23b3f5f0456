package postgres

import (
	"context"
	"log/slog"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/descriptor"
	"github.com/penstock/penstock/internal/pg"
	"github.com/penstock/penstock/store/postgres/adopt"
)

// Driver is this store for config's list.
var Driver = descriptor.Store{
	Title: "PostgreSQL", Usage: "postgres://USER@HOST/DATABASE", Schemes: []string{"postgres", "postgresql"}, Postgres: true,
	Open: func(ctx context.Context, url, schema string, log *slog.Logger) (driver.Store, error) {
		store, err := Open(ctx, url, Options{Schema: schema, Log: log})
		if err != nil {
			return nil, err // not a nil *Store in a non-nil interface
		}
		return store, nil
	},
	Place: pg.Place,
	Adopt: func(ctx context.Context, url, schema, subscription string, c adopt.Config, log *slog.Logger) (descriptor.Adopted, error) {
		table, err := adopt.Open(ctx, adopt.Options{URL: url, Schema: schema, Subscription: subscription, Config: c, Log: log})
		if err != nil {
			return nil, err // not a nil *Table in a non-nil interface
		}
		return table, nil
	},
	Adoptions: func(ctx context.Context, url, schema string) ([]descriptor.Remembered, error) {
		return adopt.Subscriptions(ctx, adopt.Options{URL: url, Schema: schema})
	},
	DropAdoption: func(ctx context.Context, url, schema, subscription string) error {
		return adopt.DropSubscription(ctx, adopt.Options{URL: url, Schema: schema, Subscription: subscription})
	},
}
