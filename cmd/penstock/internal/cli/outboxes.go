package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

// ChooseSubscription returns the named subscription, or the outbox's only one.
func ChooseSubscription(ctx context.Context, store StatusReader, outbox, named string) (string, error) {
	if named != "" {
		return named, nil
	}
	found, err := FindOutbox(ctx, store, outbox)
	if err != nil {
		return "", err
	}
	var names []string
	for _, s := range found.Subscriptions {
		names = append(names, s.Subscription)
	}
	switch len(names) {
	case 0:
		return "", fmt.Errorf("outbox %q has no subscription yet: a relay makes one", outbox)
	case 1:
		return names[0], nil
	}
	for i := range names {
		names[i] = shell.Visible(names[i])
	}
	return "", terminal.Usage(fmt.Errorf("outbox %q has %d subscriptions, and which one is meant is not given: pass --subscription with one of %s", outbox, len(names), strings.Join(names, ", ")))
}

// OfSubscription is a subscription's full name, as in orders/billing.
func OfSubscription(outbox, subscription string) string {
	return shell.Visible(outbox) + "/" + shell.Visible(subscription)
}

// StatusReader has the methods of a store that status needs.
type StatusReader interface {
	Status(ctx context.Context) ([]admin.OutboxStatus, error)
}

// CountedUpTo is how many of each kind are counted unless the user asks for more.
const CountedUpTo = 1000

// StatusUpTo counts at most this many if the store can limit the count; 0 means no limit.
func StatusUpTo(ctx context.Context, store StatusReader, most int) ([]admin.OutboxStatus, error) {
	if counter, ok := store.(driver.StatusCounter); ok {
		return counter.StatusUpTo(ctx, most)
	}
	return store.Status(ctx)
}

// MixedUp adds a hint to the error for an outbox or a queue that is not there, if the name is that of a queue or an outbox.
func MixedUp(ctx context.Context, store any, err error, name string) error {
	of, hint := "outboxes", "%[1]s is an outbox: penstock publish %[1]s --topic TOPIC --payload TEXT"
	if errors.Is(err, penstock.ErrNoOutbox) {
		of, hint = "queues", "%[1]s is a queue: penstock enqueue %[1]s PAYLOAD"
	} else if !errors.Is(err, penstock.ErrNoQueue) {
		return err
	}
	names, ok := store.(interface {
		Names(ctx context.Context, of string) ([]string, error)
	})
	if !ok {
		return err
	}
	if all, failed := names.Names(ctx, of); failed != nil || !slices.Contains(all, name) { // the error is enough
		return err
	}
	return penstock.WithHint(err, hint, shell.Word(name))
}

// RelayCommand runs the first relay of an outbox.
func RelayCommand(outbox string) string {
	return "penstock relay --outbox " + shell.Word(outbox) + " --sink URL"
}

// PluralOf is Plural of such a figure.
func PluralOf(n int64, name string, atLeast []string, what string) string {
	return strings.Replace(terminal.Plural(n, what), terminal.Count(n), terminal.CountOf(n, name, atLeast), 1)
}

// FindOutbox returns the status of an outbox.
func FindOutbox(ctx context.Context, store StatusReader, name string) (*admin.OutboxStatus, error) {
	outboxes, err := store.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the status: %w", err)
	}
	for i := range outboxes {
		if outboxes[i].Outbox == name {
			return &outboxes[i], nil
		}
	}
	return nil, about.Outbox(penstock.ErrNoOutbox, "", name, "")
}

// IsHeld reports whether a relay has the subscription's lease.
func IsHeld(s *admin.SubscriptionStatus, now time.Time) bool {
	return s.Holder != "" && s.LeaseUntil.After(now)
}

// NameTaken reports the object that already has the name of a new outbox or queue, in the same words for
// every store.
func NameTaken(err error, what string) error {
	for has, exists := range map[string]error{"an outbox": penstock.ErrOutboxExists, "a queue": penstock.ErrQueueExists} {
		switch {
		case !errors.Is(err, exists):
		case has == what:
			return exists
		default:
			return penstock.WithHint(fmt.Errorf("%s has this name", has), "outboxes and queues share their names: choose another")
		}
	}
	return err
}
