package queue

import (
	"cmp"
	"context"
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
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

// jobStates are those that job list shows, in its order.
var jobStates = []string{"running", "ready", "waiting", "delayed"}

// jobStore has the methods of a store that job list needs.
type jobStore interface {
	cli.JobLister
	cli.GroupReader
}

func jobListCommand(a *cli.App) *cobra.Command {
	var (
		q       admin.JobQuery
		limit   int
		grouped bool
	)
	cmd := terminal.Verb("list QUEUE", "List jobs that wait or run, with their last errors", cli.Checked(a, "queues", func(cmd *cobra.Command, _ []string) error {
		grouped = cmd.Flags().Changed("group")
		return cmp.Or(
			cli.Refuse(cmd.Flags().Changed("state") && !slices.Contains(jobStates, q.State), "--state is %q: use %s", q.State, strings.Join(jobStates, ", ")),
			cli.NotEmpty(cmd.Flags(), "kind", "key"), cli.Refuse(limit < 1, "--limit is %d: use 1 or more", limit))
	}, func(ctx context.Context, store jobStore, args []string) error {
		states := jobStates
		if q.State != "" {
			states = []string{q.State}
		}
		q.Queue = args[0]
		list := &jobTable{left: limit, now: time.Now(), Rows: a.Rows(terminal.Right("ID"), terminal.Left("STATE"), terminal.Cut("KIND", 24), terminal.Cut("KEY", 24),
			terminal.Cut("GROUP", 24), terminal.Right("ATTEMPTS"), terminal.Left("AGE"), terminal.Left("UNTIL"), terminal.Cut("WORKER", 24), terminal.Cut("ERROR", 64))}
		for _, q.State = range states {
			if err := list.read(ctx, store, q, grouped); err != nil {
				return about.Queue(err, "reading jobs", args[0])
			}
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

// read writes the jobs of a state, page by page. The ready jobs of each group have their order: without a chosen one it reads group after group.
func (l *jobTable) read(ctx context.Context, store jobStore, q admin.JobQuery, grouped bool) error {
	if q.State != "ready" || grouped {
		return l.pages(ctx, store, q)
	}
	for after := ""; ; {
		groups, err := store.QueueGroups(ctx, q.Queue, after, cli.GroupsAtOnce)
		if err != nil {
			return err
		}
		for i := range groups {
			after = groups[i].Group
			if groups[i].Ready == 0 || l.More != "" {
				continue
			}
			q.Group = after
			if err := l.pages(ctx, store, q); err != nil {
				return err
			}
		}
		if len(groups) < cli.GroupsAtOnce || l.More != "" {
			return nil
		}
	}
}

func (l *jobTable) pages(ctx context.Context, store jobStore, q admin.JobQuery) error {
	for l.More == "" {
		q.Limit = min(l.left+1, donePage) // one more means that there are more
		page, err := store.ListJobs(ctx, q)
		if err != nil {
			return err
		}
		for i := range page.Jobs {
			if l.left == 0 {
				l.More = "raise --limit, or narrow the choice"
				return nil
			}
			l.left--
			l.write(&page.Jobs[i], q.State)
		}
		if q.After = page.Next; q.After == "" {
			break
		}
	}
	return l.Err()
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

func (l *jobTable) write(f *admin.Found, state string) {
	m, w := &f.Message, f.Where[0]
	kind, until := m.Headers[penstock.HeaderKind], ""
	if !w.Until.IsZero() {
		until = cli.Until(w.Until, l.now)
	}
	reason, _, _ := strings.Cut(penstock.LastError(w.Failures), "\n")
	l.Add(listedJob{m.Seq, kind, m.Key, f.Group, f.Priority, m.CreatedAt.UTC(), w},
		strconv.FormatInt(m.Seq, 10), state, kind, m.Key, f.Group, strconv.Itoa(w.Attempts), cli.Since(m.CreatedAt, l.now), until, w.Worker, reason)
}
