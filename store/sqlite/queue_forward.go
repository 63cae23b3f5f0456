package sqlite

import (
	"cmp"
	"context"
	"errors"
	"time"

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
// in a queue of the same file. Jobs and cursor are written in one transaction, so each
// message becomes exactly one job, in order, also after crashes. A job has its message's
// key, headers and payload, and two more headers. Forward returns nil once ctx has ended.
//
// It returns an error only if waiting does not help: ErrNoOutbox, ErrNoQueue, ErrFenced,
// or a *HeldError at the start.
func (s *Store) Forward(ctx context.Context, req driver.Subscribe, queue string) error {
	check := func() error {
		_, err := s.queues.Queue(queue).RowIn(ctx, onTables{s})
		return err
	}
	return forward.From(ctx, s, req, check, s.log.With("outbox", req.Outbox, "queue", queue), func(src driver.Source) (forward.Subscription, time.Duration) {
		return &forwarding{source: src.(*source), queue: s.Queue(queue)}, src.(*source).Req.Lease
	})
}

// forwarding is one call of Forward.
type forwarding struct {
	*source
	queue *Queue
	// failed was fetched and could not be moved. The source would not return it again.
	failed *driver.Batch
}

func (f *forwarding) Maintain(ctx context.Context) error {
	return f.store.Maintain(ctx, f.Req.Outbox)
}

func (f *forwarding) Fetch(ctx context.Context, limit driver.Limit) (driver.Batch, error) {
	if f.failed != nil {
		return *f.failed, nil
	}
	return f.source.Fetch(ctx, limit)
}

// Move enqueues a batch and settles it, in one transaction.
func (f *forwarding) Move(ctx context.Context, batch driver.Batch) error {
	f.failed = &batch
	f.also = func(ctx context.Context, tx onTx) error {
		write := func(jobs []penstock.NewJob) error { _, err := f.queue.EnqueueTx(ctx, tx, jobs...); return err }
		refused := func(err error) bool { _, is := errors.AsType[*penstock.FieldError](err); return is }
		return forward.Enqueue(forward.Jobs(batch.Messages), write, func(call func() error) error { return savepoint(ctx, tx, call) }, refused)
	}
	err := f.Settle(ctx, batch.Number, driver.Settled{Batch: batch})
	if err == nil {
		f.failed = nil
	}
	return err
}

// savepoint undoes the writes of call if it fails.
func savepoint(ctx context.Context, tx Tx, call func() error) error {
	if _, err := tx.ExecContext(ctx, "savepoint penstock"); err != nil {
		return err
	}
	failed := call()
	if failed != nil {
		if _, err := tx.ExecContext(ctx, "rollback to penstock"); err != nil {
			return err
		}
	}
	_, err := tx.ExecContext(ctx, "release penstock")
	return cmp.Or(failed, err)
}
