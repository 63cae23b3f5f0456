package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/adopt"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

func SubscriptionCommand(a *cli.App) *cobra.Command {
	return terminal.Group(&cobra.Command{Use: "subscription", Short: "Drop subscriptions that are no longer needed"},
		subscriptionDropCommand(a))
}

func subscriptionDropCommand(a *cli.App) *cobra.Command {
	var (
		adopting adopt.Flags
		leave    = cli.Consent{Undone: "nothing was dropped"}
	)
	cmd := terminal.Verb("drop [OUTBOX] NAME", "Drop a subscription with its messages", func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		if err := a.Possible(leave); err != nil {
			return err
		}
		if len(args) == 1 || adopting.Preset != "" {
			return adopt.Drop(ctx, a, &adopting, args, leave)
		}
		store, err := a.OpenStore(ctx)
		if err != nil {
			return err
		}
		return dropSubscription(ctx, a, store, args[0], args[1], leave)
	})
	cmd.Flags().BoolVar(&leave.Yes, "yes", false, "do not ask")
	a.WithJSON(cmd, "the dropped object as one JSON line")
	adopting.Add(cmd.Flags())
	return cmd
}

func dropSubscription(ctx context.Context, a *cli.App, store driver.Store, outbox, name string, leave cli.Consent) error {
	s, err := findSubscription(ctx, store, outbox, name)
	if err != nil {
		return err
	}
	lost := fmt.Sprintf("%s in its backlog, %s, %s", terminal.Plural(s.Backlog, "message"), terminal.Plural(s.Parked, "parked message"), terminal.Plural(s.DeadLetters, "dead letter"))
	warning := fmt.Sprintf("This drops subscription %s of outbox %s: %s are lost to it.", shell.Visible(name), shell.Visible(outbox), lost)
	if cli.IsHeld(&s, time.Now()) {
		// Also with --yes: a user does not expect a dropped subscription to come back.
		fmt.Fprintf(a.Stderr, "penstock: a relay runs it (%s) and will make it anew, from the oldest message that is kept: stop it first\n", shell.Visible(s.Holder))
	}
	if err := a.ConfirmName(ctx, leave, warning, name); err != nil {
		return err
	}
	if err := store.DropSubscription(ctx, outbox, name); err != nil {
		return about.Outbox(err, "dropping the subscription", outbox, name)
	}
	return a.Tell(map[string]any{"outbox": outbox, "subscription": name, "backlog": s.Backlog, "parked": s.Parked, "dead_letters": s.DeadLetters},
		"Subscription %s of %s is gone (%s).\n", shell.Visible(name), shell.Visible(outbox), lost)
}

func findSubscription(ctx context.Context, store cli.StatusReader, outbox, name string) (admin.SubscriptionStatus, error) {
	found, err := cli.FindOutbox(ctx, store, outbox)
	if err != nil {
		return admin.SubscriptionStatus{}, err
	}
	for _, s := range found.Subscriptions {
		if s.Subscription == name {
			return s, nil
		}
	}
	return admin.SubscriptionStatus{}, about.Outbox(penstock.ErrNoSubscription, "", outbox, name)
}

type replayFlags struct {
	subscription, from, to string
	dryRun                 bool
	leave                  cli.Consent
}

func ReplayCommand(a *cli.App) *cobra.Command {
	f := replayFlags{leave: cli.Consent{Undone: "nothing is replayed"}}
	var r admin.Replay
	cmd := terminal.Verb("replay OUTBOX --from TIME|SEQ", "Deliver messages again that a subscription has delivered",
		a.Checked(func(cmd *cobra.Command, args []string) (err error) {
			if r, err = f.replay(args[0], time.Now()); err != nil {
				return err
			}
			r.CountOnly = f.dryRun
			f.leave.Yes = f.leave.Yes || f.dryRun
			return cmp.Or(
				cli.Refuse(cmd.Flags().Changed("subscription") && f.subscription == "", "--subscription is empty: name one, or leave it out"),
				a.Possible(f.leave))
		}, func(ctx context.Context, store driver.Database, args []string) (err error) {
			if r.Subscription, err = cli.ChooseSubscription(ctx, store, args[0], f.subscription); err != nil {
				return err
			}
			return startReplay(ctx, a, store, r, f)
		}))
	flags := cmd.Flags()
	flags.StringVar(&f.subscription, "subscription", "", "`name` of the subscription that delivers again (default: the outbox's only one)")
	flags.StringVar(&f.from, "from", "", "`start` of the range: TIME, SEQ, -2h or beginning (required)")
	flags.StringVar(&f.to, "to", "", "`end` of the range: TIME, SEQ or -2h")
	flags.BoolVar(&f.leave.Yes, "yes", false, "do not ask")
	flags.BoolVar(&f.dryRun, "dry-run", false, "show how many messages there are, and replay none")
	return a.WithJSON(cmd, "how many, as one JSON line")
}

// replay reads the range.
func (f *replayFlags) replay(outbox string, now time.Time) (r admin.Replay, err error) {
	r.Outbox = outbox
	if f.from == "" {
		return r, terminal.Usage(errors.New("--from is not given: pass a time, a seq, -2h or beginning"))
	}
	var from, to cli.Place
	if f.from != "beginning" {
		if from, err = cli.ParsePlace(f.from, now); err != nil {
			return r, terminal.Usage(fmt.Errorf("--from is %q: %w", f.from, err))
		}
	}
	if f.to != "" {
		if to, err = cli.ParsePlace(f.to, now); err != nil {
			return r, terminal.Usage(fmt.Errorf("--to is %q: %w", f.to, err))
		}
		if to == (cli.Place{}) {
			return r, terminal.Usage(errors.New("--to is 0: no message is before seq 1"))
		}
	}
	if to.Seq > 0 && from.Seq > to.Seq || !to.Time.IsZero() && !from.Time.IsZero() && !from.Time.Before(to.Time) {
		return r, terminal.Usage(fmt.Errorf("--from %s is not before --to %s", f.from, f.to))
	}
	r.FromSeq, r.ToSeq, r.From, r.To = from.Seq, to.Seq, from.Time, to.Time
	return r, nil
}

func startReplay(ctx context.Context, a *cli.App, store driver.Store, r admin.Replay, f replayFlags) error {
	to := cli.OfSubscription(r.Outbox, r.Subscription)
	if !f.leave.Yes {
		count := r
		count.CountOnly = true
		n, err := store.Replay(ctx, count)
		if err != nil {
			return about.Outbox(err, "counting the messages to replay", r.Outbox, r.Subscription)
		}
		question := fmt.Sprintf("%s delivers %s again that it has settled, %s. Consumers see the same ids again.\nContinue?", to, terminal.Plural(n, "message"), rangeText(r))
		if err := a.Confirm(ctx, f.leave, question); err != nil {
			return err
		}
	}
	n, err := store.Replay(ctx, r)
	if err != nil {
		return about.Outbox(err, "starting the replay", r.Outbox, r.Subscription)
	}
	text := fmt.Sprintf("%s of %s will be delivered again, with the same ids; %s shows when that is done.",
		terminal.Plural(n, "message"), to, a.Suggest("penstock status"))
	if r.CountOnly {
		text = fmt.Sprintf("%s of %s would be delivered again, %s. Nothing was replayed.", terminal.Plural(n, "message"), to, rangeText(r))
	} else if n == 0 {
		text = fmt.Sprintf("0 messages: %s has settled none in this range that the outbox still has.", to)
	}
	return a.Tell(map[string]any{"outbox": r.Outbox, "subscription": r.Subscription, "messages": n}, "%s\n", text)
}

// rangeText describes the range of messages, at both ends.
func rangeText(r admin.Replay) string {
	from, to := "from the oldest there is", "to the newest"
	switch {
	case r.FromSeq > 0:
		from = fmt.Sprintf("from seq %d", r.FromSeq)
	case !r.From.IsZero():
		from = "from " + r.From.Local().Format("2006-01-02 15:04:05 MST")
	}
	switch {
	case r.ToSeq > 0:
		to = fmt.Sprintf("to seq %d", r.ToSeq)
	case !r.To.IsZero():
		to = "to " + r.To.Local().Format("2006-01-02 15:04:05 MST")
	}
	return from + " " + to
}
