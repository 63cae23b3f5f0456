package portable_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/queuetest"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/portable"
)

// atOnce: the suite's model needs the order of late commits at once, however slow the machine.
var atOnce = portable.Options{Margin: time.Hour, LookAgain: time.Nanosecond}

func TestQueue(t *testing.T) {
	t.Parallel()
	queuetest.Run(t, queues(unpooled))
}

func queues(through func(t testing.TB, direct string) (url string)) queuetest.Harness {
	return queuetest.Harness{
		Open: func(t testing.TB) queuetest.Instance {
			url := through(t, database(t))
			pool := business(t, url)
			s := openStore(t, url, atOnce)
			return queuetest.Instance{
				Store:   s,
				Reads:   func(t testing.TB) float64 { _, n := (&fixture{TB: t, url: url, store: s}).reads(); return n },
				Begin:   func(ctx context.Context) (queuetest.Tx, error) { return beginOn(ctx, pool) },
				Another: func(t testing.TB) driver.QueueStore { return openStore(t, url, atOnce) },
				Pin:     func(t testing.TB) func() { return pin(t, url) },
				HoldExtensions: func(t testing.TB) (func() bool, func() func()) {
					return testserver.HoldUpdates(t, url, "penstock_portable.leases")
				},
				Spoil: func(t testing.TB, id int64) {
					exec(t, url, `update penstock_portable.dead_jobs set attempts = 2147483647, failures = '{"a": 1}' where seq = $1`, id)
				},
				Backdate: func(t testing.TB, queue, schedule string, by time.Duration) {
					exec(t, url, "update penstock_portable.schedules set next = $1 where name = $2 and queue_id = (select id from penstock_portable.queues where name = $3)",
						time.Now().Add(-by), schedule, queue)
				},
			}
		},
		// Not Reclaim: plain tables do not shrink.
		Features: queuetest.Features{ConcurrentWriters: true, Options: true, Unique: true, Snapshots: true, Reads: true},
	}
}

// pin opens a snapshot that keeps the database from cleaning up.
func pin(t testing.TB, url string) (release func()) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	release = func() { _ = conn.Close(ctx) }
	t.Cleanup(release)
	for _, sql := range []string{"begin isolation level repeatable read", "select 1"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	return release
}

func (b *businessTx) Enqueue(ctx context.Context, queue string, jobs ...penstock.NewJob) ([]penstock.Enqueued, error) {
	return b.store.Queue(queue).EnqueueTx(ctx, b.tx, jobs...)
}
