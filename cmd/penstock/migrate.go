package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (a *app) migrateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "migrate",
		Short: "Create Penstock's tables, or bring them up to date",
		Long: `Create Penstock's tables in the database, or bring them up to date.

Safe to run twice and from two places at once, so it can be a step of every
deployment. On PostgreSQL everything lives in one schema ("penstock", or the
one of --schema); on SQLite in tables whose names begin with penstock_, beside
the application's own.

On PostgreSQL the role needs CREATE on the database the first time, and must own
the schema from then on.`,
		Example: `  penstock migrate --database-url postgres://app@localhost/shop
  penstock migrate --database-url postgres://app@localhost/shop --schema outbox
  penstock migrate --database-url sqlite:shop.db`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			store, err := a.openStore(ctx)
			if err != nil {
				return err
			}
			defer store.Close()
			if err := store.Migrate(ctx); err != nil {
				return fmt.Errorf("migrating: %w", err)
			}
			fmt.Fprintln(a.stdout, "The database is up to date. Next: penstock outbox create NAME, or penstock queue create NAME")
			return nil
		},
	}
}
