// Package adopt makes a table that exists already a subscription: its rows are read as messages
// and, once the sink has confirmed them, deleted, marked or moved. The table itself is never
// altered. Penstock keeps its notes in its own tables. DESIGN.md explains how nothing is lost and
// nothing is walked twice.
package adopt

import (
	"context"
	"log/slog"

	"github.com/penstock/penstock/internal/adopted"
	"github.com/penstock/penstock/internal/descriptor"
)

// How a table is described is the same for every store that adopts tables.
type (
	// Config describes a table that Penstock did not create, and the meaning of its columns. The zero
	// value of a field means its default, or the preset's: see SetDefaults.
	Config = adopted.Config
	// Columns maps the parts of a message to the names of columns. Only ID is needed, if
	// there is no preset.
	Columns = adopted.Columns
	// Delivered is the way to mark a delivered row.
	Delivered = adopted.Delivered
	// Status has the values of a status column.
	Status = adopted.Status
	// Value is one of a column, as SQL reads it.
	Value = adopted.Value
)

// The ways to mark a delivered row.
const (
	Delete    = adopted.Delete
	Mark      = adopted.Mark
	SetStatus = adopted.SetStatus
	Archive   = adopted.Archive
)

// Driver is a store whose tables are adopted, for the program's list. The store itself does not import this package: a service that only publishes is
// not built with it.
func Driver(of descriptor.Store) descriptor.Store {
	of.Adopt = func(ctx context.Context, url, schema, subscription string, c Config, log *slog.Logger) (descriptor.Adopted, error) {
		return descriptor.Adopting(Open(ctx, Options{URL: url, Schema: schema, Subscription: subscription, Config: c, Log: log}))
	}
	of.Remembers = func(url, schema string) descriptor.Remembers { return remembers{url, schema} }
	return of
}

type remembers struct{ url, schema string }

func (r remembers) Adoptions(ctx context.Context) ([]descriptor.Remembered, error) {
	return Subscriptions(ctx, Options{URL: r.url, Schema: r.schema})
}

func (r remembers) DropAdoption(ctx context.Context, subscription string) error {
	return DropSubscription(ctx, Options{URL: r.url, Schema: r.schema, Subscription: subscription})
}

func (remembers) Close() error { return nil }
