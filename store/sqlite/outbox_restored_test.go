package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/store/sqlite"
)

// A copy of the file is put back while a relay reads. Numbers that this relay has read are given to other messages then. It ends, and
// the next one begins where the copy is.
func TestRestoredUnderAReader(t *testing.T) {
	for name, c := range map[string]struct {
		before, settled, inFlight, after int // messages
	}{
		"settled":       {before: 3, settled: 5, after: 2},
		"settled later": {before: 3, settled: 2, after: 4},
		"in flight":     {before: 3, inFlight: 5, after: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, s, app := newFile(t, sqlite.Options{})
			ctx, backup := t.Context(), filepath.Join(t.TempDir(), "backup.db")
			src := subscribe(t, s, "billing")
			pass := func(n int, settle bool) {
				t.Helper()
				must(t, s.Publish(ctx, "orders", numbered(n)...))
				msgs, batches := fetchAll(t, src)
				if len(msgs) != n {
					t.Fatalf("%d messages came, want %d", len(msgs), n)
				}
				if settle {
					must(t, storetest.Settle(ctx, src, batches...))
				}
			}
			pass(c.before, true)
			mustExec(t, app, "vacuum into ?", backup)
			pass(c.settled, true)
			pass(c.inFlight, false)
			restore(t, app, backup)
			must(t, s.Publish(ctx, "orders", numbered(c.after)...))

			b, err := src.Fetch(ctx, driver.Limit{Messages: 100, Bytes: 1 << 20})
			if !errors.Is(err, penstock.ErrFenced) {
				t.Fatalf("Fetch returned %d messages and %v, want that the reader ends", len(b.Messages), err)
			}
			src = subscribe(t, open(t, path), "billing")
			if msgs, _ := fetchAll(t, src); len(msgs) != c.after {
				t.Errorf("%d messages came after the restore, want %d", len(msgs), c.after)
			}
		})
	}
}

// It is noticed by a Settle as well, which would move the position over messages that were not read.
func TestRestoredBeforeSettle(t *testing.T) {
	path, s, app := newFile(t, sqlite.Options{})
	ctx, backup := t.Context(), filepath.Join(t.TempDir(), "backup.db")
	src := subscribe(t, s, "billing")
	mustExec(t, app, "vacuum into ?", backup)
	must(t, s.Publish(ctx, "orders", numbered(3)...))
	_, batches := fetchAll(t, src)
	must(t, storetest.Settle(ctx, src, batches...))
	must(t, s.Publish(ctx, "orders", numbered(3)...))
	_, batches = fetchAll(t, src)
	restore(t, app, backup)
	must(t, s.Publish(ctx, "orders", numbered(6)...))
	if err := storetest.Settle(ctx, src, batches...); !errors.Is(err, penstock.ErrFenced) {
		t.Errorf("Settle returned %v, want that the reader ends", err)
	}
	if msgs, _ := fetchAll(t, subscribe(t, open(t, path), "billing")); len(msgs) != 6 {
		t.Errorf("%d messages came after the restore, want 6", len(msgs))
	}
}

// A backup takes the file's name while a relay reads. That relay ends, and the next one of the same store reads the backup.
func TestReplacedUnderAReader(t *testing.T) {
	path, s, app := newFile(t, sqlite.Options{})
	ctx, backup := t.Context(), filepath.Join(filepath.Dir(path), "backup.db")
	src := subscribe(t, s, "billing")
	pass := func() {
		t.Helper()
		must(t, s.Publish(ctx, "orders", numbered(3)...))
		_, batches := fetchAll(t, src)
		must(t, storetest.Settle(ctx, src, batches...))
	}
	pass()
	mustExec(t, app, "vacuum into ?", backup)
	pass()
	must(t, app.Close(), os.Rename(backup, path))
	for _, of := range []string{"-wal", "-shm"} {
		_ = os.Remove(path + of)
	}
	must(t, open(t, path).Publish(ctx, "orders", numbered(4)...))
	var err error
	for end := time.Now().Add(patience); err == nil && time.Now().Before(end); {
		_, err = src.Fetch(ctx, driver.Limit{Messages: 100, Bytes: 1 << 20})
	}
	if !errors.Is(err, penstock.ErrFenced) {
		t.Fatalf("Fetch returned %v, want that the reader ends", err)
	}
	if msgs, _ := fetchAll(t, subscribe(t, s, "billing")); len(msgs) != 4 {
		t.Errorf("%d messages came from the backup, want 4", len(msgs))
	}
}

// restore copies the backup into the file, as SQLite's own .restore does: other connections stay open.
func restore(t *testing.T, app *sql.DB, backup string) {
	t.Helper()
	conn, err := app.Conn(t.Context())
	must(t, err)
	defer conn.Close()
	exec := func(query string, args ...any) {
		t.Helper()
		_, err := conn.ExecContext(context.WithoutCancel(t.Context()), query, args...)
		must(t, err)
	}
	exec("attach ? as backup", backup)
	defer exec("detach backup")
	rows, err := conn.QueryContext(t.Context(), "select name from backup.sqlite_master where type = 'table' and name not like 'sqlite_stat%'")
	must(t, err)
	var names []string
	for rows.Next() {
		var name string
		must(t, rows.Scan(&name))
		names = append(names, name)
	}
	must(t, rows.Err())
	exec("begin immediate")
	for _, name := range append(names, "sqlite_sequence") { // last: inserting into the others moves it
		exec(fmt.Sprintf("delete from main.%q", name))
		exec(fmt.Sprintf("insert into main.%q select * from backup.%q", name, name))
	}
	exec("commit")
}
