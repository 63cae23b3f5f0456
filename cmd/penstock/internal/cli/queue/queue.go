// Package queue has the verbs about queues: queue, enqueue, job and schedule.
package queue

import (
	"cmp"
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
	return terminal.Group(&cobra.Command{Use: "queue", Short: "Create, set up, pause, list and drop job queues"},
		createCommand(a), setCommand(a), pauseCommand(a, true), pauseCommand(a, false), listCommand(a), groupCommand(a), doneCommand(a), workersCommand(a), grantCommand(a), dropCommand(a))
}

// uncounted asks only for the settings of a queue: counting its jobs may take longer than the verb.
const uncounted = -1

// findQueue describes one queue, counted up to most.
func findQueue(ctx context.Context, store driver.QueueStore, name string, most int) (*admin.QueueStatus, error) {
	queues, err := store.QueueStatusUpTo(ctx, most, name)
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
		wanted    penstock.QueueSettings
	)
	cmd := terminal.Verb("create NAME", "Create a queue", a.Checked(func(cmd *cobra.Command, _ []string) (err error) {
		wanted, err = settings.read(cmd.Flags())
		return cmp.Or(err, cli.Refuse(order != string(penstock.FIFO) && order != string(penstock.LIFO), "--order is %q: use fifo or lifo", order))
	}, func(ctx context.Context, store driver.Database, args []string) error {
		err := store.CreateQueue(ctx, args[0], penstock.QueueOrder(order))
		if ifMissing && errors.Is(err, penstock.ErrQueueExists) {
			err = alreadyThere(ctx, store, args[0], penstock.QueueOrder(order))
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
	}))
	settings.add(cmd.Flags())
	cmd.Flags().StringVar(&order, "order", string(penstock.FIFO), "`order` of jobs of one priority: fifo, the oldest first, or lifo, the newest first")
	cmd.Flags().BoolVar(&ifMissing, "if-missing", false, "succeed if it exists already")
	return a.WithJSON(cmd, "the created object as one JSON line")
}

// alreadyThere checks that an existing queue of that name has the requested order.
func alreadyThere(ctx context.Context, store driver.QueueStore, name string, order penstock.QueueOrder) error {
	q, err := findQueue(ctx, store, name, uncounted)
	if err == nil && q.Order != order {
		return terminal.Usage(fmt.Errorf("it exists with the order %s, which cannot be changed: pass --order %s, or choose another name", q.Order, q.Order))
	}
	return err
}

func listCommand(a *cli.App) *cobra.Command {
	return a.ListCommand("queues", "List the queues", driver.Database.Names)
}

func dropCommand(a *cli.App) *cobra.Command {
	return a.DropCommand("NAME", "Drop a queue with every job in it",
		func(ctx context.Context, store driver.Database, name string) (cli.Drop, error) {
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
				Gone:   fmt.Sprintf("Queue %s is gone (counted before: %s).", shell.Visible(name), lost),
			}, nil
		})
}

// anyMore reports whether there are more jobs than were counted.
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
	return a.GrantCommand("Let a role of PostgreSQL use a queue", grantableQueue)
}
