// Package about adds the context of an operation to its error. A missing outbox, queue or inbox is
// reported in the same words by every store and verb.
package about

import (
	"errors"
	"fmt"

	"github.com/penstock/penstock"
)

// Outbox is for an error about an outbox or one of its subscriptions. If doing is empty, other
// errors stay unchanged.
func Outbox(err error, doing, outbox, subscription string) error {
	switch {
	case errors.Is(err, penstock.ErrNoOutbox):
		return fmt.Errorf("outbox %q: %w", outbox, penstock.ErrNoOutbox)
	case errors.Is(err, penstock.ErrNoSubscription):
		return fmt.Errorf("subscription %q of outbox %q: %w", subscription, outbox, penstock.ErrNoSubscription)
	}
	return While(err, doing)
}

// Queue is Outbox for a queue.
func Queue(err error, doing, queue string) error {
	if errors.Is(err, penstock.ErrNoQueue) {
		return fmt.Errorf("queue %q: %w", queue, penstock.ErrNoQueue)
	}
	return While(err, doing)
}

// Inbox is Outbox for an inbox.
func Inbox(err error, doing, consumer string) error {
	switch {
	case errors.Is(err, penstock.ErrNoInbox):
		return fmt.Errorf("inbox %q: %w", consumer, penstock.ErrNoInbox)
	case errors.Is(err, penstock.ErrInboxExists):
		err = penstock.ErrInboxExists // the error names the consumer already
	}
	return While(err, doing)
}

// While puts the operation before an error, if there is an error.
func While(err error, doing string) error {
	if err == nil || doing == "" {
		return err
	}
	return fmt.Errorf("%s: %w", doing, err)
}
