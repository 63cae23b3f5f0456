package sqlite_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/queuetest"
	"github.com/penstock/penstock/internal/test/sqlitetest"
	"github.com/penstock/penstock/store/sqlite"
	"github.com/penstock/penstock/work"
)

func TestQueue(t *testing.T) {
	queuetest.Run(t, queuetest.Harness{
		Open: openQueueInstance,
		Features: queuetest.Features{Barriers: true, Options: true, Unique: true,
			ConcurrentWriters: false, // SQLite has one writer at a time
			Reclaim:           true,
			Snapshots:         true,
			WorkTx:            true,
			Forward:           true,
			Reads:             true,
		},
	})
}

func openQueueInstance(t testing.TB) queuetest.Instance {
	countSteps()
	path := sqlitetest.File(t)
	app := openApp(t, path)
	mustExec(t, app, `create table counters (name text primary key, n integer not null)`)
	store := open(t, path)
	return queuetest.Instance{
		Store: store,
		Begin: func(ctx context.Context) (queuetest.Tx, error) {
			tx, err := app.BeginTx(ctx, nil)
			return businessTx{tx, store}, err
		},
		WorkTx: func(ctx context.Context, h queuetest.TxHandler, o work.Options) error {
			return sqlite.WorkTx(ctx, store, queuetest.Queue, func(ctx context.Context, tx *sql.Tx, job penstock.Job) error {
				return h(ctx, businessTx{tx, store}, job)
			}, o)
		},
		Forwarder: func(t testing.TB) driver.Forwarder { return open(t, path) },
		Disturb:   func(t testing.TB) func() { return disturb(t, app) },
		Another:   func(t testing.TB) driver.QueueStore { return open(t, path) },
		Pin:       func(t testing.TB) func() { return pin(t, path) },
		Reads:     func(t testing.TB) float64 { return stepsOf(t, path) },
		Spoil: func(t testing.TB, id int64) {
			mustExec(t, app, `update penstock_dead_jobs set history = '{"attempts": 9223372036854775807, "failures": {"a": 1}}' where seq = ?`, id)
		},
		Backdate: func(t testing.TB, queue, schedule string, by time.Duration) {
			mustExec(t, app, `update penstock_schedules set next = ? where name = ? and queue_id = (select id from penstock_queues where name = ?)`,
				time.Now().Add(-by).UnixMicro(), schedule, queue)
		},
	}
}

// disturb has forwarding fail until calm is called: where it writes jobs, or where it moves the cursor.
func disturb(t testing.TB, app *sql.DB) (calm func()) {
	mustExec(t, app, `create table if not exists broken (n integer primary key, now integer)`)
	mustExec(t, app, `create trigger if not exists jobs before insert on `+sqlite.QueueTable(queuetest.Queue)+` when exists (select 1 from broken where now and n % 2)
		begin select raise(abort, 'by intent'); end`)
	mustExec(t, app, `create trigger if not exists positions before update of position on penstock_subscriptions when new.position > old.position and exists (select 1 from broken where now and not n % 2)
		begin select raise(abort, 'by intent'); end`)
	mustExec(t, app, `insert into broken (now) values (true)`)
	return func() { mustExec(t, app, `update broken set now = false`) }
}

func (b businessTx) Enqueue(ctx context.Context, queue string, jobs ...penstock.NewJob) ([]penstock.Enqueued, error) {
	return b.store.Queue(queue).EnqueueTx(ctx, b.tx, jobs...)
}

// newQueue is a file with the queue "jobs" and the outbox "orders".
func newQueue(t testing.TB, order penstock.QueueOrder) (path string, s *sqlite.Store, q driver.Queue) {
	t.Helper()
	path, s, _ = newFile(t, sqlite.Options{})
	if err := s.CreateQueue(t.Context(), "jobs", order); err != nil {
		t.Fatal(err)
	}
	return path, s, s.Queue("jobs")
}

// claimJobs claims for longer than the test takes.
func claimJobs(t testing.TB, q driver.Queue, n int) []penstock.Job {
	t.Helper()
	jobs, err := q.Claim(t.Context(), driver.Claim{Jobs: n, Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return jobs
}
