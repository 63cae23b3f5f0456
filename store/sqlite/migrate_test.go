package sqlite_test

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

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
		if n := scan[int](t, app, `select count(*) from penstock_schema where version_id > 0`); n != 8 {
			t.Errorf("%d migrations are noted, want each of 8 once", n)
		}
	}
}

// Messages that were written before ids had a time in them keep their ids, and the outboxes
// know how far those go, whatever the outboxes are called.
func TestMigrateKeepsIDs(t *testing.T) {
	path, s, app := newFile(t, sqlite.Options{})
	ctx := t.Context()
	names := []string{"orders", "Orders", "Orders~1", "it's 100%_\"quoted\"", "empty"}
	for _, name := range names[1:] {
		if err := s.CreateOutbox(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	written := map[string]int{"orders": 3, "Orders": 5, "Orders~1": 7, names[3]: 9}
	for name, n := range written {
		if err := s.Publish(ctx, name, numbered(n)...); err != nil {
			t.Fatal(err)
		}
	}
	src := subscribe(t, s, "billing")
	_, batches := fetchAll(t, src)
	batches[0].Verdicts = make([]penstock.Verdict, 3)
	batches[0].Verdicts[0].Outcome = penstock.Dead
	if err := src.Settle(ctx, batches...); err != nil {
		t.Fatal(err)
	}
	// As it was before the migration: the ids are not stored, so nothing else tells the two apart.
	mustExec(t, app, `alter table penstock_outboxes drop column plain_ids`)
	mustExec(t, app, `alter table penstock_replays drop column besides; alter table penstock_replays drop column covered; alter table penstock_replays drop column ahead;
		alter table penstock_subscriptions rename column settles to batch; alter table penstock_subscriptions drop column ahead;
		alter table penstock_subscriptions drop column sink_epoch; alter table penstock_subscriptions drop column sink_down; alter table penstock_subscriptions drop column sink_error;
		alter table penstock_scheduled rename to penstock_later; drop index penstock_scheduled_due; create index penstock_later_due on penstock_later (queue_id, due);
		alter table penstock_ready rename column group_key to grp; alter table penstock_keyed rename column group_key to grp;
		alter table penstock_dead_jobs rename column group_key to grp; alter table penstock_schedules rename column group_key to grp;
		alter table penstock_parked rename column key_id to line_id; drop index penstock_parked_keys_due; alter table penstock_parked_keys rename to penstock_lines;
		create index penstock_lines_due on penstock_lines (subscription_id, due) where due is not null`)
	mustExec(t, app, `delete from penstock_schema where version_id >= 4`)

	s = open(t, path)
	if err := s.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := s.Publish(ctx, name, numbered(2)...); err != nil {
			t.Fatal(err)
		}
		tail, err := s.Subscribe(ctx, penstock.Subscribe{Outbox: name, Subscription: "tail", Ephemeral: true})
		if err != nil {
			t.Fatal(err)
		}
		msgs, _ := fetchAll(t, tail)
		if len(msgs) != written[name]+2 {
			t.Fatalf("%q has %d messages, want %d", name, len(msgs), written[name]+2)
		}
		for i, m := range msgs {
			uid, rest, _ := strings.Cut(m.ID, "-")
			plain := rest == strconv.Itoa(i+1)
			if old := i < written[name]; plain != old || len(uid) != 12 {
				t.Errorf("%q: message %d of %d has the id %s", name, i+1, written[name], m.ID)
			}
		}
	}
	uid := scan[string](t, app, `select uid from penstock_outboxes where name = 'orders'`)
	found, err := s.DeadLetters(ctx, penstock.DeadLetterQuery{Outbox: "orders", Subscription: "billing", IDs: []string{uid + "-1", uid + "-2"}})
	if err != nil || len(found) != 1 || found[0].Message.ID != uid+"-1" {
		t.Errorf("by its id there is found %+v, %v", found, err)
	}
}

// A file of version 6, with jobs in all states in two queues, becomes what a new one is, and its jobs run.
func TestUpgradeOfQueues(t *testing.T) {
	names := []string{"jobs", "penstock_later_of_grp"} // as the dump has them
	file, err := os.Open("testdata/schema_6.sql.gz")
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
	const schema = `select group_concat(line, char(10)) from (select type || ' ' || name || ': ' || replace(replace(replace(sql, '"', ''), ' ', ''), char(10), '') as line
		from sqlite_schema where name not like '%orders%' and name not like 'sqlite%' order by 1)`
	if got, want := scan[string](t, app, schema), scan[string](t, freshApp, schema); got != want {
		t.Errorf("the schema is\n%s\nwant\n%s", got, want)
	}
	if problem := scan[string](t, app, `pragma integrity_check`); problem != "ok" {
		t.Error(problem)
	}
	for i, name := range names {
		mustExec(t, app, `update penstock_scheduled set due = 1`)
		q := s.Queue(name)
		if err := q.Maintain(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for range 2 { // the key's jobs one after another
			jobs, err := q.Claim(t.Context(), penstock.Claim{Jobs: 10, Group: "g", Lease: time.Minute})
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
		dead, err := s.DeadJobs(t.Context(), penstock.DeadJobQuery{Queue: name})
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
