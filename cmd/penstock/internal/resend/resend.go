// Package resend makes new jobs and messages from dead letters: the same contents, under new ids, with all attempts ahead of
// them.
package resend

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"strings"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
)

// ErrGone is returned if one is no longer a dead letter; then none is sent.
var ErrGone = errors.New("it is not a dead letter any more")

// Jobs enqueues dead jobs again, and returns the new ids in the order of the old ones. All of them are in memory.
func Jobs(ctx context.Context, store driver.QueueStore, queue string, old []int64) (ids []string, err error) {
	found, err := store.DeadJobs(ctx, admin.DeadJobQuery{Queue: queue, IDs: old, Limit: len(old)})
	if err != nil {
		return nil, err
	}
	if len(found) < len(old) {
		return nil, ErrGone
	}
	again := make([]penstock.NewJob, len(found))
	for i := range found {
		j := &found[i].Job
		again[i] = penstock.NewJob{Key: j.Key, Group: j.Group, Priority: j.Priority, Headers: j.Headers, Payload: j.Payload}
	}
	enqueued, err := store.DriverQueue(queue).Enqueue(ctx, again...)
	for _, one := range enqueued {
		ids = append(ids, strconv.FormatInt(one.ID, 10))
	}
	return ids, err
}

// Messages publishes dead messages of a subscription again, to its outbox and so to each subscription of the outbox, as
// Jobs does.
func Messages(ctx context.Context, store interface {
	DeadLetters(ctx context.Context, q admin.DeadLetterQuery) ([]admin.DeadLetter, error)
	Publish(ctx context.Context, outbox string, msgs ...penstock.Message) error
}, outbox, subscription string, old []int64) (ids []string, err error) {
	found, err := store.DeadLetters(ctx, admin.DeadLetterQuery{Outbox: outbox, Subscription: subscription, Seqs: old, Limit: len(old)})
	if err != nil {
		return nil, err
	}
	if len(found) < len(old) {
		return nil, ErrGone
	}
	again := make([]penstock.Message, len(found))
	for i := range found {
		m := &found[i].Message
		again[i] = penstock.Message{ID: strings.ToLower(rand.Text()), Key: m.Key, Topic: m.Topic, Headers: m.Headers, Payload: m.Payload}
		ids = append(ids, again[i].ID)
	}
	return ids, store.Publish(ctx, outbox, again...)
}
