package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/store/postgres"
)

// migrator is a store that knows the version of its tables.
type migrator interface {
	SchemaVersion(ctx context.Context) (int64, error)
	Migrate(ctx context.Context) error
	Close() error
}

func (a *app) migrateCommand() *cobra.Command {
	var asJSON, asSQL bool
	var from int64
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Create Penstock's tables, or bring them up to date",
		Long: `Create Penstock's tables in the database, or bring them up to date.

Safe to run twice and from two places at once, so it can be a step of every
deployment. On PostgreSQL everything lives in one schema ("penstock", or the
one of --schema); on SQLite in tables whose names begin with penstock_, beside
the application's own.

On PostgreSQL the role needs CREATE on the database the first time, and must own
the schema from then on.

--json tells the version of the tables before and after, 0 for none.

--sql changes nothing and needs no database: it prints what would be run on
PostgreSQL, for psql -f, Flyway, Liquibase, Alembic or goose. It is one statement
that leads from the version of --from, 0 for a new schema, to that of this program.`,
		Example: `  penstock migrate --database-url postgres://app@localhost/shop
  penstock migrate --database-url postgres://app@localhost/shop --schema outbox
  penstock migrate --database-url sqlite:shop.db --json
  penstock migrate --sql > penstock.sql`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case asSQL && asJSON:
				return usage(errors.New("--sql and --json exclude each other"))
			case asSQL:
				return a.printMigration(from)
			case cmd.Flags().Changed("from"):
				return usage(errors.New("--from goes with --sql: without it the database says what version it has"))
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			store, err := openWith[migrator](ctx, a, "tables to migrate")
			if err != nil {
				return err
			}
			defer store.Close()
			// Where the version cannot be read, Migrate says best why.
			from, unread := store.SchemaVersion(ctx)
			if err := store.Migrate(ctx); err != nil {
				return fmt.Errorf("migrating: %w", err)
			}
			to, err := store.SchemaVersion(ctx)
			if err := errors.Join(unread, err); err != nil {
				return fmt.Errorf("migrated, but the version cannot be told: %w", err)
			}
			return a.tell(asJSON, map[string]any{"from": from, "to": to}, "%s\n", a.suggest(migratedText(from, to)))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "the version of the tables before and after, as one JSON line")
	cmd.Flags().BoolVar(&asSQL, "sql", false, "print SQL for other tools instead")
	cmd.Flags().Int64Var(&from, "from", 0, "with --sql: the version that the database has")
	return cmd
}

// printMigration writes SQL that does what migrate does.
func (a *app) printMigration(from int64) error {
	url, schema, err := a.database()
	switch {
	case errors.Is(err, errNoDatabase):
		schema = a.schema
	case err != nil:
		return err
	case isSQLiteURL(url):
		return usage(errors.New("--sql is for PostgreSQL, and this database is SQLite: run penstock migrate"))
	}
	text, err := postgres.MigrationSQL(schema, from)
	if err != nil {
		return err
	}
	_, err = io.WriteString(a.stdout, text)
	return err
}

// migratedText says what a migration has done.
func migratedText(from, to int64) string {
	switch from {
	case 0:
		return fmt.Sprintf("Penstock's tables were created (version %d). Next: penstock outbox create NAME, or penstock queue create NAME", to)
	case to:
		return fmt.Sprintf("Penstock's tables were up to date already (version %d).", to)
	}
	return fmt.Sprintf("Penstock's tables were brought from version %d to %d.", from, to)
}
