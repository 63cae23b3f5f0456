package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/tables"
	"github.com/penstock/penstock/work"
)

// TxHandler does one job within a transaction on the queue's file. It must not end
// tx. Its errors mean what they do in work.Handler; any error rolls tx back.
type TxHandler func(ctx context.Context, tx *sql.Tx, job penstock.Job) error

// WorkTx is work.Run with a transaction around each handler that also ends the
// job. So the handler's writes through tx take effect exactly once, however often
// the job runs.
//
// The transaction begins with BEGIN IMMEDIATE, on a connection like those of OpenDB.
// While a handler runs, no other connection can write to the file. So no other worker
// can take the job, but its lease cannot be extended either. If a handler takes longer
// than opts.Lease, its context ends and the job comes back. Keep it short, and write
// only through tx: another connection would wait for the handler, and in the handler
// that never ends. Handlers run one after another. opts.Concurrency is 1 by default.
func WorkTx(ctx context.Context, store *Store, queue string, h TxHandler, opts work.Options) error {
	if opts.Concurrency == 0 {
		opts.Concurrency = 1
	}
	db := store.open([]string{"busy_timeout(0)", "journal_mode(wal)", "synchronous(full)", "foreign_keys(1)"})
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1) // handlers take turns here, which is fairer than polling for the lock
	return work.Run(ctx, store.Queue(queue), inTx(db, store, queue, h), opts)
}

// inTx makes a handler that ends its job itself.
func inTx(db *sql.DB, store *Store, queue string, h TxHandler) work.Handler {
	var away atomic.Bool
	return func(ctx context.Context, job penstock.Job) error {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		tx, err := begin(ctx, conn, store.busy)
		if err != nil && ctx.Err() == nil { // the handler was not called
			if !away.Swap(true) {
				store.log.Warn("the transactions of jobs cannot begin; the jobs rest, and no attempt is spent", "queue", queue, "err", store.explain(err))
			}
			return work.Snooze(time.Second)
		}
		if err != nil {
			return store.explain(err)
		}
		away.Store(false)
		defer func() { _ = tx.Rollback() }() // also of a panic; nothing after Commit
		seq, err := store.leasedSeq(ctx, tx, queue, job.Lease)
		if err != nil {
			return err
		}
		if err := h(ctx, tx, job); err != nil {
			return err
		}
		// It is done, whatever became of its context meanwhile.
		if _, err := tx.ExecContext(context.WithoutCancel(ctx), onQueue(queue, `delete from {table} where seq = ?`), seq); err != nil {
			return store.explain(err)
		}
		if err := tx.Commit(); err != nil {
			return store.explain(err)
		}
		return work.ErrSettled
	}
}

// leasedSeq finds the job of a lease that is held. It is then held until tx ends, because a call
// that ends it would have to write.
func (s *Store) leasedSeq(ctx context.Context, tx *sql.Tx, queue string, lease int64) (seq int64, err error) {
	row, err := s.rowIn(ctx, tx, queue)
	if err != nil {
		return 0, err
	}
	err = tx.QueryRowContext(ctx, `select seq from penstock_leases where lease = ? and queue_id = ? and until > ?`, lease, row.ID, time.Now().UnixMicro()).Scan(&seq)
	if errors.Is(err, sql.ErrNoRows) {
		err = tables.LeaseLost(queue, lease)
	}
	return seq, err
}
