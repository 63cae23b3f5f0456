package postgres_test

import (
	"cmp"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/queuetest"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/work"
)

func TestQueue(t *testing.T) { runQueueSuite(t, postgres.Options{}, nil, queuetest.SmallPieces) }

// With segments that are full after a few hundred jobs the ring turns all the time.
func TestQueueOnASmallRing(t *testing.T) { runQueueSuite(t, small, queuetest.SmallPieces, nil) }

func runQueueSuite(t *testing.T, opts postgres.Options, only, elsewhere queuetest.Cases) {
	t.Parallel()
	queuetest.Run(t, queuetest.Harness{
		OpenCreated: func(t testing.TB, order penstock.QueueOrder) queuetest.Instance {
			return queueInstanceOn(t, withQueue(t, opts, order), opts)
		},
		Features:  queuetest.Features{ConcurrentWriters: true, Reclaim: true, Snapshots: true, Options: true, Unique: true, Barriers: true, WaitingMessages: true, WorkTx: true, Forward: true},
		Only:      only,
		Elsewhere: elsewhere,
	})
}

// withQueue is a migrated database with the suite's queue.
func withQueue(t testing.TB, opts postgres.Options, order penstock.QueueOrder) string {
	return postgrestest.Holding(t, fmt.Sprintf("queue %+v %s", opts, order), opts, func(ctx context.Context, s *postgres.Store) error {
		return s.CreateQueue(ctx, queuetest.Queue, order)
	})
}

func queueInstanceOn(t testing.TB, url string, opts postgres.Options) queuetest.Instance {
	business, store := businessOn(t, url), openStore(t, url, opts)
	return queuetest.Instance{
		Store: store,
		WorkTx: func(ctx context.Context, h queuetest.TxHandler, o work.Options) error {
			return postgres.WorkTx(ctx, store, queuetest.Queue, func(ctx context.Context, tx pgx.Tx, job penstock.Job) error {
				return h(ctx, &enqueueTx{businessTx{tx: tx, store: store}}, job)
			}, o)
		},
		Begin: func(ctx context.Context) (queuetest.Tx, error) {
			tx, err := begin(ctx, business, opts.Schema)
			return &enqueueTx{tx}, err
		},
		Forwarder: func(t testing.TB) driver.Forwarder {
			opts.Log = quiet
			return openStore(t, url+"&application_name=forwards", opts)
		},
		Disturb: func(t testing.TB) func() {
			cut := func() {
				exec(t, url, "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'forwards' and datname = current_database()")
			}
			cut()
			return cut
		},
		Another: func(t testing.TB) driver.QueueStore { return openStore(t, url, opts) },
		Pin:     func(t testing.TB) func() { return pin(t, url) },
		HoldExtensions: func(t testing.TB) (func() bool, func() func()) {
			schema := pgx.Identifier{cmp.Or(opts.Schema, postgres.DefaultSchema)}.Sanitize()
			return testserver.HoldUpdates(t, url, schema+"._lease_0", schema+"._lease_1")
		},
		Spoil: func(t testing.TB, id int64) {
			schema := pgx.Identifier{cmp.Or(opts.Schema, postgres.DefaultSchema)}.Sanitize()
			exec(t, url, "update "+schema+`._dead_job set attempt = 2147483647, failures = '{"a": 1}' where id = $1`, id)
		},
		Backdate: func(t testing.TB, queue, schedule string, by time.Duration) {
			schema := pgx.Identifier{cmp.Or(opts.Schema, postgres.DefaultSchema)}.Sanitize()
			exec(t, url, "update "+schema+"._schedule s set next = now() - $3::interval from "+schema+"._queue q where q.id = s.queue and q.name = $1 and s.name = $2", queue, schedule, by)
			if by < 0 {
				exec(t, url, "select setval(format('%I.%I', $1::text, '_' || $2::text || '.maintained')::regclass, (extract(epoch from now() + $3::interval) * 1000)::bigint)",
					cmp.Or(opts.Schema, postgres.DefaultSchema), queue, -by)
			}
		},
	}
}

// enqueueTx is a businessTx that enqueues.
type enqueueTx struct{ businessTx }

func (b *enqueueTx) Enqueue(ctx context.Context, queue string, jobs ...penstock.NewJob) ([]penstock.Enqueued, error) {
	return b.store.Queue(queue).EnqueueTx(ctx, b.tx, jobs...)
}

func (b *enqueueTx) Reporter(queue string) driver.Reporter {
	return b.store.Queue(queue).Reporter(b.tx)
}

func (b *enqueueTx) SetQueue(ctx context.Context, queue string, set penstock.QueueSettings) error {
	schema := pgx.Identifier{b.store.Schema()}.Sanitize()
	if _, err := b.tx.Exec(ctx, "select "+schema+".set_queue($1, max_running => $2)", queue, set.MaxRunning); err != nil || set.Paused == nil {
		return err
	}
	_, err := b.tx.Exec(ctx, "select case when $2 then "+schema+".pause_queue($1)::text else "+schema+".resume_queue($1)::text end", queue, *set.Paused)
	return err
}
