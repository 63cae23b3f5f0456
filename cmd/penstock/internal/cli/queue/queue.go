// Package queue has the verbs about queues: queue, enqueue, job and schedule.
package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

func Command(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "queue",
		Short: "Create, set up, pause, list and drop job queues",
		Long: `A queue is a table of jobs in your own database. Applications insert jobs in their own
transactions, and workers run each job until it is done.

  penstock queue create emails
  penstock enqueue emails '{"to":"ann@example.org"}'
  penstock work emails --exec './send-mail'
  penstock status`,
	}
	return terminal.Group(cmd, createCommand(a), setCommand(a), pauseCommand(a, true), pauseCommand(a, false), listCommand(a), groupCommand(a), doneCommand(a), grantCommand(a), dropCommand(a))
}

// uncounted asks only for the settings of a queue: counting its jobs may take longer than the verb.
const uncounted = -1

// findQueue describes one queue, counted up to most.
func findQueue(ctx context.Context, store cli.QueueStatusReader, name string, most int) (*admin.QueueStatus, error) {
	queues, err := cli.QueueStatusUpTo(ctx, store, most, name)
	if err != nil {
		return nil, fmt.Errorf("reading the status of queues: %w", err)
	}
	for i := range queues {
		if queues[i].Queue == name {
			return &queues[i], nil
		}
	}
	return nil, about.Queue(penstock.ErrNoQueue, "", name)
}

func createCommand(a *cli.App) *cobra.Command {
	var (
		order     string
		ifMissing bool
		settings  queueFlags
	)
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a queue",
		Long: `Create a queue. Its name may be any text of 1 to 48 bytes that no outbox has;
names of small letters, digits and underscores need no quoting in SQL.

--order says which job of one priority runs first: the oldest (fifo) or the newest
(lifo). It cannot be changed later. penstock queue set explains the other flags and
changes their settings.`,
		Example: `  penstock queue create emails
  penstock queue create emails --if-missing
  penstock queue create previews --order lifo --max-attempts 3 --max-running 20`,
		Args: terminal.Exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			wanted, err := settings.read(cmd.Flags())
			if err != nil {
				return err
			}
			if order != string(penstock.FIFO) && order != string(penstock.LIFO) {
				return terminal.Usage(fmt.Errorf("--order is %q: use fifo or lifo", order))
			}
			store, err := cli.OpenWith[driver.QueueStore](ctx, a, "queues")
			if err != nil {
				return err
			}
			err = store.CreateQueue(ctx, args[0], penstock.QueueOrder(order))
			if ifMissing && errors.Is(err, penstock.ErrQueueExists) {
				err = alreadyThere(ctx, a, store, args[0], penstock.QueueOrder(order))
			}
			if err != nil {
				return fmt.Errorf("creating queue %q: %w", args[0], cli.NameTaken(err, "a queue"))
			}
			if wanted != (penstock.QueueSettings{}) {
				if err := store.SetQueue(ctx, args[0], wanted); err != nil {
					return fmt.Errorf("queue %q is there, but not set up: %w", args[0], err)
				}
			}
			return a.Tell(map[string]any{"queue": args[0]}, "Queue %s is ready.\n", shell.Visible(args[0]))
		},
	}
	settings.add(cmd.Flags())
	cmd.Flags().StringVar(&order, "order", string(penstock.FIFO), "`order` of jobs of one priority: fifo, the oldest first, or lifo, the newest first")
	cmd.Flags().BoolVar(&ifMissing, "if-missing", false, "succeed if it exists already")
	return a.WithJSON(cmd, "the created object as one JSON line")
}

// alreadyThere checks that an existing queue of that name has the requested order.
func alreadyThere(ctx context.Context, a *cli.App, store cli.QueueStatusReader, name string, order penstock.QueueOrder) error {
	q, err := findQueue(ctx, store, name, uncounted)
	if err == nil && q.Order != order {
		return terminal.Usage(fmt.Errorf("it exists with the order %s, which cannot be changed: pass --order %s, or choose another name", q.Order, q.Order))
	}
	return err
}

func listCommand(a *cli.App) *cobra.Command {
	cmd := cli.ListCommand(a, "queues", cli.NamesOf("queues"))
	cmd.Short = "List the queues"
	cmd.Long = `List the names of the queues. penstock status shows their contents.`
	cmd.Example = `  penstock queue list
  penstock queue list --json`
	return cmd
}

func dropCommand(a *cli.App) *cobra.Command {
	cmd := cli.DropCommand(a, func(ctx context.Context, name string) (cli.Drop, error) {
		store, err := cli.OpenWith[driver.QueueStore](ctx, a, "queues")
		if err != nil {
			return cli.Drop{}, err
		}
		q, err := findQueue(ctx, store, name, cli.CountedUpTo)
		if err != nil {
			return cli.Drop{}, err
		}
		lost := fmt.Sprintf("%s, %s", cli.PluralOf(jobsLeft(q), "jobs", anyMore(q), "job"), cli.PluralOf(q.DeadLetters, "dead_letters", q.AtLeast, "dead letter"))
		fields := map[string]any{"queue": name, "jobs": jobsLeft(q), "dead_letters": q.DeadLetters}
		if more := slices.DeleteFunc(append(anyMore(q), q.AtLeast...), func(name string) bool { return name != "jobs" && name != "dead_letters" }); len(more) > 0 {
			fields["at_least"] = more
		}
		return cli.Drop{
			Warning: fmt.Sprintf("This deletes queue %s with everything in it: %s.", shell.Visible(name), lost),
			Do: func() error {
				return about.Queue(store.DropQueue(ctx, name), fmt.Sprintf("dropping queue %q", name), name)
			},
			Fields: fields,
			Gone:   fmt.Sprintf("Queue %s is gone (%s).", shell.Visible(name), lost),
		}, nil
	})
	cmd.Short = "Drop a queue with every job in it"
	cmd.Long = `Drop a queue with its jobs, schedules and dead letters. Its workers report that it is
missing, and keep trying. It says how many jobs there are and asks for the queue's name.
Without a terminal it refuses unless --yes is given. On PostgreSQL it waits until open
transactions that have used the queue end.`
	cmd.Example = `  penstock queue drop emails
  penstock queue drop emails --yes`
	return cmd
}

// anyMore says whether there are more jobs than were counted.
func anyMore(q *admin.QueueStatus) []string {
	for _, name := range q.AtLeast {
		if name != "dead_letters" {
			return []string{"jobs"}
		}
	}
	return nil
}

// jobsLeft counts the jobs that are neither done nor dead.
func jobsLeft(q *admin.QueueStatus) int64 { return q.Ready + q.Running + q.Delayed + q.Waiting }

var grantableQueue = cli.Grantable{Kind: "queue", Argument: "QUEUE", About: about.Queue, Rights: []cli.Privilege{
	{Flag: "enqueue", Help: "enqueue jobs, and nothing else", Grant: cli.Granter.GrantEnqueuer},
	{Flag: "work", Help: "claim jobs and settle them, as a worker does", Grant: cli.Granter.GrantWorker},
	{Flag: "operate", Help: "operate it: status, dead letters, pause, cancel", Grant: cli.Granter.GrantOperator},
}}

func grantCommand(a *cli.App) *cobra.Command {
	cmd := a.GrantCommand(grantableQueue)
	cmd.Short = "Let a role of PostgreSQL use a queue"
	cmd.Long = `Let a role of PostgreSQL use one queue, with no more rights than it needs. The role must
exist. Only the owner of the schema can grant.

  --enqueue  for applications: it can write jobs, by penstock.enqueue, by a plain
             INSERT or with penstock enqueue, and cannot read any
  --work     for workers: it can claim jobs and settle them, and cannot read jobs that
             it has not claimed
  --operate  for operators: it can see the queue's status, list, retry and discard
             dead letters, pause, resume and cancel. It can neither enqueue nor claim

Several flags grant each of them. A grant that exists already is not an error. A right
ends with "revoke", "drop owned by ROLE" or with the queue.

penstock outbox grant is for relays and for applications that publish.`
	cmd.Example = `  penstock queue grant emails webshop --enqueue
  penstock queue grant emails mail_worker --work
  penstock queue grant emails oncall --operate`
	return cmd
}
