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
