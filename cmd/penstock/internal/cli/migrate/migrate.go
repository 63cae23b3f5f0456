// Package migrate has penstock migrate.
package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/store/postgres"
)

func Command(a *cli.App) *cobra.Command {
	var asSQL, check bool
	var from int64
	cmd := terminal.Verb("migrate", "Create Penstock's tables, or bring them up to date", func(cmd *cobra.Command, _ []string) error {
		switch {
		case asSQL && (a.JSON || check):
			return terminal.Usage(errors.New("--sql is given with --json or --check: it prints SQL and reads no database"))
		case asSQL:
			return printMigration(a, from)
		case cmd.Flags().Changed("from"):
			return terminal.Usage(errors.New("--from goes with --sql: without it the database itself has the version"))
		}
		ctx := cmd.Context()
		store, err := a.OpenStore(ctx)
		if err != nil {
			return err
		}
		if check {
			return checkSchema(ctx, a, store)
		}
		// If the version cannot be read, Migrate reports the reason best.
		from, unread := store.SchemaVersion(ctx)
		differences, _ := store.CheckSchema(ctx)
		if err := store.Migrate(ctx); err != nil {
			return fmt.Errorf("migrating: %w", err)
		}
		to, err := store.SchemaVersion(ctx)
		if err := errors.Join(unread, err); err != nil {
			return fmt.Errorf("migrated, but the version cannot be read: %w", err)
		}
		repaired := []string{}
		if len(differences) > 0 && from == to {
			left, err := store.CheckSchema(ctx)
			if err != nil {
				return fmt.Errorf("migrated, but the tables cannot be checked: %w", err)
			}
			repaired = slices.DeleteFunc(differences, func(d string) bool { return slices.Contains(left, d) })
		}
		return a.Tell(map[string]any{"from": from, "to": to, "repaired": repaired}, "%s\n", a.Suggest(migratedText(from, to, len(repaired))))
	})
	a.WithJSON(cmd, "the version of the tables before and after, or the findings of --check, as one JSON line")
	cmd.Flags().BoolVar(&check, "check", false, "only list the changes, with exit code 3 if there are any")
	cmd.Flags().BoolVar(&asSQL, "sql", false, "print SQL for other tools instead")
	cmd.Flags().Int64Var(&from, "from", 0, "with --sql: the `version` that the database has")
	return cmd
}

// checkSchema reports the changes that a migration would make.
func checkSchema(ctx context.Context, a *cli.App, store driver.Store) error {
	differences, err := store.CheckSchema(ctx)
	found := err
	other, is := errors.AsType[*penstock.SchemaError](err)
	switch {
	case is:
		differences = []string{other.Error()}
	case err != nil:
		return fmt.Errorf("checking: %w", err)
	case len(differences) > 0:
		found = penstock.WithHint(errors.New(terminal.PluralVerb(int64(len(differences)), "difference", "was found", "were found")), "run: penstock migrate")
	}
	version, err := store.SchemaVersion(ctx)
	if err != nil && !is { // then it reports the same
		return fmt.Errorf("checking: %w", err)
	}
	text := fmt.Sprintf("Penstock's tables and functions are those of this program (version %d).\n", version)
	if found != nil {
		text = strings.Join(differences, "\n") + "\n"
	}
	if err := a.Tell(map[string]any{"version": version, "differences": append([]string{}, differences...)}, "%s", text); err != nil || found == nil {
		return err
	}
	return &terminal.ExitError{Code: terminal.ExitCheck, Err: found}
}

// printMigration writes the SQL of migrate.
func printMigration(a *cli.App, from int64) error {
	url, schema, err := a.Database()
	switch {
	case errors.Is(err, cli.ErrNoDatabase):
		schema = a.Schema
	case err != nil: // the variables of the file's URL need not be set here: only its schema counts
		_, file, unread := config.Loader{DatabaseURL: "postgres://", Ask: func(string) bool { return false }}.Database(cmp.Or(a.ConfigFile, cli.DefaultConfigFile))
		if unread != nil {
			return err
		}
		schema = cmp.Or(a.Schema, file)
	case drivers.NotPostgres(url) != "":
		return terminal.Usage(errors.New("--sql is for PostgreSQL, and this database is " + drivers.NotPostgres(url) + ": run penstock migrate"))
	}
	text, err := postgres.MigrationSQL(schema, from)
	if err != nil {
		return err
	}
	_, err = io.WriteString(a.Stdout, text)
	return err
}

// migratedText describes a migration that ran, and how many differences of functions, indexes and triggers it repaired.
func migratedText(from, to int64, repaired int) string {
	switch {
	case from == 0:
		return fmt.Sprintf("Penstock's tables were created (version %d). Next: penstock outbox create NAME, or penstock queue create NAME", to)
	case from == to && repaired > 0:
		return fmt.Sprintf("Penstock's tables were up to date already (version %d), and %s.", to, terminal.PluralVerb(int64(repaired), "difference", "was repaired", "were repaired"))
	case from == to:
		return fmt.Sprintf("Penstock's tables were up to date already (version %d).", to)
	}
	return fmt.Sprintf("Penstock's tables were brought from version %d to %d.", from, to)
}
