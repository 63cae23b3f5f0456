package demo

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/store/mysql"
	"github.com/penstock/penstock/store/portable"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/store/sqlite"
)

// openDatabase makes the store, its outbox and the airline's tables.
func (r *run) openDatabase(ctx context.Context) (err error) {
	private := false // whether this run created Penstock's tables
	onSQLite := strings.HasPrefix(r.DatabaseURL, "sqlite:")
	switch {
	case r.DatabaseURL == "":
		r.DatabaseURL, onSQLite = "sqlite:"+filepath.Join(r.dir, "demo.db"), true
		private = true
	case !onSQLite && r.Schema == "":
		r.Schema, private = r.name, true
	}
	r.outbox = r.name
	if r.store, err = drivers.OpenStore(ctx, r.DatabaseURL, r.Schema, r.Log); err != nil {
		return err
	}
	r.later("", func(context.Context) error { return r.store.Close() })

	err = r.store.Migrate(ctx)
	if private && !onSQLite && (err == nil || ctx.Err() != nil) { // if it was interrupted, it may be half done
		r.later("schema "+r.Schema+" with the outbox", r.dropSchema)
	}
	if err != nil {
		return fmt.Errorf("migrating: %w", err)
	}
	if err := r.store.CreateOutbox(ctx, r.outbox); err != nil {
		return fmt.Errorf("creating the outbox: %w", err)
	}
	if !private {
		r.later("outbox "+r.outbox, func(ctx context.Context) error { return r.store.DropOutbox(ctx, r.outbox) })
	}

	// The check and the clean-up need no further connection: the producers have released theirs by
	// then.
	airline, producers := r.name+"_airline", max(r.Producers, 1)
	kept := "schema " + airline + " with the tables flights and aircraft"
	switch store := r.store.(type) {
	case *sqlite.Store:
		kept = "tables " + airline + "_flights and _aircraft"
		r.airline, err = NewSQLiteAirline(ctx, r.DatabaseURL, airline, store.Outbox(r.outbox), private && !r.Keep)
	case *mysql.Store:
		kept = "database " + airline + " with the tables flights and aircraft"
		r.airline, err = NewMySQLAirline(ctx, r.DatabaseURL, airline, producers, store.Outbox(r.outbox), store.Engine())
	case *portable.Store:
		r.airline, err = NewPostgresAirline(ctx, portable.Plain(r.DatabaseURL), airline, producers, store.Outbox(r.outbox))
	case *postgres.Store:
		r.airline, err = NewPostgresAirline(ctx, portable.Plain(r.DatabaseURL), airline, producers, store.Outbox(r.outbox))
	default:
		err = fmt.Errorf("the demo does not know a store of type %T", store)
	}
	if err != nil {
		return err
	}
	r.later("", func(context.Context) error { return r.airline.Close() })
	r.later(kept, r.airline.Remove)
	return nil
}

// dropSchema removes Penstock's tables, which this run created.
func (r *run) dropSchema(ctx context.Context) error {
	s, ok := r.store.(driver.SchemaDropper)
	if !ok {
		return nil
	}
	if err := s.DropSchema(ctx); err != nil {
		return fmt.Errorf("dropping schema %s: %w", r.Schema, err)
	}
	return nil
}
