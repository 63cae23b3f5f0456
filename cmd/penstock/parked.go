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

// parkedReader is what parked needs of a store.
type parkedReader interface {
	statusReader
	ParkedKeys(ctx context.Context, outbox, subscription string, limit int) ([]penstock.ParkedKey, error)
}

func (a *app) parkedCommand() *cobra.Command {
	var (
		subscription string
		limit        int
		asJSON       bool
		adopting     adoptFlags
	)
	cmd := &cobra.Command{
		Use:   "parked OUTBOX|SUBSCRIPTION",
		Short: "Show the keys whose messages wait for another attempt",
		Long: `Show what is parked. A message that the sink keeps refusing is set aside with
those of its key that come after it, so that other keys go on; it is tried again
from time to time, and once it is delivered, or a dead letter, the others follow
in order. A message without a key waits alone.

Each line is one key, those due soonest first:

  seq         of the first of them
  messages    how many wait
  attempts    how often the first of them was sent
  since       how long ago its first attempt failed
  next retry  in how long it is sent again
  held        it is a dead letter, and the others wait until someone retries or
              discards it: penstock dead list

Nothing needs to be done about a parked key, unless it is held.`,
		Example: `  penstock parked orders
  penstock parked orders --subscription billing --json | jq 'select(.held)'`,
		Args: exactly("OUTBOX|SUBSCRIPTION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			if limit < 1 {
				return usage(fmt.Errorf("--limit is %d: use 1 or more", limit))
			}
			if cmd.Flags().Changed("subscription") && subscription == "" {
				return usage(errors.New("--subscription is empty: name one, or leave it out"))
			}
			return a.withOutboxOrTable(ctx, &adopting, args[0],
				func(store penstock.Store) error { return a.parked(ctx, store, args[0], subscription, limit, asJSON) },
				func(t *adoptedStore) error { return a.parked(ctx, t, t.config.Table, t.name, limit, asJSON) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&subscription, "subscription", "", "whose (default: every subscription of the outbox)")
	flags.IntVar(&limit, "limit", 100, "at most so many keys of each subscription")
	flags.BoolVar(&asJSON, "json", false, "one JSON line per key")
	adopting.add(flags)
	return cmd
}

// parkedJSON is a line with whose it is.
type parkedJSON struct {
	Outbox       string `json:"outbox"`
	Subscription string `json:"subscription"`
	penstock.ParkedKey
}

func (a *app) parked(ctx context.Context, store parkedReader, outbox, only string, limit int, asJSON bool) error {
	subscriptions := []string{only}
	if only == "" {
		found, err := readStatus(ctx, store, []string{outbox})
		if err != nil {
			return err
		}
		subscriptions = nil
		for _, s := range found[0].Subscriptions {
			subscriptions = append(subscriptions, s.Subscription)
		}
	}
	lines := newTable(a.stdout, column{"SUBSCRIPTION", 24, false}, column{"KEY", 32, false}, column{title: "SEQ", right: true}, column{title: "MESSAGES", right: true},
		column{title: "ATTEMPTS", right: true}, column{title: "SINCE"}, column{title: "NEXT RETRY"}, column{title: "HELD"}, column{"ERROR", 64, false})
	shown, more := 0, false
	now := time.Now()
	for _, subscription := range subscriptions {
		keys, err := store.ParkedKeys(ctx, outbox, subscription, limit+1)
		if err != nil {
			return about(err, "reading parked messages", outbox, subscription)
		}
		if len(keys) > limit {
			keys, more = keys[:limit], true
		}
		for i := range keys {
			k := &keys[i]
			if asJSON {
				err = json.NewEncoder(a.stdout).Encode(parkedJSON{outbox, subscription, *k})
			} else {
				err = lines.row(subscription, k.Key, fmt.Sprint(k.FirstSeq), count(k.Messages), fmt.Sprint(k.Attempt), since(k.Since, now), retryText(k, now), yesNo(k.Held), k.Err)
			}
			if err != nil {
				return err
			}
			shown++
		}
	}
	if more {
		defer fmt.Fprintln(a.stderr, "penstock: there are more: raise --limit")
	}
	switch {
	case asJSON:
		return nil
	case shown == 0:
		fmt.Fprintf(a.stdout, "Nothing of %s is parked.\n", visible(outbox))
		return nil
	}
	return lines.flush()
}

// retryText says in how long the first of a line is sent again.
func retryText(k *penstock.ParkedKey, now time.Time) string {
	if k.Held {
		return ""
	}
	if k.Retry.IsZero() {
		return "now"
	}
	return until(k.Retry, now)
}
