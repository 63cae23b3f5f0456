package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
)

func (a *app) jobCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "job",
		Short: "Cancel jobs",
		Long: `A job is in a queue until it is done, dead or cancelled. penstock enqueue prints
its id, which it keeps through all attempts.`,
		Args: knownVerb,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.jobCancelCommand())
	return cmd
}

func (a *app) jobCancelCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "cancel QUEUE ID…",
		Short: "Remove jobs that wait, and stop those that run",
		Long: `Remove jobs from a queue. One that waits never runs. One that runs counts as
done, and its worker is told the next time it extends the lease: penstock work
kills the command then. Dead letters are not jobs any more: penstock dead
discard deletes them.

It tells how many there were. A job that is done already is not an error.`,
		Example: `  penstock job cancel thumbnails 4711
  penstock job cancel mails 4711 4712 4713 --json
  penstock job cancel mails "$(penstock enqueue mails 'never mind')"`,
		Args: args(cobra.MinimumNArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			ids, err := jobIDs(args[1:])
			if err != nil {
				return err
			}
			store, err := a.openQueues(ctx)
			if err != nil {
				return err
			}
			defer store.Close()
			n, err := store.CancelJobs(ctx, args[0], ids...)
			if err != nil {
				return aboutQueue(err, "cancelling", args[0])
			}
			if asJSON {
				return json.NewEncoder(a.stdout).Encode(map[string]any{"queue": args[0], "cancelled": n})
			}
			fmt.Fprintf(a.stdout, "%s of %s cancelled", plural(int64(n), "job"), visible(args[0]))
			if rest := len(ids) - n; rest > 0 {
				fmt.Fprintf(a.stdout, "; %s not: done, dead, or never there", count(int64(rest)))
			}
			fmt.Fprintln(a.stdout, ".")
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "how many, as one JSON line")
	return cmd
}

// jobIDs reads ids, each once.
func jobIDs(texts []string) ([]int64, error) {
	ids := make([]int64, len(texts))
	for i, text := range texts {
		id, err := strconv.ParseInt(text, 10, 64)
		if err != nil || id < 1 {
			return nil, usage(fmt.Errorf("%q is no id of a job: give the number that penstock enqueue printed", text))
		}
		ids[i] = id
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}
