package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

// NameStore is a store for lists of names, which do not read the contents of the named things.
type NameStore interface {
	namer
	Close() error
}

// NamesOf is for ListCommand.
func NamesOf(things string) func(context.Context, NameStore) ([]string, error) {
	return func(ctx context.Context, store NameStore) ([]string, error) { return store.Names(ctx, things) }
}

// ListCommand is the verb that lists the names of one kind of thing: a name a line, or
// one JSON array.
func ListCommand[S io.Closer](a *App, things string, names func(context.Context, S) ([]string, error)) *cobra.Command {
	cmd := &cobra.Command{
		Use:  "list",
		Args: terminal.Args(cobra.NoArgs),
		RunE: Opened(a, things, func(ctx context.Context, store S, _ []string) error {
			found, err := names(ctx, store)
			if err != nil {
				return fmt.Errorf("listing %s: %w", things, err)
			}
			slices.Sort(found) // by bytes, whatever the database's locale
			if a.JSON {
				return json.NewEncoder(a.Stdout).Encode(append([]string{}, found...)) // [] rather than null
			}
			for _, name := range found {
				fmt.Fprintln(a.Stdout, shell.Visible(name))
			}
			return nil
		}),
	}
	return a.WithJSON(cmd, "a JSON array on one line")
}

// JSONLines writes each of them as a line that as makes.
func JSONLines[T any](w io.Writer, all []T, as func(*T) any) error {
	lines := json.NewEncoder(w)
	for i := range all {
		if err := lines.Encode(as(&all[i])); err != nil {
			return err
		}
	}
	return nil
}
