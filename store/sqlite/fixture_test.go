package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/sqlitetest"
	"github.com/penstock/penstock/store/sqlite"
)

// newFile is a migrated file with the outbox "orders", a store on it and the
// application's pool.
func newFile(t testing.TB, o sqlite.Options) (path string, s *sqlite.Store, app *sql.DB) {
	t.Helper()
	path = sqlitetest.File(t)
	ctx := context.Background()
	if o.BusyTimeout == 0 {
		o.BusyTimeout = patience
	}
	s, err := sqlite.Open(ctx, path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if err := s.CreateOutbox(ctx, "orders"); err != nil {
		t.Fatal(err)
	}
	return path, s, openApp(t, path)
}

func openApp(t testing.TB, path string) *sql.DB {
	t.Helper()
	app, err := sqlite.OpenDB(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = app.Close() })
	return app
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func mustExec(t testing.TB, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.Exec(query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// scan reads one row of one column.
func scan[T any](t testing.TB, db *sql.DB, query string, args ...any) (v T) {
	t.Helper()
	if err := db.QueryRow(query, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

func subscribe(t testing.TB, s *sqlite.Store, name string) driver.Source {
	t.Helper()
	src, err := s.Subscribe(t.Context(), driver.Subscribe{Outbox: "orders", Subscription: name, Holder: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// fetchAll reads until there is nothing new.
func fetchAll(t testing.TB, src driver.Source) (msgs []penstock.Message, batches []driver.Settled) {
	t.Helper()
	for {
		b, err := src.Fetch(t.Context(), driver.Limit{Messages: 1000, Bytes: 8 << 20})
		if err != nil {
			t.Fatal(err)
		}
		if len(b.Messages) == 0 {
			return msgs, batches
		}
		msgs = append(msgs, b.Messages...)
		batches = append(batches, driver.Settled{Batch: b})
	}
}

func numbered(n int) []penstock.Message {
	msgs := make([]penstock.Message, n)
	for i := range msgs {
		msgs[i] = penstock.Message{Key: "k", Topic: "t", Payload: fmt.Appendf(nil, "%d", i)}
	}
	return msgs
}
