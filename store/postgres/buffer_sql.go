package postgres

import (
	"context"
	"database/sql"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/buffer"
)

// BufferedSQLTx is a BufferedTx for database/sql: Outbox.PublishSQL and its own Enqueue only buffer messages and jobs. A write takes a
// separate round trip for each thousand rows, and Commit takes another.
type BufferedSQLTx struct {
	*buffer.SQLTx[*Outbox, *Queue]
}

// BufferSQL wraps an open transaction. Call Commit on the returned wrapper: if tx itself is committed, messages and jobs that are still
// buffered are lost.
func BufferSQL(tx *sql.Tx, opts penstock.BufferOptions) *BufferedSQLTx {
	return &BufferedSQLTx{buffer.NewSQLTx(tx, opts, func(ctx context.Context, tx *sql.Tx, g *buffer.Group[*Outbox, *Queue]) (err error) {
		if g.Outbox != nil {
			return g.Outbox.PublishSQL(ctx, tx, g.Messages...)
		}
		g.Made, err = g.Queue.EnqueueSQL(ctx, tx, g.Jobs...)
		return err
	})}
}

// Enqueue buffers jobs. Queue.EnqueueSQL would write them at once, because it returns their ids.
func (b *BufferedSQLTx) Enqueue(ctx context.Context, q *Queue, jobs ...penstock.NewJob) (penstock.PendingJobs, error) {
	if err := validJobs(jobs); err != nil {
		return nil, err
	}
	return b.TakeJobs(ctx, q, q.manyOf, jobs)
}
