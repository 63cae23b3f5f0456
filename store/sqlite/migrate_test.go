package sqlite_test

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
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

// The suite asks everything else.
func TestPublishToANewerSchema(t *testing.T) {
	path, _, app := newFile(t, sqlite.Options{})
	mustExec(t, app, `insert into penstock_schema (version_id, is_applied) values (1000, 1)`)
	if err := open(t, path).Publish(t.Context(), "orders", penstock.Message{}); !errors.Is(err, penstock.ErrNewerSchema) {
		t.Errorf("got %v", err)
	}
}

// Processes that start at the same moment on a file that does not exist yet.
func TestMigrateFromProcesses(t *testing.T) {
	files, _ := filepath.Glob("migrations/*.sql")
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
		if n := scan[int](t, app, `select count(*) from penstock_schema where version_id > 0`); n != len(files) {
			t.Errorf("%d migrations are noted, want each of %d once", n, len(files))
		}
	}
}

// A file of a version from before the first release is refused, and stays as it is.
func TestFileFromBeforeTheFirstRelease(t *testing.T) {
	path, _, app := newFile(t, sqlite.Options{})
	mustExec(t, app, `delete from penstock_schema where version_id > 20`)
	mustExec(t, app, `update penstock_schema set version_id = 19 where version_id = 20`)
	err := open(t, path).Migrate(t.Context())
	if !errors.Is(err, penstock.ErrOlderSchema) || !strings.Contains(err.Error(), "version 19 of the tables") || !strings.Contains(err.Error(), "from before the first release") {
		t.Errorf("got %v", err)
	}
	if n := scan[int](t, app, `select max(version_id) from penstock_schema`); n != 19 {
		t.Errorf("the file is version %d now", n)
	}
}

// A new file is this user's alone, whichever call makes it, and a file that exists keeps its mode.
func TestFileMode(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("it has no such modes")
	}
	modes := func(file string) (modes []os.FileMode) {
		for _, suffix := range []string{"", "-wal", "-shm"} {
			info, err := os.Stat(file + suffix)
			if err != nil {
				t.Fatal(err)
			}
			modes = append(modes, info.Mode())
		}
		return modes
	}
	for name, first := range map[string]os.FileMode{"new.db": 0, "there.db": 0o640} {
		for _, by := range []string{"Migrate", "OpenDB"} {
			file := filepath.Join(t.TempDir(), name)
			want := cmp.Or(first, 0o600)
			if first != 0 {
				if err := os.WriteFile(file, nil, first); err != nil {
					t.Fatal(err)
				}
			}
			if by == "Migrate" {
				s, err := sqlite.Open(t.Context(), file, sqlite.Options{})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = s.Close() })
				if err := s.Migrate(t.Context()); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Status(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			db, err := sqlite.OpenDB(file)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			if _, err := db.ExecContext(t.Context(), "create table app (n)"); err != nil {
				t.Fatal(err)
			}
			if got := modes(file); !slices.Equal(got, []os.FileMode{want, want, want}) {
				t.Errorf("%s by %s: %v, want %v", name, by, got, want)
			}
		}
	}
}
