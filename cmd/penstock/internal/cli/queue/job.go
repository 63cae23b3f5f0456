package queue

import (
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
	cmd := terminal.Verb("cancel QUEUE ID…", "Remove jobs that wait, and stop those that run",
		onJobs(a, "cancelled", "done, dead, or never there", driver.QueueStore.CancelJobs))
	return a.WithJSON(cmd, "how many, as one JSON line")
}

func jobRetryCommand(a *cli.App) *cobra.Command {
	cmd := terminal.Verb("retry QUEUE ID…", "Run jobs now that are delayed, failed and wait, or are dead",
		onJobs(a, "run now", "done, running, ready, waiting, or never there", func(store driver.QueueStore, ctx context.Context, queue string, ids ...int64) (int, error) {
			return store.RetryDeadJobs(ctx, admin.DeadJobQuery{Queue: queue, IDs: ids})
		}))
	return a.WithJSON(cmd, "how many, as one JSON line")
}

// onJobs acts on the jobs of a queue with the given ids. others are the states of jobs that it leaves alone.
func onJobs(a *cli.App, past, others string, act func(store driver.QueueStore, ctx context.Context, queue string, ids ...int64) (int, error)) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		ids, err := cli.JobIDs(args[1:])
		if err != nil {
			return err
		}
		store, err := cli.OpenWith[driver.QueueStore](ctx, a, "queues")
		if err != nil {
			return err
		}
		n, err := act(store, ctx, args[0], ids...)
		if err != nil {
			return about.Queue(err, "changing jobs", args[0])
		}
		text := fmt.Sprintf("%s of %s %s", terminal.Plural(int64(n), "job"), shell.Visible(args[0]), past)
		if rest := len(ids) - n; rest > 0 {
			text += fmt.Sprintf("; %s not: %s", terminal.Count(int64(rest)), others)
		}
		return a.Tell(map[string]any{"queue": args[0], strings.ReplaceAll(past, " ", "_"): n}, "%s.\n", text)
	}
}

// donePage is how many jobs one call asks for.
const donePage = 1000

func doneCommand(a *cli.App) *cobra.Command {
	var (
		ids   []string
		kind  string
		limit int
	)
	cmd := terminal.Verb("done NAME", "List jobs that are done, the latest first", func(cmd *cobra.Command, args []string) error {
		ctx, now := cmd.Context(), time.Now()
		wanted, err := cli.JobIDs(ids)
		if err != nil {
			return err
		}
		if err := cli.NotEmpty(cmd.Flags(), "kind"); err != nil {
			return err
		}
		if limit < 1 {
			return terminal.Usage(fmt.Errorf("--limit is %d: use 1 or more", limit))
		}
		open, err := cli.OpenWith[driver.QueueStore](ctx, a, "queues")
		if err != nil {
			return err
		}
		history, ok := open.(driver.HistoryStore)
		if !ok {
			return terminal.Usage(errors.New("this database keeps no jobs that are done: PostgreSQL does"))
		}
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
			return nothingDone(a, cmd, open, args[0], len(wanted) > 0 || kind != "")
		}
		return rows.End("")
	})
	cmd.Flags().StringArrayVar(&ids, "id", nil, "only the job with this `id`; may be repeated")
	cmd.Flags().StringVar(&kind, "kind", "", "only jobs of this `kind`")
	cmd.Flags().IntVar(&limit, "limit", 100, "at most this `number`")
	return a.WithJSON(cmd, "one JSON object per line")
}

// nothingDone explains why there is nothing to list.
func nothingDone(a *cli.App, cmd *cobra.Command, store cli.QueueStatusReader, name string, narrowed bool) error {
	q, err := findQueue(cmd.Context(), store, name, uncounted)
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
