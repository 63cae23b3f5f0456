package sqlite

import (
	"context"
	"database/sql"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/buffer"
)

// BufferedTx is a transaction in which Outbox.PublishTx and its own Enqueue only take what they are given. It goes to the file
// in statements of many rows, at the latest with Commit, and before anything else that the transaction does, so that what it reads is as
// without a buffer (docs/guides/buffering.md). Where a write fails later than it was called, the transaction is rolled back, and
// that error is returned by what comes next.
//
// One goroutine at a time may use it.
type BufferedTx struct {
	*buffer.SQLTx[*Outbox, *Queue]
}

var _ Tx = (*BufferedTx)(nil)

// Buffer wraps a transaction that is open. Commit it by what is returned: what is still buffered when tx itself is committed is never written.
func Buffer(tx *sql.Tx, opts penstock.BufferOptions) *BufferedTx {
	return &BufferedTx{buffer.NewSQLTx(tx, opts, func(ctx context.Context, tx *sql.Tx, g *buffer.Group[*Outbox, *Queue]) (err error) {
		if g.Outbox != nil {
			return g.Outbox.PublishTx(ctx, tx, g.Messages...)
		}
		g.Made, err = g.Queue.EnqueueTx(ctx, tx, g.Jobs...)
		return err
	})}
}

// Enqueue takes jobs; Queue.EnqueueTx writes them at once, because it returns their ids.
func (b *BufferedTx) Enqueue(ctx context.Context, q *Queue, jobs ...penstock.NewJob) (penstock.PendingJobs, error) {
	if err := validJobs(jobs); err != nil {
		return nil, err
	}
	return b.TakeJobs(ctx, q, q.name, jobs)
}
