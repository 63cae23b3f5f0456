package postgres_test

import (
	"cmp"
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/store/postgres/postgrestest"
	"github.com/penstock/penstock/store/queuetest"
)

func TestQueue(t *testing.T) { runQueueSuite(t, postgres.Options{}, 1) }

// With segments that are full after a few hundred jobs the ring turns all the time.
func TestQueueOnASmallRing(t *testing.T) { runQueueSuite(t, small, 2) }

func runQueueSuite(t *testing.T, opts postgres.Options, oneOf int) {
	t.Parallel()
	queuetest.Run(t, queuetest.Harness{
		Open:     func(t testing.TB) queuetest.Instance { return openQueueInstance(t, opts) },
		Features: queuetest.Features{ConcurrentWriters: true, Reclaim: true, Snapshots: true, Release: true},
		OneOf:    oneOf,
	})
}

func openQueueInstance(t testing.TB, opts postgres.Options) queuetest.Instance {
	return queueInstanceOn(t, postgrestest.Database(t), opts)
}

func queueInstanceOn(t testing.TB, url string, opts postgres.Options) queuetest.Instance {
	return queuetest.Instance{
		Store: openStore(t, url, opts),
		Begin: func(ctx context.Context) (queuetest.Tx, error) {
			conn, err := pgx.Connect(ctx, url)
			if err != nil {
				return nil, err
			}
			tx, err := conn.Begin(ctx)
			if err != nil {
				_ = conn.Close(ctx)
				return nil, err
			}
			return &enqueueTx{businessTx{tx: tx, conn: conn, schema: opts.Schema}}, nil
		},
		Another: func(t testing.TB) penstock.QueueStore { return openStore(t, url, opts) },
		Pin:     func(t testing.TB) func() { return pin(t, url) },
		Backdate: func(t testing.TB, queue, schedule string, by time.Duration) {
			schema := pgx.Identifier{cmp.Or(opts.Schema, postgres.DefaultSchema)}.Sanitize()
			exec(t, url, "update "+schema+"._schedule s set next = now() - $3::interval from "+schema+"._queue q where q.id = s.queue and q.name = $1 and s.name = $2", queue, schedule, by)
		},
	}
}

// enqueueTx is a businessTx that enqueues.
type enqueueTx struct{ businessTx }

func (b *enqueueTx) Enqueue(ctx context.Context, queue string, jobs ...penstock.NewJob) ([]penstock.Enqueued, error) {
	return postgres.NewQueue(b.schema, queue).Enqueue(ctx, b.tx, jobs...)
}
