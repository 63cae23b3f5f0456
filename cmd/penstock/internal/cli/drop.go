package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/internal/terminal"
)

// Drop describes an object that a verb would drop.
type Drop struct {
	Warning string // the loss, shown before the question
	Do      func() error
	Fields  map[string]any // the dropped objects, for programs
	Gone    string         // and for people
}

// DropCommand is the verb that drops a thing with its contents, once its name was typed or --yes is
// given.
func DropCommand(a *App, find func(ctx context.Context, name string) (Drop, error)) *cobra.Command {
	leave := Consent{Undone: "nothing was dropped"}
	cmd := &cobra.Command{
		Use:  "drop NAME",
		Args: terminal.Exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if err := a.Possible(leave); err != nil {
				return err
			}
			drop, err := find(ctx, args[0])
			if err != nil {
				return err
			}
			if err := a.ConfirmName(ctx, leave, drop.Warning, args[0]); err != nil {
				return err
			}
			if err := drop.Do(); err != nil {
				return err
			}
			return a.Tell(drop.Fields, "%s\n", drop.Gone)
		},
	}
	cmd.Flags().BoolVar(&leave.Yes, "yes", false, "do not ask")
	return a.WithJSON(cmd, "the dropped object as one JSON line")
}
