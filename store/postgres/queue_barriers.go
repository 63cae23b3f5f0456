package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/driver"
)

var _ driver.BarrierQueue = (*Queue)(nil)

// Barrier implements driver.BarrierQueue. An enqueuer's privileges are enough, as for Seal.
func (q *Queue) Barrier(ctx context.Context) (int64, error) {
	n, err := q.barrierOn(ctx, q.store.pool, nil)
	return n, q.refused(ctx, err, "enqueue")
}

// BarrierTx is Barrier within tx.
func (q *Queue) BarrierTx(ctx context.Context, tx pgx.Tx) (int64, error) {
	n, err := q.barrierOn(ctx, tx, nil)
	return n, q.refused(ctx, err, "enqueue")
}

// Seal implements driver.BarrierQueue.
func (q *Queue) Seal(ctx context.Context, barrier int64) error {
	_, err := q.barrierOn(ctx, q.store.pool, &barrier)
	return q.refused(ctx, err, "enqueue")
}

// SealTx is Seal within tx. A barrier without jobs that hold it opens when tx commits.
func (q *Queue) SealTx(ctx context.Context, tx pgx.Tx, barrier int64) error {
	_, err := q.barrierOn(ctx, tx, &barrier)
	return q.refused(ctx, err, "enqueue")
}

// BarrierSQL is BarrierTx for database/sql, with any PostgreSQL driver.
func (q *Queue) BarrierSQL(ctx context.Context, tx SQLTx) (int64, error) {
	return q.barrierSQL(ctx, tx, nil)
}

// SealSQL is SealTx for database/sql.
func (q *Queue) SealSQL(ctx context.Context, tx SQLTx, barrier int64) error {
	_, err := q.barrierSQL(ctx, tx, &barrier)
	return err
}

func (q *Queue) barrierSQL(ctx context.Context, tx SQLTx, barrier *int64) (n int64, err error) {
	n, err = oneSQL(ctx, tx, q.barrierCall(), barrier)
	return n, q.refused(ctx, err, "enqueue")
}

// barrierCall seals a barrier, or makes one.
func (q *Queue) barrierCall() string {
	return "select " + q.store.table("_"+q.name+".barrier") + "($1, null)"
}

func (q *Queue) barrierOn(ctx context.Context, on querier, barrier *int64) (int64, error) {
	return one[int64](ctx, on, q.barrierCall(), barrier)
}
