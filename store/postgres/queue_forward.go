package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/forward"
)

// Headers that Forward adds to a job.
const (
	HeaderMessageID = forward.HeaderMessageID
	HeaderTopic     = forward.HeaderTopic // if the message has one
)

// Forward implements driver.Forwarder. It makes a job of every message of a subscription,
// in a queue of the same database. Jobs and cursor are written in one transaction, so each
// message becomes exactly one job, in order, also after crashes. A job has its message's
// key, headers and payload, and two more headers. Forward returns nil once ctx has ended.
//
// It connects again. It returns an error only if that does not help:
// ErrNoOutbox, ErrNoQueue, ErrNoSubscription, ErrFenced, or a *HeldError at the start.
func (s *Store) Forward(ctx context.Context, req driver.Subscribe, queue string) error {
	check := func() error { return s.mayCall(ctx, queue, "enqueue_many", "null, null, null, null, null, null, null") }
	return forward.From(ctx, s, req, check, s.log.With("outbox", req.Outbox, "queue", queue), func(src driver.Source) (forward.Subscription, time.Duration) {
		return forwarding{src.(*Source), s.Queue(queue)}, src.(*Source).req.Lease
	})
}

// forwarding is one call of Forward.
type forwarding struct {
	*Source
	queue *Queue
}

func (f forwarding) Maintain(ctx context.Context) error {
	return f.store.Maintain(ctx, f.req.Outbox)
}

// Move enqueues a batch and settles it, in one transaction of the connection on which
// the source writes its cursor. After an error it gives up the session, so that the
// source goes back to its durable cursor.
func (f forwarding) Move(ctx context.Context, batch driver.Batch) error {
	sess, err := f.session(ctx)
	if err != nil {
		return err
	}
	err = pgx.BeginFunc(ctx, sess.write, func(tx pgx.Tx) error {
		write := func(jobs []penstock.NewJob) error { _, err := f.queue.write(ctx, tx, jobs); return err }
		savepoint := func(call func() error) error { return pgx.BeginFunc(ctx, tx, func(pgx.Tx) error { return call() }) }
		if err := forward.Enqueue(forward.Jobs(batch.Messages), write, savepoint, func(err error) bool { return sqlState(err) == "23514" }); err != nil {
			return err
		}
		return f.Settle(ctx, batch.Number, driver.Settled{Batch: batch})
	})
	if err != nil {
		sess.kill()
	}
	return err
}
