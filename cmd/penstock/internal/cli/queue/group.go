package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

func groupCommand(a *cli.App) *cobra.Command {
	return terminal.Group(&cobra.Command{Use: "group", Short: "Set, hold and list limits of groups"},
		groupSetCommand(a), groupHoldCommand(a), groupListCommand(a))
}

func groupSetCommand(a *cli.App) *cobra.Command {
	var (
		p    penstock.GroupPolicy
		rate string
	)
	cmd := terminal.Verb("set QUEUE GROUP", "Set the policy of a group", a.Checked(func(_ *cobra.Command, args []string) (err error) {
		if p.Rate, err = cli.ParseRate(rate, p.Rate.Burst); err != nil {
			return err
		}
		p.Group = args[1]
		return terminal.Usage(p.Validate())
	}, func(ctx context.Context, store driver.Database, args []string) error {
		if err := store.SetGroup(ctx, args[0], p); err != nil {
			return about.Queue(err, fmt.Sprintf("setting the policy of group %q of queue %q", args[1], args[0]), args[0])
		}
		return a.Tell(struct {
			Queue string `json:"queue"`
			penstock.GroupPolicy
		}{args[0], p}, "Group %s of %s: %s.\n", shell.Visible(p.Group), shell.Visible(args[0]), cli.PolicyText(p))
	}))
	cmd.Flags().IntVar(&p.MaxRunning, "max-running", 0, "`number` of jobs of the group that may run at a time")
	cmd.Flags().StringVar(&rate, "rate", "", "`jobs/duration` that may start, such as 60/1m")
	cmd.Flags().IntVar(&p.Rate.Burst, "burst", 0, "`number` of jobs that may start at once after a pause")
	cmd.Flags().IntVar(&p.Weight, "weight", 0, "`number` of jobs that a worker takes in the group's turn")
	return a.WithJSON(cmd, "the policy as one JSON line")
}

func groupHoldCommand(a *cli.App) *cobra.Command {
	var (
		reason string
		d      time.Duration
	)
	cmd := terminal.Verb("hold QUEUE GROUP DURATION", "Let no job of a group start for a while", a.Checked(func(_ *cobra.Command, args []string) (err error) {
		if args[2] != "0" {
			if d, err = cli.ParseSpan(args[2]); err != nil {
				return terminal.Usage(fmt.Errorf("the duration is %q: %w, or 0", args[2], err))
			}
		}
		return terminal.Usage(penstock.ValidateHold(args[1], d, reason))
	}, func(ctx context.Context, store driver.Database, args []string) error {
		if err := store.HoldGroup(ctx, args[0], args[1], d, reason); err != nil {
			return about.Queue(err, fmt.Sprintf("holding group %q of queue %q", args[1], args[0]), args[0])
		}
		how := "not held"
		if d > 0 {
			how = "held for " + cli.SpanText(d)
		}
		return a.Tell(map[string]any{"queue": args[0], "group": args[1], "for_ns": d, "reason": reason},
			"Group %s of %s is %s.\n", shell.Visible(args[1]), shell.Visible(args[0]), how)
	}))
	cmd.Flags().StringVar(&reason, "reason", "", "`text` for people")
	return a.WithJSON(cmd, "the hold as one JSON line")
}

func groupListCommand(a *cli.App) *cobra.Command {
	cmd := terminal.Verb("list QUEUE", "List groups with a policy, and those that are held",
		a.Opened(func(ctx context.Context, store driver.Database, args []string) error {
			var all []admin.GroupPolicy
			for after := ""; ; after = all[len(all)-1].Group {
				page, err := store.GroupPolicies(ctx, args[0], after, cli.GroupsAtOnce)
				if err != nil {
					return about.Queue(err, fmt.Sprintf("reading the policies of queue %q", args[0]), args[0])
				}
				if all = append(all, page...); len(page) < cli.GroupsAtOnce {
					break
				}
			}
			rows := a.Rows(terminal.Cut("GROUP", 32), terminal.Right("MAX RUNNING"), terminal.Left("RATE"), terminal.Right("WEIGHT"),
				terminal.Left("HELD UNTIL (UTC)"), terminal.Cut("REASON", 40))
			for _, p := range all {
				running, rate, until := "", "", ""
				if p.MaxRunning > 0 {
					running = terminal.Count(int64(p.MaxRunning))
				}
				if p.Rate.Jobs > 0 {
					rate = cli.RateText(p.Rate)
				}
				if !p.Until.IsZero() {
					until = p.Until.UTC().Format("2006-01-02 15:04:05")
				}
				rows.Add(&p, p.Group, running, rate, fmt.Sprint(max(p.Weight, 1)), until, p.Reason)
			}
			return rows.End(fmt.Sprintf("No group of queue %s has a policy or is held: %s sets one.", shell.Visible(args[0]),
				a.Suggest("penstock queue group set "+shell.Word(args[0])+" GROUP --max-running 5")))
		}))
	return a.WithJSON(cmd, "one JSON line per group")
}
