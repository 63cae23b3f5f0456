package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

func ScheduleCommand(a *cli.App) *cobra.Command {
	return terminal.Group(&cobra.Command{Use: "schedule", Short: "Set, pause, run, list and drop periodic jobs"},
		scheduleSetCommand(a), schedulePauseCommand(a, true), schedulePauseCommand(a, false), scheduleRunCommand(a), scheduleListCommand(a), scheduleDropCommand(a))
}

func scheduleSetCommand(a *cli.App) *cobra.Command {
	var (
		f jobFlags
		s penstock.Schedule
	)
	cmd := terminal.Verb("set QUEUE NAME --cron TEXT [PAYLOAD|-]", "Make or change a periodic job",
		a.Checked(func(cmd *cobra.Command, args []string) error {
			if s.Cron == "" {
				return terminal.Usage(errors.New("--cron is missing: give it five fields, such as '30 4 * * *', or @daily"))
			}
			payload, err := payloadArgument(cmd.Context(), a, append(args, "")[2])
			if err != nil {
				return err
			}
			s.Queue, s.Name = args[0], args[1]
			s.Job, err = f.read(cmd.Flags(), payload)
			return err
		}, func(ctx context.Context, store driver.Database, args []string) error {
			if err := store.SetSchedule(ctx, s); err != nil {
				return about.Queue(err, fmt.Sprintf("setting schedule %q of queue %q", args[1], args[0]), args[0])
			}
			return showSchedule(ctx, a, store, args[0], args[1])
		}))
	f.add(cmd.Flags())
	cmd.Flags().StringVar(&s.Cron, "cron", "", "`times` in UTC, or in a zone as in TZ=Europe/Berlin: five fields, or @hourly, @daily, @weekly, @monthly, @yearly")
	cmd.Flags().BoolVar(&s.SkipOverlap, "skip-overlap", false, "enqueue no job while the last one of the schedule has not ended")
	return a.WithJSON(cmd, "the schedule as one JSON line")
}

func schedulePauseCommand(a *cli.App, pause bool) *cobra.Command {
	use, short, doing := "pause QUEUE NAME", "Pause a periodic job", "pausing"
	if !pause {
		use, short, doing = "resume QUEUE NAME", "End the pause of a periodic job", "resuming"
	}
	cmd := terminal.Verb(use, short, a.Opened(func(ctx context.Context, store driver.Database, args []string) error {
		act := store.PauseSchedule
		if !pause {
			act = store.ResumeSchedule
		}
		if err := act(ctx, args[0], args[1]); err != nil {
			return aboutSchedule(err, doing, args)
		}
		return showSchedule(ctx, a, store, args[0], args[1])
	}))
	return a.WithJSON(cmd, "the schedule as one JSON line")
}

func scheduleRunCommand(a *cli.App) *cobra.Command {
	cmd := terminal.Verb("run QUEUE NAME", "Enqueue a periodic job now",
		a.Opened(func(ctx context.Context, store driver.Database, args []string) error {
			made, err := store.RunSchedule(ctx, args[0], args[1])
			if err != nil {
				return aboutSchedule(err, "running", args)
			}
			how := "enqueued"
			if made.Deduplicated {
				how = "not enqueued: its dedup key belongs to this one"
			}
			return a.Tell(map[string]any{"queue": args[0], "name": args[1], "id": made.ID, "deduplicated": made.Deduplicated},
				"Job %d of %s: %s.\n", made.ID, shell.Visible(args[0]), how)
		}))
	return a.WithJSON(cmd, "the job's id as one JSON line")
}

// aboutSchedule names the action and the schedule in an error.
func aboutSchedule(err error, doing string, args []string) error {
	if errors.Is(err, penstock.ErrNoSchedule) {
		return fmt.Errorf("schedule %q of queue %q: %w", args[1], args[0], penstock.ErrNoSchedule)
	}
	return about.Queue(err, fmt.Sprintf("%s schedule %q of queue %q", doing, args[1], args[0]), args[0])
}

func scheduleListCommand(a *cli.App) *cobra.Command {
	cmd := terminal.Verb("list QUEUE", "List the periodic jobs of a queue",
		a.Opened(func(ctx context.Context, store driver.Database, args []string) error {
			schedules, err := store.Schedules(ctx, args[0])
			if err != nil {
				return about.Queue(err, "reading schedules", args[0])
			}
			if slices.ContainsFunc(schedules, func(s penstock.Schedule) bool { return isOverdue(&s) }) {
				defer fmt.Fprintf(a.Stderr, "penstock: a schedule is overdue: no worker of the queue seems to run, or the queue is paused: %s\n", cli.StartWorkers+a.Suggest("penstock work "+shell.Word(args[0])+" --exec COMMAND"))
			}
			rows := a.Rows(terminal.Cut("NAME", 24), terminal.Cut("CRON", 24), terminal.Left("NEXT (UTC)"), terminal.Right("LAST JOB"), terminal.Left("OVERLAP"),
				terminal.Cut("KIND", 16), terminal.Cut("KEY", 16), terminal.Cut("DEDUP KEY", 16),
				terminal.Cut("GROUP", 16), terminal.Right("PRIORITY"), terminal.Cut("PAYLOAD", 32))
			for i := range schedules {
				s := &schedules[i]
				rows.Add(scheduleForPrograms(s), s.Name, s.Cron, nextOf(s), lastJob(s), map[bool]string{true: "skip"}[s.SkipOverlap],
					s.Job.Kind, s.Job.Key, s.Job.DedupKey, s.Job.Group, fmt.Sprint(s.Job.Priority), string(s.Job.Payload))
			}
			return rows.End(fmt.Sprintf("Queue %s has no schedule yet: %s makes one.", shell.Visible(args[0]),
				a.Suggest("penstock schedule set "+shell.Word(args[0])+" NAME --cron TEXT")))
		}))
	return a.WithJSON(cmd, "one JSON line per schedule")
}

// overdueAfter is how long after its time a schedule is overdue: workers look about once a second.
const overdueAfter = 10 * time.Second

// isOverdue reports whether no worker has enqueued the job of a schedule although it is time.
func isOverdue(s *penstock.Schedule) bool { return !s.Paused && time.Since(s.Next) > overdueAfter }

// nextOf is when a schedule runs next.
func nextOf(s *penstock.Schedule) string {
	switch {
	case s.Paused:
		return "paused"
	case isOverdue(s):
		return utc(s.Next) + ", overdue"
	}
	return utc(s.Next)
}

func lastJob(s *penstock.Schedule) string {
	if s.LastJob == 0 {
		return ""
	}
	return fmt.Sprint(s.LastJob)
}

func utc(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }

func scheduleDropCommand(a *cli.App) *cobra.Command {
	cmd := terminal.Verb("drop QUEUE NAME", "Drop a periodic job",
		a.Opened(func(ctx context.Context, store driver.Database, args []string) error {
			if err := store.DropSchedule(ctx, args[0], args[1]); err != nil {
				return aboutSchedule(err, "dropping", args)
			}
			return a.Tell(map[string]any{"queue": args[0], "name": args[1]}, "Schedule %s of %s is gone.\n", shell.Visible(args[1]), shell.Visible(args[0]))
		}))
	return a.WithJSON(cmd, "the dropped object as one JSON line")
}

// scheduleJSON is a schedule for programs.
type scheduleJSON struct {
	Queue       string            `json:"queue"`
	Name        string            `json:"name"`
	Cron        string            `json:"cron"`
	Next        time.Time         `json:"next"`
	Paused      bool              `json:"paused"`
	SkipOverlap bool              `json:"skip_overlap"`
	LastJob     int64             `json:"last_job,omitempty"`
	Kind        string            `json:"kind"`
	Key         string            `json:"key"`
	DedupKey    string            `json:"dedup_key"`
	Group       string            `json:"group"`
	Priority    int               `json:"priority"`
	Headers     map[string]string `json:"headers,omitempty"`
	cli.PayloadJSON
}

func scheduleForPrograms(s *penstock.Schedule) any {
	return &scheduleJSON{
		Queue: s.Queue, Name: s.Name, Cron: s.Cron, Next: s.Next.UTC(), Paused: s.Paused, SkipOverlap: s.SkipOverlap, LastJob: s.LastJob,
		Kind: s.Job.Kind, Key: s.Job.Key, DedupKey: s.Job.DedupKey, Group: s.Job.Group, Priority: s.Job.Priority, Headers: s.Job.Headers, PayloadJSON: cli.PayloadFor(s.Job.Payload),
	}
}

// showSchedule prints a schedule that was set, paused or resumed.
func showSchedule(ctx context.Context, a *cli.App, store driver.QueueStore, queue, name string) error {
	schedules, err := store.Schedules(ctx, queue)
	if err != nil {
		return about.Queue(err, "reading schedules", queue)
	}
	for i := range schedules {
		s := &schedules[i]
		switch {
		case s.Name != name:
		case a.JSON:
			return json.NewEncoder(a.Stdout).Encode(scheduleForPrograms(s))
		case s.Paused:
			fmt.Fprintf(a.Stdout, "Schedule %s of %s is paused: %s ends that.\n", shell.Visible(name), shell.Visible(queue), a.Suggest("penstock schedule resume "+shell.Word(queue)+" "+shell.Word(name)))
			return nil
		default:
			fmt.Fprintf(a.Stdout, "Schedule %s of %s runs next at %s UTC.\n", shell.Visible(name), shell.Visible(queue), utc(s.Next))
			return nil
		}
	}
	return fmt.Errorf("schedule %q of queue %q was dropped meanwhile: %w", name, queue, penstock.ErrNoSchedule)
}
