package postgres

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/buffer"
)

// Begin begins a savepoint. Messages and jobs in it are rolled back with it.
func (b *BufferedTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := b.usable(); err != nil {
		return nil, err
	}
	b.savepoints++
	inner := &BufferedTx{bufferedSession: b.bufferedSession, depth: b.depth + 1, number: b.savepoints}
	if err := b.flush(ctx, penstock.FlushSavepoint, "savepoint "+inner.savepoint()); err != nil {
		return nil, err
	}
	return inner, nil
}

func (b *BufferedTx) savepoint() string { return "penstock_" + strconv.Itoa(b.number) }

// Commit returns when everything is written and committed, or, for a savepoint, written and released. After an error nothing is
// committed. If the answer to COMMIT was lost, the error says that it may have been.
func (b *BufferedTx) Commit(ctx context.Context) error {
	if b.closed || b.ended {
		return pgx.ErrTxClosed
	}
	if b.depth > 0 {
		if err := b.flush(ctx, penstock.FlushSavepoint, "release savepoint "+b.savepoint()); err != nil {
			return err
		}
		b.closed = true
		return nil
	}
	defer b.end()
	if b.own && b.settle(ctx) == nil && b.held.Rows() > 0 {
		err := b.flush(ctx, penstock.FlushCommit, "commit")
		b.closed = true
		if err != nil && b.tx.Conn().IsClosed() && !pgconn.SafeToRetry(err) && sqlState(b.failed) == "" {
			err = fmt.Errorf("the connection was lost while COMMIT was under way, which may have succeeded: %w", err)
		}
		if err != nil && b.tx.Conn().PgConn().TxStatus() != 'I' {
			_ = b.tx.Rollback(context.WithoutCancel(ctx))
		}
		return err
	}
	err := b.flush(ctx, penstock.FlushCommit)
	b.closed = true
	if err != nil {
		_ = b.tx.Rollback(context.WithoutCancel(ctx))
		return err
	}
	return b.tx.Commit(ctx)
}

// end gives the connection back. A savepoint that is still open has ended as well.
func (b *BufferedTx) end() {
	b.ended = true
	b.free()
}

// Rollback forgets buffered messages and jobs, and rolls back written ones.
func (b *BufferedTx) Rollback(ctx context.Context) error {
	if b.closed || b.ended {
		return pgx.ErrTxClosed
	}
	_ = b.settle(ctx)
	b.held.Discard()
	b.closed = true
	if b.depth == 0 {
		defer b.end()
		return b.tx.Rollback(ctx)
	}
	_, err := b.tx.Exec(ctx, "rollback to savepoint "+b.savepoint()+"; release savepoint "+b.savepoint())
	if err == nil && b.failed != nil && b.bufferedSession.depth >= b.depth {
		b.failed = nil // the server has also forgotten it
	}
	return err
}

// Exec implements pgx.Tx.
func (b *BufferedTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	clear := b.settle
	if !b.across || b.held.Locks() || !buffer.Writes(sql) {
		clear = func(ctx context.Context) error { return b.flush(ctx, penstock.FlushWrite) }
	}
	if err := clear(ctx); err != nil {
		return pgconn.CommandTag{}, err
	}
	return b.tx.Exec(ctx, sql, args...)
}

// Query implements pgx.Tx.
func (b *BufferedTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := b.flush(ctx, penstock.FlushRead); err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).Query()
	}
	return b.tx.Query(ctx, sql, args...)
}

// QueryRow implements pgx.Tx.
func (b *BufferedTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := b.flush(ctx, penstock.FlushRead); err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).QueryRow()
	}
	return b.tx.QueryRow(ctx, sql, args...)
}

// SendBatch implements pgx.Tx.
func (b *BufferedTx) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	if err := b.flush(ctx, penstock.FlushRead); err != nil {
		return pgx.FailedBatchResults(batch, err)
	}
	return b.tx.SendBatch(ctx, batch)
}

// CopyFrom implements pgx.Tx.
func (b *BufferedTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	if err := b.flush(ctx, penstock.FlushWrite); err != nil {
		return 0, err
	}
	return b.tx.CopyFrom(ctx, table, columns, rows)
}

// Prepare implements pgx.Tx.
func (b *BufferedTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := b.settle(ctx); err != nil {
		return nil, err
	}
	return b.tx.Prepare(ctx, name, sql)
}

// LargeObjects implements pgx.Tx. It writes messages that were published before. Later ones may not be written when the large
// objects are used.
func (b *BufferedTx) LargeObjects() pgx.LargeObjects {
	b.handOut()
	return b.tx.LargeObjects()
}

// Conn implements pgx.Tx. It writes messages that were published before. Later ones may not be written when the connection is
// used, so call Flush before. The next call returns an error of the flush.
func (b *BufferedTx) Conn() *pgx.Conn {
	b.handOut()
	return b.tx.Conn()
}

func (b *BufferedTx) handOut() {
	_ = b.flush(context.Background(), penstock.FlushOutside)
	b.shared = true
}
