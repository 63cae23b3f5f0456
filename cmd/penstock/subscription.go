package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock"
)

// about says what was being done when err came. What is not there is always
// reported in the same words.
func about(err error, doing, outbox, subscription string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, penstock.ErrNoOutbox):
		return fmt.Errorf("outbox %q: %w", outbox, penstock.ErrNoOutbox)
	case errors.Is(err, penstock.ErrNoSubscription):
		return fmt.Errorf("subscription %q of outbox %q: %w", subscription, outbox, penstock.ErrNoSubscription)
	case doing == "":
		return err
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// chooseSubscription returns the one that was named, or the outbox's only one.
func chooseSubscription(ctx context.Context, store statusReader, outbox, named string) (string, error) {
	if named != "" {
		return named, nil
	}
	found, err := readStatus(ctx, store, []string{outbox})
	if err != nil {
		return "", err
	}
	var names []string
	for _, s := range found[0].Subscriptions {
		names = append(names, s.Subscription)
	}
	switch len(names) {
	case 0:
		return "", fmt.Errorf("outbox %q has no subscription yet: penstock relay makes one", outbox)
	case 1:
		return names[0], nil
	}
	for i := range names {
		names[i] = visible(names[i])
	}
	return "", usage(fmt.Errorf("outbox %q has %d subscriptions, and which one is meant is not given: pass --subscription with one of %s", outbox, len(names), strings.Join(names, ", ")))
}

// openSubscription opens the database and finds the subscription that a verb is
// about. The caller closes the store if there is no error.
func (a *app) openSubscription(ctx context.Context, outbox, named string) (penstock.Store, string, error) {
	store, err := a.openStore(ctx)
	if err != nil {
		return nil, "", err
	}
	subscription, err := chooseSubscription(ctx, store, outbox, named)
	if err != nil {
		return nil, "", errors.Join(err, store.Close())
	}
	return store, subscription, nil
}

func (a *app) subscriptionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "subscription",
		Short: "Drop subscriptions that are no longer wanted",
		Long: `A subscription is one reader of an outbox, with its cursor, its parked messages
and its dead letters. A relay makes it when it first runs under its name, and
penstock status shows those there are. One that nobody runs any more holds back
the outbox's storage, so drop it.`,
		Args: knownVerb,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.subscriptionDropCommand())
	return cmd
}

// subscriptionDropper is what dropping a subscription needs of a store.
type subscriptionDropper interface {
	statusReader
	DropSubscription(ctx context.Context, outbox, subscription string) error
}

func (a *app) subscriptionDropCommand() *cobra.Command {
	var (
		asJSON   bool
		adopting adoptFlags
		leave    = consent{undone: "nothing was dropped"}
	)
	cmd := &cobra.Command{
		Use:   "drop [OUTBOX] NAME",
		Short: "Drop a subscription with all that waits in it",
		Long: `Drop a subscription with its cursor, its parked messages and its dead letters.
Other subscriptions of the outbox keep theirs. What only this one had not
delivered can be reclaimed from then on, so it tells how much that is and asks
first; without a terminal to ask on it refuses unless --yes is given.

Stop its relay and take it out of the configuration before: a relay that still
runs would make the subscription anew, and a new one begins at the oldest
message that is kept.

Of an adopted table there is NAME alone, whether or not a configuration still
names it. Its rows stay as they are: what is not marked as delivered waits for
whoever reads the table next.`,
		Example: `  penstock subscription drop orders billing
  penstock subscription drop orders billing --yes
  penstock subscription drop mails --config penstock.yaml`,
		Args: args(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			if err := a.possible(leave); err != nil {
				return err
			}
			if len(args) == 1 || adopting.preset != "" {
				return a.dropAdopted(ctx, &adopting, args, leave, asJSON)
			}
			store, err := a.openStore(ctx)
			if err != nil {
				return err
			}
			defer store.Close()
			return a.dropSubscription(ctx, store, args[0], args[1], leave, asJSON)
		},
	}
	cmd.Flags().BoolVar(&leave.yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&asJSON, "json", false, "what was dropped as one JSON line")
	adopting.add(cmd.Flags())
	return cmd
}

func (a *app) dropSubscription(ctx context.Context, store subscriptionDropper, outbox, name string, leave consent, asJSON bool) error {
	s, err := findSubscription(ctx, store, outbox, name)
	if err != nil {
		return err
	}
	lost := fmt.Sprintf("%s in its backlog, %s, %s", plural(s.Backlog, "message"), plural(s.Parked, "parked message"), plural(s.DeadLetters, "dead letter"))
	warning := fmt.Sprintf("This drops subscription %s of outbox %s: %s are lost to it.", visible(name), visible(outbox), lost)
	if isHeld(&s, time.Now()) {
		// Also with --yes: nobody expects a subscription that was dropped back.
		fmt.Fprintf(a.stderr, "penstock: a relay runs it (%s) and will make it anew, from the oldest message that is kept: stop it first\n", visible(s.Holder))
	}
	if err := a.confirmName(ctx, leave, warning, name); err != nil {
		return err
	}
	if err := store.DropSubscription(ctx, outbox, name); err != nil {
		return about(err, "dropping the subscription", outbox, name)
	}
	return a.tell(asJSON, map[string]any{"outbox": outbox, "subscription": name, "backlog": s.Backlog, "parked": s.Parked, "dead_letters": s.DeadLetters},
		"Subscription %s of %s is gone (%s).\n", visible(name), visible(outbox), lost)
}

func findSubscription(ctx context.Context, store statusReader, outbox, name string) (penstock.SubscriptionStatus, error) {
	found, err := readStatus(ctx, store, []string{outbox})
	if err != nil {
		return penstock.SubscriptionStatus{}, err
	}
	for _, s := range found[0].Subscriptions {
		if s.Subscription == name {
			return s, nil
		}
	}
	return penstock.SubscriptionStatus{}, about(penstock.ErrNoSubscription, "", outbox, name)
}
