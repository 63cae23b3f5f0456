package sqlite_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/sqlite"
)

// A file of the application's, with goose's default table in it, is joined and
// not disturbed.
func TestMigrateIntoTheApplicationsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	app := openApp(t, path)
	mustExec(t, app, `create table goose_db_version (version_id integer); insert into goose_db_version values (99)`)
	s := open(t, path)
	if _, err := s.Status(t.Context()); !errors.Is(err, penstock.ErrNotMigrated) || !strings.Contains(err.Error(), "penstock migrate") {
		t.Fatalf("before Migrate: %v", err)
	}
	for range 2 {
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.CreateOutbox(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	if v := scan[int](t, app, `select max(version_id) from goose_db_version`); v != 99 {
		t.Errorf("the application's goose version is %d now", v)
	}
	if mode := scan[int](t, app, `pragma auto_vacuum`); mode != 0 {
		t.Errorf("auto_vacuum of the application's file is %d now", mode)
	}
}

func TestMigrateMakesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "odd ?#%name.db")
	s := open(t, path)
	if _, err := s.Status(t.Context()); !errors.Is(err, penstock.ErrNotMigrated) || !strings.Contains(err.Error(), path) {
		t.Fatalf("without a file: %v", err)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	app := openApp(t, path)
	if mode := scan[int](t, app, `pragma auto_vacuum`); mode != 2 {
		t.Errorf("auto_vacuum is %d, want 2 (incremental)", mode)
	}
	if mode := scan[string](t, app, `pragma journal_mode`); mode != "wal" {
		t.Errorf("journal_mode is %s, want wal", mode)
	}
	if sync := scan[int](t, app, `pragma synchronous`); sync != 2 {
		t.Errorf("synchronous of OpenDB is %d, want 2 (full)", sync)
	}
}

func TestNewerSchema(t *testing.T) {
	path, s, app := newFile(t, sqlite.Options{})
	mustExec(t, app, `insert into penstock_schema (version_id, is_applied) values (1000, 1)`)
	later := open(t, path)
	ctx := context.Background()
	_, subscribed := later.Subscribe(ctx, penstock.Subscribe{Outbox: "orders", Subscription: "s"})
	_, status := later.Status(ctx)
	for what, err := range map[string]error{
		"Migrate":   later.Migrate(ctx),
		"Publish":   later.Publish(ctx, "orders", penstock.Message{}),
		"Subscribe": subscribed,
		"Status":    status,
		"Maintain":  later.Maintain(ctx, "orders"),
	} {
		if !errors.Is(err, penstock.ErrNewerSchema) || !strings.Contains(err.Error(), "newer penstock") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_ = s
}

// Processes that start at the same moment on a file that does not exist yet.
func TestMigrateFromProcesses(t *testing.T) {
	for range 5 {
		path := filepath.Join(t.TempDir(), "app.db")
		var children []*child
		for range 4 {
			children = append(children, start(t, childMigrate, path))
		}
		for _, c := range children {
			if err := c.wait(); err != nil {
				t.Errorf("migrating beside others: %v\n%s", err, c.output())
			}
		}
		app := openApp(t, path)
		if n := scan[int](t, app, `select count(*) from penstock_schema where version_id > 0`); n != 3 {
			t.Errorf("%d migrations are noted, want each of 3 once", n)
		}
	}
}
