package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/sqlitetest"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/store/sqlite"
)

func TestStore(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		Open:        openInstance,
		OpenCreated: openCreated,
		Features: storetest.Features{
			ConcurrentWriters: false, // SQLite has one writer at a time
			Reclaim:           true,
			Versions:          true,
			Snapshots:         true,
			Outage:            false, // there is no connection to cut
			Copy:              true,
		},
	})
}

// patience outlasts any transaction that a test keeps open.
const patience = time.Minute

func openInstance(t testing.TB) storetest.Instance {
	return withCounters(t, filepath.Join(t.TempDir(), "app.db"))
}

func openCreated(t testing.TB) storetest.Instance {
	i := withCounters(t, sqlitetest.File(t))
	must(t, i.Store.CreateOutbox(t.Context(), storetest.Outbox))
	return i
}

func withCounters(t testing.TB, path string) storetest.Instance {
	app, err := sqlite.OpenDB(path)
	must(t, err)
	_, err = app.Exec(`create table counters (name text primary key, n integer not null)`)
	must(t, errors.Join(err, app.Close()))
	return instanceOf(t, path)
}

// instanceOf is the database in a file.
func instanceOf(t testing.TB, path string) storetest.Instance {
	app, err := sqlite.OpenDB(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = app.Close() })
	another := func(t testing.TB) driver.Store { return open(t, path) }
	store := open(t, path)
	return storetest.Instance{
		Store:   store,
		Another: another,
		Begin: func(ctx context.Context) (storetest.Tx, error) {
			tx, err := app.BeginTx(ctx, nil)
			return businessTx{tx, store}, err
		},
		Pin: func(t testing.TB) func() { return pin(t, path) },
		SetVersion: func(t testing.TB, version int64) {
			mustExec(t, app, `update penstock_schema set version_id = ? where version_id = (select max(version_id) from penstock_schema)`, version)
		},
		Spoil: func(t testing.TB) { mustExec(t, app, `alter table penstock_inboxes drop column keep`) },
		Copy: func(t testing.TB) storetest.Instance {
			copied := filepath.Join(t.TempDir(), "copy.db")
			if _, err := app.Exec(`vacuum into ?`, copied); err != nil {
				t.Fatal(err)
			}
			return instanceOf(t, copied)
		},
	}
}

func open(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(context.Background(), path, sqlite.Options{BusyTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// pin opens a read transaction that keeps its snapshot.
func pin(t testing.TB, path string) func() {
	t.Helper()
	db, err := sqlite.OpenDB(path)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(context.Background(), &sql.TxOptions{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := tx.QueryRow(`select count(*) from counters`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	release := func() { _ = tx.Rollback(); _ = db.Close() }
	t.Cleanup(release)
	return release
}

// businessTx is a transaction of the application.
type businessTx struct {
	tx interface { // a *sql.Tx, or one with a buffer
		sqlite.Tx
		Commit() error
		Rollback() error
	}
	store *sqlite.Store
}

func (b businessTx) Reporter(queue string) driver.Reporter {
	return b.store.Queue(queue).Reporter(b.tx)
}

func (b businessTx) Publish(ctx context.Context, outbox string, msgs ...penstock.Message) error {
	return b.store.Outbox(outbox).PublishTx(ctx, b.tx, msgs...)
}

func (b businessTx) Count(ctx context.Context, name string) (n int64, err error) {
	err = b.tx.QueryRowContext(ctx, `insert into counters values (?, 1) on conflict do update set n = n + 1 returning n`, name).Scan(&n)
	return n, err
}

func (b businessTx) Commit(context.Context) error   { return b.tx.Commit() }
func (b businessTx) Rollback(context.Context) error { return b.tx.Rollback() }
