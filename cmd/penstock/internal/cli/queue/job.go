package queue

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

func JobCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "job",
		Short: "Cancel jobs",
		Long: `A job is in a queue until it is done, dead or cancelled. penstock enqueue prints
its id, which it keeps through all attempts.`,
	}
	return terminal.Group(cmd, jobCancelCommand(a))
}

func jobCancelCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cancel QUEUE ID…",
		Short: "Remove jobs that wait, and stop those that run",
		Long: `Remove jobs from a queue. A waiting job never runs. A running job counts as done, and
its worker learns of it when it next extends the lease: penstock work then kills the
command. Dead letters are not jobs any more: penstock dead discard deletes them.

It prints how many there were. A job that is done already is not an error.`,
		Example: `  penstock job cancel emails 4711
  penstock job cancel emails 4711 4712 4713 --json
  penstock job cancel emails "$(penstock enqueue emails 'never mind')"`,
		Args: terminal.Args(cobra.MinimumNArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			ids, err := cli.JobIDs(args[1:])
			if err != nil {
				return err
			}
			store, err := a.OpenQueues(ctx)
			if err != nil {
				return err
			}
			n, err := store.CancelJobs(ctx, args[0], ids...)
			if err != nil {
				return about.Queue(err, "cancelling", args[0])
			}
			if a.JSON {
				return json.NewEncoder(a.Stdout).Encode(map[string]any{"queue": args[0], "cancelled": n})
			}
			fmt.Fprintf(a.Stdout, "%s of %s cancelled", terminal.Plural(int64(n), "job"), shell.Visible(args[0]))
			if rest := len(ids) - n; rest > 0 {
				fmt.Fprintf(a.Stdout, "; %s not: done, dead, or never there", terminal.Count(int64(rest)))
			}
			fmt.Fprintln(a.Stdout, ".")
			return nil
		},
	}
	return a.WithJSON(cmd, "how many, as one JSON line")
}
