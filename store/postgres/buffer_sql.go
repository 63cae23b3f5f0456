package postgres

import (
	"context"
	"database/sql"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/buffer"
)

// BufferedSQLTx is a transaction of database/sql in which Outbox.PublishSQL, and its own Enqueue, only take what they are given, as
// in a BufferedTx. Its queries and Commit are round trips of their own, and so is each thousand rows.
type BufferedSQLTx struct {
	*buffer.SQLTx[*Outbox, *Queue]
}

// BufferSQL wraps a transaction that is open. Commit it by what is returned: what is still buffered when tx itself is committed is never written.
func BufferSQL(tx *sql.Tx, opts penstock.BufferOptions) *BufferedSQLTx {
	return &BufferedSQLTx{buffer.NewSQLTx(tx, opts, func(ctx context.Context, tx *sql.Tx, g *buffer.Group[*Outbox, *Queue]) (err error) {
		if g.Outbox != nil {
			return g.Outbox.PublishSQL(ctx, tx, g.Messages...)
		}
		g.Made, err = g.Queue.EnqueueSQL(ctx, tx, g.Jobs...)
		return err
	})}
}

// Enqueue takes jobs; Queue.EnqueueSQL writes them at once, because it returns their ids.
func (b *BufferedSQLTx) Enqueue(ctx context.Context, q *Queue, jobs ...penstock.NewJob) (penstock.PendingJobs, error) {
	if err := validJobs(jobs); err != nil {
		return nil, err
	}
	return b.TakeJobs(ctx, q, q.manyOf, jobs)
}
