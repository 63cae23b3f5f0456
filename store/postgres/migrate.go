package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/penstock/penstock"
)

// migrationLock serialises migrations of all processes; a schema's name is the
// second half of the key.
const migrationLock = 0x70656e73 // "pens"

// Migrate creates the schema and its tables or brings them up to date.
func (s *Store) Migrate(ctx context.Context) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return s.explain(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, "select pg_advisory_lock($1, hashtext($2))", migrationLock, s.schema); err != nil {
		return s.explain(err)
	}
	defer func() {
		_, _ = conn.Exec(context.WithoutCancel(ctx), "select pg_advisory_unlock($1, hashtext($2))", migrationLock, s.schema)
	}()
	// Not "if not exists" first: that wants the right to create schemas even
	// where an administrator has made this one.
	var exists bool
	if err := conn.QueryRow(ctx, "select exists (select from pg_namespace where nspname = $1)", s.schema).Scan(&exists); err != nil {
		return s.explain(err)
	}
	if exists {
		if err := s.mayMigrate(ctx, conn); err != nil {
			return err
		}
	} else {
		if _, err := conn.Exec(ctx, "create schema "+pgx.Identifier{s.schema}.Sanitize()); err != nil {
			return s.explain(err)
		}
	}
	config := s.config.ConnConfig.Copy()
	db := stdlib.OpenDB(*config, stdlib.OptionAfterConnect(func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "set search_path = "+pgx.Identifier{s.schema}.Sanitize()+", pg_temp")
		return err
	}))
	defer func() { _ = db.Close() }()
	provider, err := newProvider(db)
	if err != nil {
		return err
	}
	current, err := provider.GetDBVersion(ctx)
	if err != nil {
		return s.explain(err)
	}
	if current > newestVersion() {
		return compareVersions(current)
	}
	if _, err := provider.Up(ctx); err != nil {
		return s.explain(err)
	}
	s.checked.Store(false)
	return s.ready(ctx)
}

// mayMigrate says who can, if this role cannot.
func (s *Store) mayMigrate(ctx context.Context, conn *pgxpool.Conn) error {
	var may bool
	var owner string
	err := conn.QueryRow(ctx, `select has_schema_privilege(oid, 'usage') and has_schema_privilege(oid, 'create'), pg_get_userbyid(nspowner)
		from pg_namespace where nspname = $1`, s.schema).Scan(&may, &owner)
	if err != nil {
		return s.explain(err)
	}
	if !may {
		return penstock.WithHint(fmt.Errorf("this role may not create tables in schema %q", s.schema), "run penstock migrate as the schema's owner, %s", owner)
	}
	return nil
}

func newProvider(db *sql.DB) (*goose.Provider, error) {
	dir, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return nil, err
	}
	versions, err := database.NewStore(database.DialectPostgres, "_migration")
	if err != nil {
		return nil, err
	}
	return goose.NewProvider("", db, dir, goose.WithStore(versions), goose.WithDisableGlobalRegistry(true))
}

// newestVersion is the number of the last migration this program carries.
func newestVersion() int64 {
	entries, err := migrationFiles.ReadDir("migrations") // sorted by name
	if err != nil {
		panic(err) // embedded
	}
	version, err := goose.NumericComponent(entries[len(entries)-1].Name())
	if err != nil {
		panic(err)
	}
	return version
}

// SchemaVersion is the version of the tables in the database, 0 without any.
func (s *Store) SchemaVersion(ctx context.Context) (version int64, err error) {
	err = s.pool.QueryRow(ctx, "select coalesce(max(version_id), 0) from "+s.table("_migration")).Scan(&version)
	switch sqlState(err) {
	case "42P01", "3F000":
		return 0, nil
	}
	return version, s.explain(err)
}

// checkVersion compares the schema with what this program was built for.
func (s *Store) checkVersion(ctx context.Context) error {
	current, err := s.SchemaVersion(ctx)
	if err != nil {
		return err
	}
	if current == 0 {
		return penstock.WithHint(fmt.Errorf("%w: there is no schema %q", penstock.ErrNotMigrated, s.schema), "run: penstock migrate")
	}
	return compareVersions(current)
}

func compareVersions(current int64) error {
	want := newestVersion()
	switch {
	case current < want:
		return penstock.WithHint(fmt.Errorf("%w: its schema is version %d, this program needs %d", penstock.ErrNotMigrated, current, want), "run: penstock migrate")
	case current > want:
		return penstock.WithHint(fmt.Errorf("%w: its schema is version %d, this program knows %d", penstock.ErrNewerSchema, current, want), "use a newer penstock")
	}
	return nil
}
