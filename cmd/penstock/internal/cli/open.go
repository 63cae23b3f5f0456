package cli

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/internal/schema"
	"github.com/penstock/penstock/internal/terminal"
)

// OpenStore opens the database of the flags, the environment or the configuration, until the verb
// ends.
func (a *App) OpenStore(ctx context.Context) (driver.Store, error) {
	url, _, err := a.Database()
	if err != nil {
		return nil, err
	}
	return a.OpenStoreAt(ctx, url)
}

// OpenStoreAt is OpenStore with another form of its URL.
func (a *App) OpenStoreAt(ctx context.Context, url string) (driver.Store, error) {
	_, schema, err := a.Database()
	if err != nil {
		return nil, err
	}
	a.Stderr.Hide(url)
	log, err := a.Logger()
	if err != nil {
		return nil, err
	}
	open := drivers.OpenStore
	if a.Open != nil {
		open = a.Open
	}
	store, err := open(ctx, url, schema, log)
	if err == nil {
		a.Later(store.Close)
	}
	return store, err
}

// OpenWith opens the database for a verb that needs a store with certain methods. things names
// the things that other stores lack, for the error.
func OpenWith[S any](ctx context.Context, a *App, things string) (with S, err error) {
	store, err := a.OpenStore(ctx)
	if err != nil {
		return with, err
	}
	with, ok := store.(S)
	if !ok {
		return with, terminal.Usage(fmt.Errorf("this database's driver has no %s: use PostgreSQL or SQLite", things))
	}
	return with, nil
}

// Opened is the RunE of a verb that opens the database first, as OpenWith does.
func Opened[S any](a *App, things string, do func(ctx context.Context, store S, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		store, err := OpenWith[S](cmd.Context(), a, things)
		if err != nil {
			return err
		}
		return do(cmd.Context(), store, args)
	}
}

// Logger writes to stderr as --log-format and --log-level say.
func (a *App) Logger() (*slog.Logger, error) {
	return terminal.NewLogger(a.Stderr, a.LogLevel, a.LogFormat)
}

// WarnOfDifferences compares the functions of a queue, or without a name those of a relay, with this program's, while a verb runs. For a
// worker it also compares the tables; a relay learns of differences by its first call. Call the returned function before the store is
// closed.
func WarnOfDifferences(ctx context.Context, store any, queue string, worker bool, log *slog.Logger) (end func()) {
	checker, ok := store.(driver.SchemaChecker)
	if !ok {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		differences, err := checker.CheckSchemaOf(ctx, queue)
		switch { // the verb meets other errors itself
		case worker && schema.Is(err):
			log.Warn("the database's tables are not those of this program", "err", err)
		case err == nil && len(differences) > 0:
			log.Warn("the database's functions are not those of this program", "differences", differences, "hint", "run penstock migrate, or the version of penstock that was run last; penstock migrate --check lists all")
		}
	}()
	return func() {
		cancel()
		<-done
	}
}
