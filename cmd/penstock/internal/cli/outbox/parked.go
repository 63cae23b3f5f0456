package outbox

import (
	"cmp"
	"context"
	"fmt"
	"slices"
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

// parkedReader has the methods of a store that parked needs.
type parkedReader interface {
	cli.StatusReader
	ParkedKeys(ctx context.Context, outbox, subscription string, limit int) ([]admin.ParkedKey, error)
	RetryParked(ctx context.Context, outbox, subscription string, keys ...string) (int, error)
	GiveUpParked(ctx context.Context, outbox, subscription string, seq int64, reason string) (int, error)
}

func ParkedCommand(a *cli.App) *cobra.Command {
	var (
		subscription string
		limit        int
		keys         []string
		retry        bool
		giveUp       int64
		reason       string
		adopting     adopt.Flags
	)
	cmd := terminal.Verb("parked OUTBOX|SUBSCRIPTION", "List keys that are waiting for a retry, retry them now, or give up a message",
		func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			gives := cmd.Flags().Changed("give-up")
			if err := cmp.Or(
				cli.Refuse(limit < 1, "--limit is %d: use 1 or more", limit),
				cli.Refuse(cmd.Flags().Changed("subscription") && subscription == "", "--subscription is empty: name one, or leave it out"),
				cli.Refuse(slices.Contains(keys, ""), "--key is empty: give it a text, or leave it out"),
				cli.Refuse(len(keys) > 0 && !retry, "--key is given without --retry: it says which keys are tried now"),
				cli.Refuse(gives && subscription == "", "--give-up needs --subscription"),
				cli.Refuse(gives && retry, "--give-up goes without --retry"),
				cli.Refuse(reason != "" && !gives, "--reason is given without --give-up: it says why a message is given up"),
			); err != nil {
				return err
			}
			do := func(store parkedReader, outbox, subscription string) error {
				if gives {
					return giveUpParked(ctx, a, store, outbox, subscription, giveUp, reason)
				}
				if retry {
					return retryParked(ctx, a, store, outbox, subscription, keys)
				}
				return showParked(ctx, a, store, outbox, subscription, limit)
			}
			return adopt.WithOutboxOrTable(ctx, a, &adopting, args[0],
				func(store driver.Store) error { return do(store, args[0], subscription) },
				func(t *adopt.Table) error { return do(t, t.Config.Table, t.Name) })
		})
	flags := cmd.Flags()
	flags.StringVar(&subscription, "subscription", "", "parked keys of this subscription, by its `name` (default: every subscription of the outbox)")
	flags.IntVar(&limit, "limit", 100, "at most this `number` of keys of each subscription")
	flags.BoolVar(&retry, "retry", false, "retry the keys now, instead of listing them; not those that are held")
	flags.StringArrayVar(&keys, "key", nil, "with --retry: those of this `key`; may be repeated")
	flags.Int64Var(&giveUp, "give-up", 0, "make the message of this `seq` a dead letter now, without another attempt; needs --subscription")
	flags.StringVar(&reason, "reason", "", "with --give-up: the `text` that the dead letter has as its error")
	a.WithJSON(cmd, "one JSON line per key; with --retry how many, per subscription")
	adopting.Add(flags)
	return cmd
}

// parkedJSON is a line with the subscription's name.
type parkedJSON struct {
	Outbox       string `json:"outbox"`
	Subscription string `json:"subscription"`
	admin.ParkedKey
}

func showParked(ctx context.Context, a *cli.App, store parkedReader, outbox, only string, limit int) error {
	subscriptions, err := subscriptionsOf(ctx, store, outbox, only)
	if err != nil {
		return err
	}
	rows := a.Rows(terminal.Cut("SUBSCRIPTION", 24), terminal.Cut("KEY", 32), terminal.Right("SEQ"), terminal.Right("MESSAGES"),
		terminal.Right("ATTEMPTS"), terminal.Left("SINCE"), terminal.Left("NEXT RETRY"), terminal.Left("HELD"), terminal.Cut("ERROR", 64))
	now := time.Now()
	for _, subscription := range subscriptions {
		keys, err := store.ParkedKeys(ctx, outbox, subscription, limit+1)
		if err != nil {
			return about.Outbox(err, "reading parked messages", outbox, subscription)
		}
		if len(keys) > limit {
			keys, rows.More = keys[:limit], "raise --limit"
		}
		for _, k := range keys {
			rows.Add(parkedJSON{outbox, subscription, k}, subscription, k.Key, fmt.Sprint(k.FirstSeq), terminal.Count(k.Messages), fmt.Sprint(k.Attempt),
				cli.Since(k.Since, now), retryText(&k, now), terminal.YesNo(k.Held), k.Err)
		}
	}
	return rows.End(fmt.Sprintf("Nothing of %s is parked.", shell.Visible(outbox)))
}

// subscriptionsOf returns all subscriptions of an outbox, or the named one.
func subscriptionsOf(ctx context.Context, store cli.StatusReader, outbox, only string) (all []string, err error) {
	if only != "" {
		return []string{only}, nil
	}
	found, err := cli.FindOutbox(ctx, store, outbox)
	if err != nil {
		return nil, err
	}
	for _, s := range found.Subscriptions {
		all = append(all, s.Subscription)
	}
	return all, nil
}

func retryParked(ctx context.Context, a *cli.App, store parkedReader, outbox, only string, keys []string) error {
	subscriptions, err := subscriptionsOf(ctx, store, outbox, only)
	if err != nil {
		return err
	}
	for _, subscription := range subscriptions {
		n, err := store.RetryParked(ctx, outbox, subscription, keys...)
		if err != nil {
			return about.Outbox(err, "asking for another attempt", outbox, subscription)
		}
		if err := a.Tell(map[string]any{"outbox": outbox, "subscription": subscription, "keys": n},
			"%s of %s waited, and will be tried now.\n", terminal.Plural(int64(n), "key"), cli.OfSubscription(outbox, subscription)); err != nil {
			return err
		}
	}
	return nil
}

func giveUpParked(ctx context.Context, a *cli.App, store parkedReader, outbox, subscription string, seq int64, reason string) error {
	n, err := store.GiveUpParked(ctx, outbox, subscription, seq, reason)
	if err != nil {
		return about.Outbox(err, "giving up a message", outbox, subscription)
	}
	of := cli.OfSubscription(outbox, subscription)
	if n == 0 {
		return penstock.WithHint(fmt.Errorf("message %d of %s is not the first of a parked key that waits", seq, of),
			"penstock parked %[1]s lists those that do. One whose next retry is now is being tried: look again. The message of a held key is a dead letter already: penstock dead list %[1]s", shell.Word(outbox))
	}
	return a.Tell(map[string]any{"outbox": outbox, "subscription": subscription, "seq": seq, "messages": n},
		"Message %d of %s is given up. Its relay makes it a dead letter within about a second, without another attempt.\n", seq, of)
}

// retryText returns how soon the first message of a key is sent again.
func retryText(k *admin.ParkedKey, now time.Time) string {
	if k.Held {
		return ""
	}
	if k.Retry.IsZero() {
		return "now"
	}
	return cli.Until(k.Retry, now)
}
