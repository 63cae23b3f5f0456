package tables

import (
	"fmt"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/shell"
)

// NoOutbox has the name.
func NoOutbox(name string) error {
	return penstock.WithHint(fmt.Errorf("%w: %q", penstock.ErrNoOutbox, name),
		"create it with CreateOutbox or penstock outbox create %s; if it is a queue, use EnqueueTx; in a new database begin with Migrate or penstock migrate", shell.Word(name))
}

// NoSubscription of the outbox has the name.
func NoSubscription(outbox, name string) error {
	return penstock.WithHint(fmt.Errorf("subscription %q of outbox %q: %w", name, outbox, penstock.ErrNoSubscription),
		"see its subscriptions with: penstock status; a relay makes one when it reads for the first time")
}

// NoQueue has the name.
func NoQueue(name string) error {
	return penstock.WithHint(fmt.Errorf("queue %q: %w", name, penstock.ErrNoQueue),
		"create it with CreateQueue or penstock queue create %s; if it is an outbox, use PublishTx; in a new database begin with Migrate or penstock migrate", shell.Word(name))
}

// NoSchedule of the queue has the name.
func NoSchedule(queue, name string) error {
	return penstock.WithHint(fmt.Errorf("schedule %q of queue %q: %w", name, queue, penstock.ErrNoSchedule), "see those it has with: penstock schedule list %s", shell.Word(queue))
}

// LeaseLost is the error that the lease is not held.
func LeaseLost(queue string, lease int64) error {
	return penstock.WithHint(fmt.Errorf("lease %d of queue %q: %w", lease, queue, penstock.ErrLeaseLost), "extend leases before they end, or claim with longer ones")
}

// Taken is the error that an outbox or a queue, has, has the name that one of kind was to get.
func Taken(kind, name, has string) error {
	exists, article := penstock.ErrQueueExists, "a"
	if has == "outbox" {
		exists, article = penstock.ErrOutboxExists, "an"
	}
	if has == kind {
		return fmt.Errorf("%s %q: %w", kind, name, exists)
	}
	return penstock.WithHint(fmt.Errorf("%s %q: %s %s has this name: %w", kind, name, article, has, exists), "outboxes and queues share their names: choose another")
}
