package postgres

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/work"
)

// TxHandler does one job within a transaction of the queue's database. It must not
// end tx. Its errors mean what they do in work.Handler; any error rolls tx back.
type TxHandler func(ctx context.Context, tx pgx.Tx, job penstock.Job) error

// WorkTx is work.Run with a transaction around each handler that also ends the
// job. So the handler's writes through tx take effect exactly once, however often
// the job runs. If the lease was lost meanwhile, the transaction is rolled back.
// A job whose transaction cannot begin is given back, and spends no attempt.
//
// Before that the job is claimed in a separate short transaction, so the attempt also
// counts if the process dies. WorkTx opens up to opts.Concurrency connections in
// addition to the store's. The latter claim jobs and extend leases, also while all
// handlers are busy.
func WorkTx(ctx context.Context, store *Store, queue string, h TxHandler, opts work.Options) error {
	opts.SetDefaults()
	if err := opts.Validate(); err != nil {
		return err
	}
	config := store.config.Copy()
	config.MaxConns = int32(opts.Concurrency)
	config.MinConns, config.MinIdleConns = 0, 0
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return explain(err)
	}
	defer pool.Close()
	return work.Run(ctx, store.Queue(queue), inTx(pool, store, queue, h, opts.Logger), opts)
}

// inTx makes a handler that ends its job itself. It gives the lease back last, within the
// same transaction, so that another connection can extend it until then.
func inTx(pool *pgxpool.Pool, store *Store, queue string, h TxHandler, log *slog.Logger) work.Handler {
	ack := "select " + store.table("ack") + "($1, $2)"
	var away atomic.Bool
	return func(ctx context.Context, job penstock.Job) error {
		begun := false
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			begun = true
			away.Store(false)
			if err := h(ctx, tx, job); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, ack, queue, job.Lease); err != nil {
				return store.queueError(ctx, queue, err)
			}
			return nil
		})
		if err != nil && !begun { // the handler was not called
			if ctx.Err() == nil && !away.Swap(true) {
				log.Warn("the transactions of jobs cannot begin; the jobs rest, and no attempt is spent", "queue", queue, "err", err)
			}
			return work.Snooze(time.Second)
		}
		if err != nil {
			return err
		}
		return work.ErrSettled
	}
}
