package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock"
)

func (a *app) scheduleCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schedule",
		Short: "Set, list and drop periodic jobs",
		Long: `A schedule enqueues a job again and again, at times that cron text describes, in
UTC. It lives in the database: one job is enqueued each time, however many
workers run, and if none ran for a while, one job makes up for what was missed.

  penstock schedule set reports nightly --cron '30 4 * * *' '{"days":1}'
  penstock schedule list reports`,
		Args: knownVerb,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.scheduleSetCommand(), a.scheduleListCommand(), a.scheduleDropCommand())
	return cmd
}

func (a *app) scheduleSetCommand() *cobra.Command {
	var (
		f      jobFlags
		cron   string
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "set QUEUE NAME --cron TEXT [PAYLOAD|-]",
		Short: "Make or change a periodic job",
		Long: `Make a periodic job, or change the one of that name as a whole. The payload is
PAYLOAD, with - all of stdin, and empty without either.

--cron has five fields, in UTC: minute, hour, day of month, month, day of week,
each with *, lists (1,15), ranges (1-5) and steps (*/10); or it is @hourly,
@daily, @weekly, @monthly or @yearly.

Workers of the queue, which look about twice a second, enqueue the jobs: without
one nothing happens.

With --dedup-key no job is enqueued while the queue's window lasts since the last
one with it, which may be one that an application has enqueued: give a digest
that somebody asked for just now the key of the hourly one, and it is not sent
twice. penstock queue set --dedup-window says how long the window is.`,
		Example: `  penstock schedule set reports nightly --cron '30 4 * * *' '{"days":1}'
  penstock schedule set mails digest --cron @hourly --key digest --priority 5
  penstock schedule set mails digest --cron @hourly --dedup-key digest
  penstock schedule set reports weekly --cron '0 6 * * 1' - < parameters.json`,
		Args: args(cobra.RangeArgs(2, 3)),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			if cron == "" {
				return usage(errors.New("--cron is missing: give it five fields, such as '30 4 * * *', or @daily"))
			}
			payload := ""
			if len(args) == 3 {
				payload = args[2]
			}
			bytes, err := a.payloadArgument(ctx, payload)
			if err != nil {
				return err
			}
			job, err := f.read(cmd.Flags(), bytes)
			if err != nil {
				return err
			}
			store, err := a.openQueues(ctx)
			if err != nil {
				return err
			}
			defer store.Close()
			if err := store.SetSchedule(ctx, penstock.Schedule{Queue: args[0], Name: args[1], Cron: cron, Job: job}); err != nil {
				return aboutQueue(err, fmt.Sprintf("setting schedule %q of queue %q", args[1], args[0]), args[0])
			}
			return a.showSchedule(ctx, store, args[0], args[1], asJSON)
		},
	}
	f.add(cmd.Flags())
	cmd.Flags().StringVar(&cron, "cron", "", "when, in UTC: five fields, or @hourly, @daily, @weekly, @monthly, @yearly")
	cmd.Flags().BoolVar(&asJSON, "json", false, "the schedule as one JSON line")
	return cmd
}

func (a *app) scheduleListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list QUEUE",
		Short: "List the periodic jobs of a queue",
		Long:  `List the periodic jobs of a queue by name, with the time at which each runs next.`,
		Example: `  penstock schedule list reports
  penstock schedule list reports --json | jq -r '.name + " " + .next'`,
		Args: exactly("QUEUE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			store, err := a.openQueues(ctx)
			if err != nil {
				return err
			}
			defer store.Close()
			schedules, err := store.Schedules(ctx, args[0])
			if err != nil {
				return aboutQueue(err, "reading schedules", args[0])
			}
			if asJSON {
				lines := json.NewEncoder(a.stdout)
				for i := range schedules {
					if err := lines.Encode(scheduleForPrograms(&schedules[i])); err != nil {
						return err
					}
				}
				return nil
			}
			if len(schedules) == 0 {
				fmt.Fprintf(a.stdout, "Queue %s has no schedule yet: %s makes one.\n", visible(args[0]), a.suggest("penstock schedule set"))
				return nil
			}
			return a.scheduleTable(schedules)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON line per schedule")
	return cmd
}

func (a *app) scheduleTable(schedules []penstock.Schedule) error {
	list := newTable(a.stdout, column{"NAME", 24, false}, column{"CRON", 24, false}, column{title: "NEXT (UTC)"},
		column{"KEY", 16, false}, column{"DEDUP KEY", 16, false}, column{"GROUP", 16, false}, column{title: "PRIORITY", right: true}, column{"PAYLOAD", 32, false})
	for i := range schedules {
		s := &schedules[i]
		if err := list.row(s.Name, s.Cron, utc(s.Next), s.Job.Key, s.Job.DedupKey, s.Job.Group, fmt.Sprint(s.Job.Priority), string(s.Job.Payload)); err != nil {
			return err
		}
	}
	return list.flush()
}

func utc(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }

func (a *app) scheduleDropCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "drop QUEUE NAME",
		Short:   "Drop a periodic job",
		Long:    `Drop a periodic job. What it has enqueued stays: penstock job cancel removes that.`,
		Example: `  penstock schedule drop reports nightly`,
		Args:    exactly("QUEUE", "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			store, err := a.openQueues(ctx)
			if err != nil {
				return err
			}
			defer store.Close()
			err = store.DropSchedule(ctx, args[0], args[1])
			if errors.Is(err, penstock.ErrNoSchedule) {
				return fmt.Errorf("schedule %q of queue %q: %w", args[1], args[0], penstock.ErrNoSchedule)
			}
			if err != nil {
				return aboutQueue(err, "dropping the schedule", args[0])
			}
			return a.tell(asJSON, map[string]any{"queue": args[0], "name": args[1]}, "Schedule %s of %s is gone.\n", visible(args[1]), visible(args[0]))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "what was dropped as one JSON line")
	return cmd
}

// scheduleJSON is a schedule for programs.
type scheduleJSON struct {
	Queue    string            `json:"queue"`
	Name     string            `json:"name"`
	Cron     string            `json:"cron"`
	Next     time.Time         `json:"next"`
	Key      string            `json:"key"`
	DedupKey string            `json:"dedup_key"`
	Group    string            `json:"group"`
	Priority int               `json:"priority"`
	Headers  map[string]string `json:"headers,omitempty"`
	payloadJSON
}

func scheduleForPrograms(s *penstock.Schedule) *scheduleJSON {
	return &scheduleJSON{
		Queue: s.Queue, Name: s.Name, Cron: s.Cron, Next: s.Next.UTC(),
		Key: s.Job.Key, DedupKey: s.Job.DedupKey, Group: s.Job.Group, Priority: s.Job.Priority, Headers: s.Job.Headers, payloadJSON: payloadFor(s.Job.Payload),
	}
}

// showSchedule prints one after it was set.
func (a *app) showSchedule(ctx context.Context, store scheduleReader, queue, name string, asJSON bool) error {
	schedules, err := store.Schedules(ctx, queue)
	if err != nil {
		return aboutQueue(err, "reading schedules", queue)
	}
	for i := range schedules {
		s := &schedules[i]
		switch {
		case s.Name != name:
		case asJSON:
			return json.NewEncoder(a.stdout).Encode(scheduleForPrograms(s))
		default:
			fmt.Fprintf(a.stdout, "Schedule %s of %s runs next at %s UTC.\n", visible(name), visible(queue), utc(s.Next))
			return nil
		}
	}
	return fmt.Errorf("schedule %q of queue %q was dropped meanwhile: %w", name, queue, penstock.ErrNoSchedule)
}

// scheduleReader is what looking at schedules needs of a store.
type scheduleReader interface {
	Schedules(ctx context.Context, queue string) ([]penstock.Schedule, error)
}
