package postgres_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/postgres"
)

// In SQL too, create_queue and create_outbox say whose name it is.
func TestOutboxesAndQueuesShareTheirNames(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.Exec("select penstock.create_outbox('taken by an outbox'), penstock.create_queue('taken by a queue')")
	for call, want := range map[string]string{
		"create_queue('taken by an outbox')": "an outbox has the name 'taken by an outbox'",
		"create_outbox('taken by a queue')":  "a queue has the name 'taken by a queue'",
	} {
		_, err := f.Conn.Exec(f.Ctx, "select penstock."+call)
		pg, ok := errors.AsType[*pgconn.PgError](err)
		if !ok || pg.Code != "42P07" || pg.Message != want || !strings.Contains(pg.Hint, "choose another") {
			t.Errorf("%s: got %v, want 42P07 with %q", call, err, want)
		}
	}
}

// A call that has begun when the queue is dropped says that there is no queue. The server only has the number of a lost table.
func TestACallWhoseQueueIsDropped(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	store := openStore(t, f.URL, postgres.Options{})
	for what, call := range map[string]func(driver.Queue) error{
		"claim": func(q driver.Queue) error {
			_, err := q.Claim(f.Ctx, driver.Claim{Jobs: 1, Lease: time.Minute})
			return err
		},
		"maintain": func(q driver.Queue) error { return q.Maintain(f.Ctx) },
		"enqueue": func(q driver.Queue) error {
			_, err := store.Queue("q").Enqueue(f.Ctx, penstock.NewJob{Payload: []byte("x")})
			return err
		},
		"pause": func(driver.Queue) error { return store.SetQueue(f.Ctx, "q", penstock.QueueSettings{Paused: new(true)}) },
		"set queue": func(driver.Queue) error {
			return store.SetQueue(f.Ctx, "q", penstock.QueueSettings{MaxAttempts: new(3)})
		},
		"set group": func(driver.Queue) error {
			return store.SetGroup(f.Ctx, "q", penstock.GroupPolicy{Group: "a", Weight: 2})
		},
		"hold group": func(driver.Queue) error { return store.HoldGroup(f.Ctx, "q", "a", time.Minute, "") },
		"schedule": func(driver.Queue) error {
			return store.SetSchedule(f.Ctx, penstock.Schedule{Queue: "q", Name: "s", Cron: "@daily"})
		},
	} {
		f.Exec("select penstock.create_queue('q')")
		f.Exec("select penstock.enqueue('q', 'x')")
		tx, err := f.Conn.Begin(f.Ctx)
		f.Must(err)
		f.run(tx, "select penstock.drop_queue('q')")
		done := make(chan error, 1)
		go func() { done <- call(store.Queue("q")) }()
		watch := f.Connect()
		f.Eventually(what+" waits", func() bool {
			var waits int
			f.Must(watch.QueryRow(f.Ctx, "select count(*) from pg_stat_activity a where $1::int = any (pg_blocking_pids(a.pid))", tx.Conn().PgConn().PID()).Scan(&waits))
			return waits > 0
		})
		f.Must(tx.Commit(f.Ctx))
		if err := <-done; !errors.Is(err, penstock.ErrNoQueue) {
			t.Errorf("%s: got %v, want %v", what, err, penstock.ErrNoQueue)
		}
	}
}

// A migration of a database that was restored in part names the missing table, and the repair.
func TestMigrateAfterAPartialRestore(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.Exec("drop table penstock._lease_0")
	f.Exec("update penstock._migration set version_id = 307 where version_id = 308; delete from penstock._migration where version_id > 307")
	err := openStore(t, f.URL, postgres.Options{}).Migrate(f.Ctx)
	if !errors.Is(err, penstock.ErrBrokenSchema) || !strings.Contains(err.Error(), "_lease_0") || !strings.Contains(err.Error(), "restore it from a backup") {
		t.Errorf("got %v", err)
	}
}
