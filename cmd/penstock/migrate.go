package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// migrator is a store that knows the version of its tables.
type migrator interface {
	SchemaVersion(ctx context.Context) (int64, error)
	Migrate(ctx context.Context) error
	Close() error
}

func (a *app) migrateCommand() *cobra.Command {
	var asJSON bool
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

--json tells the version of the tables before and after, 0 for none.`,
		Example: `  penstock migrate --database-url postgres://app@localhost/shop
  penstock migrate --database-url postgres://app@localhost/shop --schema outbox
  penstock migrate --database-url sqlite:shop.db --json`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
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
	return cmd
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
