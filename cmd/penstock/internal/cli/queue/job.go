package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

func JobCommand(a *cli.App) *cobra.Command {
	return terminal.Group(&cobra.Command{Use: "job", Short: "List and cancel jobs, or run them now"},
		jobCancelCommand(a), jobListCommand(a), jobRetryCommand(a))
}

func jobCancelCommand(a *cli.App) *cobra.Command {
	return a.WithJSON(terminal.Verb("cancel QUEUE ID…", "Remove jobs that wait, and stop those that run",
		onJobs(a, "cancelled", "done, dead, or never there", driver.QueueStore.CancelJobs)), "how many, as one JSON line")
}

func jobRetryCommand(a *cli.App) *cobra.Command {
	return a.WithJSON(terminal.Verb("retry QUEUE ID…", "Run jobs now that are delayed, failed and wait, or are dead",
		onJobs(a, "run now", "done, running, ready, waiting, or never there", func(store driver.QueueStore, ctx context.Context, queue string, ids ...int64) (int, error) {
			return store.RetryDeadJobs(ctx, admin.DeadJobQuery{Queue: queue, IDs: ids})
		})), "how many, as one JSON line")
}

// onJobs acts on the jobs of a queue with the given ids. others are the states of jobs that it leaves alone.
func onJobs(a *cli.App, past, others string, act func(store driver.QueueStore, ctx context.Context, queue string, ids ...int64) (int, error)) func(*cobra.Command, []string) error {
	var ids []int64
	return cli.Checked(a, "queues", func(_ *cobra.Command, args []string) (err error) {
		ids, err = cli.JobIDs(args[1:])
		return err
	}, func(ctx context.Context, store driver.QueueStore, args []string) error {
		n, err := act(store, ctx, args[0], ids...)
		if err != nil {
			return about.Queue(err, "changing jobs", args[0])
		}
		text := fmt.Sprintf("%s of %s %s", terminal.Plural(int64(n), "job"), shell.Visible(args[0]), past)
		if rest := len(ids) - n; rest > 0 {
			text += fmt.Sprintf("; %s not: %s", terminal.Count(int64(rest)), others)
		}
		return a.Tell(map[string]any{"queue": args[0], strings.ReplaceAll(past, " ", "_"): n}, "%s.\n", text)
	})
}

// donePage is how many jobs one call asks for.
const donePage = 1000

func doneCommand(a *cli.App) *cobra.Command {
	var (
		given  []string
		wanted []int64
		kind   string
		limit  int
	)
	cmd := terminal.Verb("done NAME", "List jobs that are done, the latest first", cli.Checked(a, "queues", func(cmd *cobra.Command, _ []string) (err error) {
		wanted, err = cli.JobIDs(given)
		return cmp.Or(err, cli.NotEmpty(cmd.Flags(), "kind"), cli.Refuse(limit < 1, "--limit is %d: use 1 or more", limit))
	}, func(ctx context.Context, store driver.QueueStore, args []string) error {
		history, ok := store.(driver.HistoryStore)
		if !ok {
			return terminal.Usage(errors.New("this database keeps no jobs that are done: PostgreSQL does"))
		}
		now := time.Now()
		rows := a.Rows(terminal.Right("ID"), terminal.Cut("KIND", 24), terminal.Cut("KEY", 24), terminal.Cut("GROUP", 24), terminal.Right("ATTEMPT"),
			terminal.Cut("WORKER", 24), terminal.Right("TOOK"), terminal.Left("AGE"), terminal.Cut("REPORT", 64))
		q := admin.DoneJobQuery{Queue: args[0], IDs: wanted, Kind: kind}
		for rows.Shown < limit && rows.Err() == nil {
			q.Limit = min(donePage, limit-rows.Shown)
			found, next, err := history.DoneJobs(ctx, q)
			if err != nil {
				return about.Queue(err, "reading jobs that are done", args[0])
			}
			for i := range found {
				j, took := &found[i], "?"
				if !j.ClaimedAt.IsZero() {
					took = cli.Age(j.Duration())
				}
				rows.Add(j, fmt.Sprint(j.ID), j.Kind, j.Key, j.Group, fmt.Sprint(j.Attempt), j.Worker, took, cli.Since(j.FinishedAt, now), string(j.Report))
			}
			if q.After = next; next == "" {
				break
			}
		}
		if rows.Shown == 0 && !a.JSON {
			return nothingDone(ctx, a, store, args[0], len(wanted) > 0 || kind != "")
		}
		return rows.End("")
	}))
	cmd.Flags().StringArrayVar(&given, "id", nil, "only the job with this `id`; may be repeated")
	cmd.Flags().StringVar(&kind, "kind", "", "only jobs of this `kind`")
	cmd.Flags().IntVar(&limit, "limit", 100, "at most this `number`")
	return a.WithJSON(cmd, "one JSON object per line")
}

// nothingDone explains why there is nothing to list.
func nothingDone(ctx context.Context, a *cli.App, store cli.QueueStatusReader, name string, narrowed bool) error {
	q, err := findQueue(ctx, store, name, uncounted)
	if err != nil {
		return err
	}
	if q.KeepDone == nil || *q.KeepDone == 0 {
		_, err = fmt.Fprintf(a.Stdout, "Queue %s keeps no jobs that are done: penstock queue set %s --keep-done 24h begins to.\n", shell.Visible(name), shell.Word(name))
		return err
	}
	_, err = fmt.Fprintf(a.Stdout, "0 jobs of %s are kept%s.\n", shell.Visible(name), map[bool]string{true: " that match"}[narrowed])
	return err
}
