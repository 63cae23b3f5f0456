package sqlite_test

import (
	"cmp"
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/storetest"
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
		if n := scan[int](t, app, `select count(*) from penstock_schema where version_id > 0`); n != len(files)+2 {
			t.Errorf("%d migrations are noted, want each of %d, and the two in Go, once", n, len(files)+1)
		}
	}
}

// A file of the oldest version that is brought up, with an outbox and with jobs in all states in two queues, becomes what a
// new one is. Its messages come, and its jobs run.
func TestUpgrade(t *testing.T) {
	names := []string{"jobs", "stack"} // as the dump has them
	file, err := os.Open("testdata/schema_8.sql.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	dump, err := io.ReadAll(unzipped)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "old.db")
	mustExec(t, openApp(t, path), string(dump))
	// A subscription has settled three messages, which are replayed. One is parked, and a key waits for a dead letter: both are copies.
	const failed = `{"attempts":2,"since":"2026-11-23T11:01:35.42Z","failures":[{"attempt":2,"at":"2026-11-23T11:01:36Z","error":"broken"}]}`
	mustExec(t, openApp(t, path), `insert into penstock_subscriptions (id, outbox_id, name, position) values (1, 1, 'billing', 5);
		insert into penstock_parked_keys (id, subscription_id, key, alone, head, due) values (1, 1, 'p', 0, 4, 1), (2, 1, 'h', 0, null, null);
		insert into penstock_parked (key_id, seq, key, topic, payload, created_at, history) values (1, 4, 'p', 't', 'parked', 1795527016499, '`+failed+`');
		insert into penstock_dead_letters (subscription_id, seq, key, topic, payload, created_at, history, at) values (1, 5, 'h', 't', 'dead', 1795527016500, '`+failed+`', 7);
		insert into penstock_holds (subscription_id, seq, key) values (1, 5, 'h');
		insert into penstock_replays (subscription_id, position, last, created_from, created_to) values (1, 0, 3, 0, 9223372036854775807)`)
	s, app := open(t, path), openApp(t, path)
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, fresh, freshApp := newFile(t, sqlite.Options{})
	for i, name := range names {
		if err := fresh.CreateQueue(t.Context(), name, []penstock.QueueOrder{penstock.FIFO, penstock.LIFO}[i]); err != nil {
			t.Fatal(err)
		}
	}
	// Of tables the columns, in no order: the file's may have been added one by one.
	const schema = `select group_concat(line, char(10)) from (select type || ' ' || name || ': ' || case
		when type = 'table' and name not like 'penstock\_queue\_%' escape '\' then (select group_concat(c) from
			(select c.name || ' ' || c.type || ' ' || c."notnull" || ' ' || coalesce(c.dflt_value, '') || ' ' || c.pk as c from pragma_table_info(s.name) c order by 1))
		else replace(replace(replace(sql, '"', ''), ' ', ''), char(10), '') end as line
		from sqlite_schema s where name not like '%orders%' and name not like '%outbox\_shop%' escape '\' and name not like 'sqlite%' order by 1)`
	if got, want := scan[string](t, app, schema), scan[string](t, freshApp, schema); got != want {
		t.Errorf("the schema is\n%s\nwant\n%s", got, want)
	}
	if problem := scan[string](t, app, `pragma integrity_check`); problem != "ok" {
		t.Error(problem)
	}
	tail, err := s.Subscribe(t.Context(), driver.Subscribe{Outbox: "shop", Subscription: "tail", Ephemeral: true})
	if err != nil {
		t.Fatal(err)
	}
	if msgs, _ := fetchAll(t, tail); len(msgs) != 5 || string(msgs[2].Payload) != "message 3" {
		t.Errorf("of shop came %v, want its 3 messages, and 2 that are parked or dead", msgs)
	}
	entriesAreThere(t, s)
	for i, name := range names {
		mustExec(t, app, `update penstock_scheduled set due = 1`)
		q := s.Queue(name)
		if err := q.Maintain(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for range 2 { // the key's jobs one after another
			jobs, err := q.Claim(t.Context(), driver.Claim{Jobs: 10, Group: "g", Lease: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			for _, j := range jobs {
				got[string(j.Payload)] = true
				if _, err := q.Ack(t.Context(), j.Lease); err != nil {
					t.Fatal(err)
				}
			}
		}
		if len(got) != 3 || !got["first"] || !got["second"] || !got["delayed"] {
			t.Errorf("of %s came %v, want the first, the second and the delayed job", name, got)
		}
		dead, err := s.DeadJobs(t.Context(), admin.DeadJobQuery{Queue: name})
		if err != nil || len(dead) != 1-i || len(dead) == 1 && dead[0].Job.Group != "d" {
			t.Errorf("%s has the dead letters %+v, %v", name, dead, err)
		}
		schedules, err := s.Schedules(t.Context(), name)
		if err != nil || len(schedules) != 1 || schedules[0].Job.Group != "g" {
			t.Errorf("%s has the schedules %+v, %v", name, schedules, err)
		}
		if _, err := app.Exec(`insert into ` + sqlite.QueueTable(name) + ` (payload, group_key) values ('x', null)`); err == nil {
			t.Error("a group that is null was taken")
		}
		if _, err := app.Exec(`insert into ` + sqlite.QueueTable(name) + ` (payload, group_key) values ('x', x'00')`); err == nil || !strings.Contains(err.Error(), "group_key must be text") {
			t.Errorf("a group of bytes: %v", err)
		}
	}
}

// entriesAreThere checks what the old file had of its subscription.
func entriesAreThere(t *testing.T, s *sqlite.Store) {
	t.Helper()
	src, err := s.Subscribe(t.Context(), driver.Subscribe{Outbox: "shop", Subscription: "billing"})
	must(t, err)
	got := map[string]int{}
	msgs, batches := fetchAll(t, src)
	for _, m := range msgs {
		got[string(m.Payload)] = m.Attempt
	}
	if want := map[string]int{"message 1": 1, "message 2": 1, "message 3": 1, "parked": 3}; !maps.Equal(got, want) {
		t.Errorf("got %v with their attempts, want %v", got, want)
	}
	must(t, storetest.Settle(t.Context(), src, batches...))
	letters, err := s.DeadLetters(t.Context(), admin.DeadLetterQuery{Outbox: "shop", Subscription: "billing"})
	must(t, err)
	if len(letters) != 1 || !letters[0].Held || letters[0].Message.Attempt != 2 || letters[0].Failures[0].Err != "broken" || letters[0].At.UnixMicro() != 7 {
		t.Errorf("the dead letters are %+v", letters)
	}
	keys, err := s.ParkedKeys(t.Context(), "shop", "billing", 10)
	must(t, err)
	if len(keys) != 1 || keys[0].Key != "h" || !keys[0].Held {
		t.Errorf("the parked keys are %+v", keys)
	}
}

// A file of a version from before the first release is refused, and stays as it is.
func TestFileFromBeforeTheFirstRelease(t *testing.T) {
	path, _, app := newFile(t, sqlite.Options{})
	mustExec(t, app, `delete from penstock_schema where version_id > 8; update penstock_schema set version_id = 7 where version_id = 8`)
	err := open(t, path).Migrate(t.Context())
	if !errors.Is(err, penstock.ErrOlderSchema) || !strings.Contains(err.Error(), "version 7 of the tables") || !strings.Contains(err.Error(), "from before the first release") {
		t.Errorf("got %v", err)
	}
	if n := scan[int](t, app, `select max(version_id) from penstock_schema`); n != 7 {
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
