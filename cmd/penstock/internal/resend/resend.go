// Package resend makes new jobs and messages from dead letters: the same contents, under new ids, with all attempts ahead of
// them.
package resend

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
)

// ErrGone is returned if one is no longer a dead letter; then none is sent.
var ErrGone = errors.New("it is not a dead letter any more")

// Discard deletes dead letters that were sent, once the transaction that sent them has ended: if another one fails then, they are not sent twice. nil keeps them.
type Discard func(ctx context.Context, old []int64) (int, error)

func (d Discard) sent(ctx context.Context, old []int64) error {
	if d == nil || len(old) == 0 {
		return nil
	}
	if _, err := d(ctx, old); err != nil {
		return fmt.Errorf("the last %d were sent again, and are dead letters still: %w", len(old), err)
	}
	return nil
}

// Jobs enqueues dead jobs again. A dead letter that is a message, which waited for barriers, is published to its outbox. It returns the new ids: those of messages,
// and then those of jobs, each in the order of the old ones. All of them are in memory. Each outbox and the queue has a transaction.
func Jobs(ctx context.Context, store driver.Database, queue string, old []int64, discard Discard) (ids []string, err error) {
	found, err := store.DeadJobs(ctx, admin.DeadJobQuery{Queue: queue, IDs: old, Limit: len(old)})
	if err != nil {
		return nil, err
	}
	if len(found) < len(old) {
		return nil, ErrGone
	}
	messages, jobs := map[string][]penstock.Message{}, []penstock.NewJob{}
	from := map[string][]int64{} // the old ones, by outbox; those of jobs have none
	for i := range found {
		j := &found[i].Job
		if j.Priority <= penstock.MaxPriority {
			from[""] = append(from[""], j.ID)
			jobs = append(jobs, penstock.NewJob{Key: j.Key, Group: j.Group, Priority: j.Priority, Headers: j.Headers, Payload: j.Payload})
			continue
		}
		var m struct { // see publish_after.sql
			Outbox, Topic string
			Headers       map[string]string
		}
		if err := json.Unmarshal([]byte(j.Headers["penstock-message"]), &m); err != nil {
			return nil, fmt.Errorf("the message of the dead letter %d: %w", j.ID, err)
		}
		id := strings.ToLower(rand.Text())
		from[m.Outbox] = append(from[m.Outbox], j.ID)
		messages[m.Outbox] = append(messages[m.Outbox], penstock.Message{ID: id, Key: j.Key, Topic: m.Topic, Headers: m.Headers, Payload: j.Payload})
	}
	for _, outbox := range slices.Sorted(maps.Keys(messages)) {
		if err := store.Publish(ctx, outbox, messages[outbox]...); err != nil {
			return ids, err
		}
		for _, m := range messages[outbox] {
			ids = append(ids, m.ID)
		}
		if err := discard.sent(ctx, from[outbox]); err != nil {
			return ids, err
		}
	}
	enqueued, err := store.DriverQueue(queue).Enqueue(ctx, jobs...)
	for _, one := range enqueued {
		ids = append(ids, strconv.FormatInt(one.ID, 10))
	}
	if err == nil {
		err = discard.sent(ctx, from[""])
	}
	return ids, err
}

// Messages publishes dead messages of a subscription again, to its outbox and so to each subscription of the outbox, as
// Jobs does.
func Messages(ctx context.Context, store driver.Store, outbox, subscription string, old []int64, discard Discard) (ids []string, err error) {
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
	if err := store.Publish(ctx, outbox, again...); err != nil {
		return nil, err
	}
	return ids, discard.sent(ctx, old)
}
