package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/adopt"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

func SubscriptionCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "subscription",
		Short: "Drop subscriptions that are no longer needed",
		Long: `A subscription is one reader of an outbox, with its cursor, its parked messages and
its dead letters. A relay creates it when it first runs under its name, and penstock
status shows all of them. A subscription without a relay keeps the outbox's storage,
so drop it.`,
	}
	return terminal.Group(cmd, subscriptionDropCommand(a))
}

// subscriptionDropper has the methods of a store that drop a subscription.
type subscriptionDropper interface {
	cli.StatusReader
	DropSubscription(ctx context.Context, outbox, subscription string) error
}

func subscriptionDropCommand(a *cli.App) *cobra.Command {
	var (
		adopting adopt.Flags
		leave    = cli.Consent{Undone: "nothing was dropped"}
	)
	cmd := &cobra.Command{
		Use:   "drop [OUTBOX] NAME",
		Short: "Drop a subscription with its messages",
		Long: `Drop a subscription with its cursor, its parked messages and its dead letters. Other
subscriptions of the outbox keep theirs. Messages that only this one had not delivered
can then be removed, so it says how many those are and asks first. Without a terminal
it refuses unless --yes is given.

Stop its relay and remove it from the configuration first. A relay that still runs
would create the subscription again, and a new one begins at the oldest message that
is kept.

For an adopted table give NAME alone, even if no configuration names it any more. The
table's rows stay as they are: undelivered ones wait for its next reader.`,
		Example: `  penstock subscription drop orders billing
  penstock subscription drop orders billing --yes
  penstock subscription drop billing --config penstock.yaml`,
		Args: terminal.Args(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
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
		},
	}
	cmd.Flags().BoolVar(&leave.Yes, "yes", false, "do not ask")
	a.WithJSON(cmd, "the dropped object as one JSON line")
	adopting.Add(cmd.Flags())
	return cmd
}

func dropSubscription(ctx context.Context, a *cli.App, store subscriptionDropper, outbox, name string, leave cli.Consent) error {
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
	found, err := cli.ReadStatus(ctx, store, []string{outbox})
	if err != nil {
		return admin.SubscriptionStatus{}, err
	}
	for _, s := range found[0].Subscriptions {
		if s.Subscription == name {
			return s, nil
		}
	}
	return admin.SubscriptionStatus{}, about.Outbox(penstock.ErrNoSubscription, "", outbox, name)
}
