package mysql_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/queuetest"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/mysql"
)

func TestQueueInnoDB(t *testing.T) { queueSuite(t, "InnoDB", nil) }

func TestQueueMyRocks(t *testing.T) { queueSuite(t, "RocksDB", queuetest.Engine) }

// queueSuite: the suite's model needs the order of late commits at once, however slow the machine.
func queueSuite(t *testing.T, engine string, only queuetest.Cases) {
	t.Parallel()
	has(t, engine)
	queuetest.Run(t, queuetest.Harness{
		Open: func(t testing.TB) queuetest.Instance {
			url := testserver.MariaDBDatabase(t)
			db := application(t, url, engine)
			schema, _ := databaseOf(t, url)
			opts := mysql.Options{Schema: schema, Engine: engine, Margin: time.Hour, LookAgain: time.Nanosecond}
			s := openStore(t, url, opts)
			if err := s.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			level := levelOf(t, db, engine)
			return queuetest.Instance{
				Store: s,
				Reads: func(t testing.TB) float64 { return rowsRead(t, db, schema) },
				Begin: func(ctx context.Context) (queuetest.Tx, error) {
					tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
					return &businessTx{tx, s, nil}, err
				},
				Another:        func(t testing.TB) driver.QueueStore { return openStore(t, url, opts) },
				Pin:            func(t testing.TB) func() { return pin(t, db) },
				HoldExtensions: func(t testing.TB) (func() bool, func() func()) { return holdUpdates(t, db, schema) },
				Spoil: func(t testing.TB, id int64) {
					if _, err := db.Exec(`update dead_jobs set attempts = 2147483647, failures = '{"a": 1}' where seq = ?`, id); err != nil {
						t.Fatal(err)
					}
				},
				Backdate: func(t testing.TB, queue, schedule string, by time.Duration) {
					if _, err := db.Exec("update schedules set next = ? where name = ? and queue_id = (select id from queues where name = ?)",
						time.Now().UTC().Add(-by), schedule, queue); err != nil {
						t.Fatal(err)
					}
				},
			}
		},
		// Not Reclaim: plain tables do not shrink.
		Features: queuetest.Features{ConcurrentWriters: true, Options: true, Unique: true, Snapshots: true, Reads: !ofMySQL(t)},
		Only:     only,
	})
}

// holdUpdates has transactions that update leases wait at once after that: from a call of hold until one of open. waits: one does.
func holdUpdates(t testing.TB, db *sql.DB, schema string) (waits func() bool, hold func() (open func())) {
	ctx, lock := context.Background(), schema+".held"
	conn, err := db.Conn(ctx)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	exec(t, db, "create trigger held after update on leases for each row begin declare n int; set n = get_lock('"+lock+"', 60); set n = release_lock('"+lock+"'); end")
	var n int
	waits = func() bool {
		must(t, conn.QueryRowContext(ctx, "select count(*) from information_schema.processlist where state = 'User lock' and info like concat('%', ?, '%')", schema).Scan(&n))
		return n > 0
	}
	return waits, func() func() {
		must(t, conn.QueryRowContext(ctx, "select get_lock(?, 60)", lock).Scan(&n))
		return func() { must(t, conn.QueryRowContext(ctx, "select release_lock(?)", lock).Scan(&n)) }
	}
}

// rowsRead is how many rows of a database's tables were read since the server was told to count, which only MariaDB can.
func rowsRead(t testing.TB, db *sql.DB, schema string) (n float64) {
	if ofMySQL(t) {
		must(t, db.QueryRow("select coalesce(sum(count_read), 0) from performance_schema.table_io_waits_summary_by_table where object_schema = ?", schema).Scan(&n))
		return n
	}
	if _, err := db.Exec("set global userstat = 1"); err != nil {
		t.Fatal(err)
	}
	if err := db.QueryRow("select coalesce(sum(rows_read), 0) from information_schema.table_statistics where table_schema = ?", schema).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// pin opens a snapshot that keeps the server from cleaning up.
func pin(t testing.TB, db *sql.DB) (release func()) {
	ctx := context.Background()
	conn, err := db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	release = func() {
		_, _ = conn.ExecContext(ctx, "rollback")
		_ = conn.Close()
	}
	t.Cleanup(release)
	for _, statement := range []string{"set transaction isolation level repeatable read", "start transaction with consistent snapshot"} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	return release
}

func (b *businessTx) Enqueue(ctx context.Context, queue string, jobs ...penstock.NewJob) ([]penstock.Enqueued, error) {
	return b.store.Queue(queue).EnqueueTx(ctx, b.Tx, jobs...)
}
