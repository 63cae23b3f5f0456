package buffer

import (
	"context"
	"database/sql"

	"github.com/penstock/penstock"
)

// SQLTx is a database/sql transaction with a buffer. It has the methods of a *sql.Tx that take a context,
// except those that prepare statements: these would bypass the buffer. Stores embed it.
type SQLTx[O, Q any] struct {
	tx     *sql.Tx
	across bool
	held   *Buffer[O, Q]
	write  func(ctx context.Context, tx *sql.Tx, g *Group[O, Q]) error
	failed error // and the transaction has been rolled back
	ended  bool
}

// NewSQLTx wraps a transaction; write is how the store writes a group.
func NewSQLTx[O, Q any](tx *sql.Tx, opts penstock.BufferOptions, write func(context.Context, *sql.Tx, *Group[O, Q]) error) *SQLTx[O, Q] {
	return &SQLTx[O, Q]{tx: tx, across: opts.AcrossWrites, held: New[O, Q](opts), write: write}
}

// TakeMessages is for a store's Publish. The messages are valid. name and inbox are those of
// Buffer.Publish.
func (b *SQLTx[O, Q]) TakeMessages(ctx context.Context, outbox O, name, inbox string, msgs []penstock.Message) error {
	if err := b.usable(); err != nil {
		return err
	}
	return b.held.Publish(outbox, name, inbox, msgs, func() error { return b.flush(ctx, penstock.FlushFull) })
}

// TakeJobs is for a store's Enqueue. The jobs are valid. name distinguishes queues.
func (b *SQLTx[O, Q]) TakeJobs(ctx context.Context, queue Q, name string, jobs []penstock.NewJob) (penstock.PendingJobs, error) {
	if err := b.usable(); err != nil {
		return nil, err
	}
	ask := func(ctx context.Context) error { return b.flush(ctx, penstock.FlushIDs) }
	return b.held.Enqueue(queue, name, jobs, ask, func() error { return b.flush(ctx, penstock.FlushFull) })
}

func (b *SQLTx[O, Q]) usable() error {
	if b.failed == nil && b.ended {
		return sql.ErrTxDone
	}
	return b.failed
}

// flush writes the buffer. If that fails, the transaction is rolled back at once: some databases
// would otherwise continue and commit the rest.
func (b *SQLTx[O, Q]) flush(ctx context.Context, reason penstock.FlushReason) error {
	if err := b.usable(); err != nil || b.held.Rows() == 0 {
		return err
	}
	f := b.held.Take(reason)
	failed, err := 0, error(nil)
	for i, g := range f.Groups {
		if err = b.write(ctx, b.tx, g); err != nil {
			failed = i
			break
		}
	}
	f.End(failed, err)
	if b.failed = b.held.Settle(f); b.failed != nil {
		_ = b.tx.Rollback()
	}
	return b.failed
}

// Flush writes the buffer. Call it before an action outside of the database that requires that the
// messages can be written.
func (b *SQLTx[O, Q]) Flush(ctx context.Context) error { return b.flush(ctx, penstock.FlushAsked) }

// Stats counts the messages and jobs, and the flushes by their reasons.
func (b *SQLTx[O, Q]) Stats() penstock.BufferStats { return b.held.Stats() }

// ExecContext is that of *sql.Tx. Savepoints are statements like others: earlier messages are written before them.
func (b *SQLTx[O, Q]) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if b.across && !b.held.Locks() && Writes(query) {
		if err := b.usable(); err != nil {
			return nil, err
		}
	} else if err := b.flush(ctx, penstock.FlushWrite); err != nil {
		return nil, err
	}
	return b.tx.ExecContext(ctx, query, args...)
}

// QueryContext is that of *sql.Tx.
func (b *SQLTx[O, Q]) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := b.flush(ctx, penstock.FlushRead); err != nil {
		return nil, err
	}
	return b.tx.QueryContext(ctx, query, args...)
}

// QueryRowContext is that of *sql.Tx. If the buffer cannot be written, the row's error is sql.ErrTxDone, and the next call returns the
// reason.
func (b *SQLTx[O, Q]) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	_ = b.flush(ctx, penstock.FlushRead)
	return b.tx.QueryRowContext(ctx, query, args...)
}

// Commit returns when everything is written and committed. After an error, nothing is.
func (b *SQLTx[O, Q]) Commit() error {
	if err := b.flush(context.Background(), penstock.FlushCommit); err != nil {
		return err
	}
	if err := b.usable(); err != nil {
		return err
	}
	b.ended = true
	return b.tx.Commit()
}

// Rollback discards buffered messages and jobs, and rolls back written ones.
func (b *SQLTx[O, Q]) Rollback() error {
	b.held.Discard()
	if b.ended {
		return sql.ErrTxDone
	}
	was := b.failed
	b.ended, b.failed = true, nil
	if was != nil {
		return nil // it is already
	}
	return b.tx.Rollback()
}
