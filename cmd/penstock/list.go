package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
)

// nameStore is a store as lists of names see it: what things hold is not looked at.
type nameStore interface {
	namer
	Close() error
}

func (a *app) openNames(ctx context.Context) (nameStore, error) {
	return openWith[nameStore](ctx, a, "list of names")
}

// namesOf is for listCommand.
func namesOf(things string) func(context.Context, nameStore) ([]string, error) {
	return func(ctx context.Context, store nameStore) ([]string, error) { return store.Names(ctx, things) }
}

// listCommand is the verb that lists the names of one kind of thing: a name a line, or
// one JSON array.
func listCommand[S io.Closer](a *app, things string, open func(context.Context) (S, error), names func(context.Context, S) ([]string, error)) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:  "list",
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			store, err := open(ctx)
			if err != nil {
				return err
			}
			defer store.Close()
			found, err := names(ctx, store)
			if err != nil {
				return fmt.Errorf("listing %s: %w", things, err)
			}
			slices.Sort(found) // by bytes, whatever the database's locale
			if asJSON {
				return json.NewEncoder(a.stdout).Encode(append([]string{}, found...)) // [] rather than null
			}
			for _, name := range found {
				fmt.Fprintln(a.stdout, visible(name))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "a JSON array on one line")
	return cmd
}
