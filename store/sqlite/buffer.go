package sqlite

import (
	"context"
	"database/sql"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/buffer"
	"github.com/penstock/penstock/internal/tables"
)

// BufferedTx is a transaction in which Outbox.PublishTx and its own Enqueue only buffer messages and jobs. It writes them in statements
// of many rows: before any other statement of the transaction, and at the latest in Commit. So it reads the same as without a buffer
// (docs/guides/buffering.md). If a write fails after the call that asked for it, the transaction is rolled back, and the next call
// returns the error.
//
// One goroutine at a time may use it.
type BufferedTx struct {
	*buffer.SQLTx[*Outbox, *Queue]
}

var _ Tx = (*BufferedTx)(nil)

// Buffer wraps an open transaction. Call Commit on the returned wrapper: if tx itself is committed, messages and jobs that are still
// buffered are lost.
func Buffer(tx *sql.Tx, opts penstock.BufferOptions) *BufferedTx {
	return &BufferedTx{buffer.NewSQLTx(tx, opts, func(ctx context.Context, tx *sql.Tx, g *buffer.Group[*Outbox, *Queue]) (err error) {
		if g.Outbox != nil {
			return g.Outbox.PublishTx(ctx, tx, g.Messages...)
		}
		g.Made, err = g.Queue.EnqueueTx(ctx, tx, g.Jobs...)
		return err
	})}
}

// Enqueue buffers jobs. Queue.EnqueueTx would write them at once, because it returns their ids.
func (b *BufferedTx) Enqueue(ctx context.Context, q *Queue, jobs ...penstock.NewJob) (penstock.PendingJobs, error) {
	if err := tables.ValidateJobs(jobs, true); err != nil {
		return nil, err
	}
	return b.TakeJobs(ctx, q, q.name, jobs)
}
