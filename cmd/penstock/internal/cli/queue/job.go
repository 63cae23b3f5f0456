package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

func JobCommand(a *cli.App) *cobra.Command {
	return terminal.Group(&cobra.Command{Use: "job", Short: "List, show and cancel jobs, or run them now"},
		jobCancelCommand(a), jobListCommand(a), jobRetryCommand(a), jobShowCommand(a))
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
	return a.Checked(func(_ *cobra.Command, args []string) (err error) {
		ids, err = cli.JobIDs(args[1:])
		return err
	}, func(ctx context.Context, store driver.Database, args []string) error {
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
		wanted []int64
		kind   string
		limit  int
	)
	cmd := terminal.Verb("done NAME [ID…]", "List jobs that are done, the latest first", a.Checked(func(cmd *cobra.Command, args []string) (err error) {
		wanted, err = cli.JobIDs(args[1:])
		return cmp.Or(err, cli.NotEmpty(cmd.Flags(), "kind"), cli.Refuse(limit < 1, "--limit is %d: use 1 or more", limit))
	}, func(ctx context.Context, store driver.Database, args []string) error {
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
	cmd.Flags().StringVar(&kind, "kind", "", "only jobs of this `kind`")
	cmd.Flags().IntVar(&limit, "limit", 100, "at most this `number`")
	return a.WithJSON(cmd, "one JSON object per line")
}

// nothingDone explains why there is nothing to list.
func nothingDone(ctx context.Context, a *cli.App, store driver.QueueStore, name string, narrowed bool) error {
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

// jobStates are those that job list shows, in its order.
var jobStates = []string{"running", "ready", "waiting", "delayed"}

func jobListCommand(a *cli.App) *cobra.Command {
	var (
		q       admin.JobQuery
		limit   int
		grouped bool
	)
	cmd := terminal.Verb("list QUEUE", "List jobs that wait or run, with their last errors", a.Checked(func(cmd *cobra.Command, _ []string) error {
		grouped = cmd.Flags().Changed("group")
		return cmp.Or(
			cli.Refuse(cmd.Flags().Changed("state") && !slices.Contains(jobStates, q.State), "--state is %q: use %s", q.State, strings.Join(jobStates, ", ")),
			cli.NotEmpty(cmd.Flags(), "kind", "key"), cli.Refuse(limit < 1, "--limit is %d: use 1 or more", limit))
	}, func(ctx context.Context, store driver.Database, args []string) error {
		states := jobStates
		if q.State != "" {
			states = []string{q.State}
		}
		q.Queue = args[0]
		list := &jobTable{left: limit, now: time.Now(), Rows: a.Rows(terminal.Right("ID"), terminal.Left("STATE"), terminal.Cut("KIND", 24), terminal.Cut("KEY", 24),
			terminal.Cut("GROUP", 24), terminal.Right("ATTEMPTS"), terminal.Left("AGE"), terminal.Left("UNTIL"), terminal.Cut("WORKER", 24), terminal.Cut("ERROR", 64))}
		q.Limit = min(limit+1, donePage) // one more means that there are more
		pages := jobPages{each: list.add}
		for _, q.State = range states {
			if err := pages.read(ctx, store, q, grouped); err != nil {
				return about.Queue(err, "reading jobs", args[0])
			}
		}
		if err := list.Err(); err != nil {
			return err
		}
		return list.End(fmt.Sprintf("0 jobs of %s match.", shell.Visible(args[0])))
	}))
	flags := cmd.Flags()
	flags.StringVar(&q.State, "state", "", "only jobs in this `state`: "+strings.Join(jobStates, ", ")+" (default: all of them)")
	flags.StringVar(&q.Kind, "kind", "", "only jobs of this `kind`")
	flags.StringVar(&q.Group, "group", "", "only jobs of this `group`; with --state ready an empty one stands for jobs without a group")
	flags.StringVar(&q.Key, "key", "", "only jobs of this `key`")
	flags.BoolVar(&q.Newest, "newest", false, "of each state the newest first, rather than those that are next")
	flags.IntVar(&limit, "limit", 100, "at most this `number`")
	return a.WithJSON(cmd, "one JSON object per line")
}

// jobTable writes jobs up to a limit.
type jobTable struct {
	*cli.Rows
	left int
	now  time.Time
}

// add reports whether it takes more.
func (l *jobTable) add(f *admin.Found) bool {
	if l.left == 0 {
		l.More = "raise --limit, or narrow the choice"
		return false
	}
	l.left--
	l.write(f)
	return l.Err() == nil
}

// jobPages hands jobs to each until that returns false.
type jobPages struct {
	each func(f *admin.Found) (more bool)
	over bool
}

// read reads the jobs of a state, page by page. The ready jobs of each group have their order: without a chosen one it reads group after group.
func (p *jobPages) read(ctx context.Context, store driver.QueueStore, q admin.JobQuery, grouped bool) error {
	if q.State != "ready" || grouped {
		return p.pages(ctx, store, q)
	}
	for after := ""; ; {
		groups, err := store.QueueGroups(ctx, q.Queue, after, cli.GroupsAtOnce)
		if err != nil {
			return err
		}
		for i := range groups {
			after = groups[i].Group
			if groups[i].Ready == 0 || p.over {
				continue
			}
			q.Group = after
			if err := p.pages(ctx, store, q); err != nil {
				return err
			}
		}
		if len(groups) < cli.GroupsAtOnce || p.over {
			return nil
		}
	}
}

func (p *jobPages) pages(ctx context.Context, store driver.QueueStore, q admin.JobQuery) error {
	for !p.over {
		page, err := store.ListJobs(ctx, q)
		if err != nil {
			return err
		}
		for i := range page.Jobs {
			if p.over = !p.each(&page.Jobs[i]); p.over {
				return nil
			}
		}
		if q.After = page.Next; q.After == "" {
			break
		}
	}
	return nil
}

// listedJob is a job in JSON, without its payload.
type listedJob struct {
	ID        int64     `json:"id"`
	Kind      string    `json:"kind,omitempty"`
	Key       string    `json:"key,omitempty"`
	Group     string    `json:"group,omitempty"`
	Priority  int       `json:"priority"`
	CreatedAt time.Time `json:"created_at"`
	admin.Whereabouts
}

func listed(f *admin.Found) listedJob {
	m := &f.Message
	return listedJob{m.Seq, m.Headers[penstock.HeaderKind], m.Key, f.Group, f.Priority, m.CreatedAt.UTC(), f.Where[0]}
}

func (l *jobTable) write(f *admin.Found) {
	j, w, until := listed(f), f.Where[0], ""
	if !w.Until.IsZero() {
		until = cli.Until(w.Until, l.now)
	}
	reason, _, _ := strings.Cut(penstock.LastError(w.Failures), "\n")
	l.Add(j, strconv.FormatInt(j.ID, 10), w.State, j.Kind, j.Key, j.Group, strconv.Itoa(w.Attempts), cli.Since(j.CreatedAt, l.now), until, w.Worker, reason)
}

func workersCommand(a *cli.App) *cobra.Command {
	return a.WithJSON(terminal.Verb("workers [QUEUE]", "List workers, idle ones too",
		a.Opened(func(ctx context.Context, store driver.Database, args []string) error {
			workers, ok := store.(driver.WorkerStore)
			if !ok {
				return terminal.Usage(errors.New("this database keeps no heartbeats of workers: PostgreSQL does"))
			}
			queue := strings.Join(args, "")
			found, err := workers.Workers(ctx, queue, cli.CountedUpTo)
			if err != nil {
				return about.Queue(err, "reading workers", queue)
			}
			if len(found) == 0 && queue != "" {
				if _, err := findQueue(ctx, store, queue, uncounted); err != nil {
					return err
				}
			}
			var jobs []doctor.Running
			if leases, ok := store.(doctor.Examiner); ok {
				if jobs, err = leases.Running(ctx, queue, cli.CountedUpTo); err != nil && !pgerror.IsForbidden(err) {
					return about.Queue(err, "reading leases", queue)
				}
			}
			now, rows := time.Now(), a.Rows(terminal.Cut("QUEUE", 24), terminal.Cut("WORKER", 32), terminal.Left("STATE"), terminal.Right("RUNNING"),
				terminal.Left("LAST CLAIM"), terminal.Right("DONE"), terminal.Right("FAILED"), terminal.Left("SEEN"), terminal.Cut("VERSION", 24))
			for i := range found {
				w := &found[i]
				claimed, running := "never", terminal.Count(int64(w.Running))
				if !w.ClaimedAt.IsZero() {
					claimed = cli.Since(w.ClaimedAt, now)
				}
				if w.Concurrency > 0 {
					running += " of " + terminal.Count(int64(w.Concurrency))
				}
				state := doctor.StateOf(w, now, jobs)
				rows.Add(workerJSON{w, state}, w.Queue, w.Name, state, running, claimed,
					terminal.Count(w.Done), terminal.Count(w.Failed+w.Dead), cli.Since(w.SeenAt, now), w.Version)
			}
			return rows.End("No worker has sent a heartbeat in the last ten minutes.")
		})), "one JSON object per line")
}

type workerJSON struct {
	*admin.Worker
	State string `json:"state"`
}
