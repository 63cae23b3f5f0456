package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver of database/sql

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/work"
)

// The errors of an unknown queue and of a schema without Penstock differ, in transactions too. The first one names the queues that there are,
// the second one the command that migrates this schema.
func TestAbsentQueue(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	f.Must(f.store.CreateQueue(f.Ctx, "emails", penstock.FIFO))
	f.Exec("create schema app")
	pool, err := sql.Open("pgx", f.URL)
	f.Must(err)
	t.Cleanup(func() { _ = pool.Close() })
	for _, c := range []struct {
		schema, queue string
		is            error
		want          string
	}{
		{"", "emial", penstock.ErrNoQueue, `no such queue: "emial" (schema penstock has ["emails" "jobs"]; create it with CreateQueue or penstock queue create emial`},
		{"penstok", "emails", penstock.ErrNotMigrated, `there are no Penstock tables in schema "penstok" (run: penstock migrate --schema penstok, or in Go call Migrate)`},
		{"app", "emails", penstock.ErrNotMigrated, `there are no Penstock tables in schema "app" (run: penstock migrate --schema app, or in Go call Migrate)`},
	} {
		store := openStore(t, f.URL, postgres.Options{Schema: c.schema})
		q := store.Queue(c.queue)
		inTx := func(call func(tx pgx.Tx) error) func() error {
			return func() error {
				return pgx.BeginFunc(f.Ctx, f.connectAs(f.URL), call)
			}
		}
		for call, of := range map[string]func() error{
			"Enqueue":   func() error { _, err := q.Enqueue(f.Ctx, texts("a")...); return err },
			"EnqueueTx": inTx(func(tx pgx.Tx) error { _, err := q.EnqueueTx(f.Ctx, tx, texts("a")...); return err }),
			"EnqueueSQL": func() error {
				tx, err := pool.BeginTx(f.Ctx, nil)
				f.Must(err)
				defer func() { _ = tx.Rollback() }()
				_, err = q.EnqueueSQL(f.Ctx, tx, texts("a")...)
				return err
			},
			"BarrierTx": inTx(func(tx pgx.Tx) error { _, err := q.BarrierTx(f.Ctx, tx); return err }),
			"Dequeue":   inTx(func(tx pgx.Tx) error { _, err := q.Dequeue(f.Ctx, tx, 1, ""); return err }),
			"Claim":     func() error { _, err := q.Claim(f.Ctx, driver.Claim{Jobs: 1, Lease: time.Minute}); return err },
		} {
			if err := of(); !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s in schema %q: %v, want %q", call, c.schema, err, c.want)
			}
		}
	}
}

// The same holds for messages: an unknown outbox is one in a schema that has Penstock.
func TestAbsentOutbox(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	pool, err := sql.Open("pgx", f.URL)
	f.Must(err)
	t.Cleanup(func() { _ = pool.Close() })
	for schema, is := range map[string]error{"penstock": penstock.ErrNoOutbox, "penstok": penstock.ErrNotMigrated} {
		outbox := openStore(t, f.URL, postgres.Options{Schema: schema}).Outbox("invoices")
		m := penstock.Message{Topic: "t", Payload: []byte("a")}
		err := pgx.BeginFunc(f.Ctx, f.connectAs(f.URL), func(tx pgx.Tx) error { return outbox.PublishTx(f.Ctx, tx, m) })
		if !errors.Is(err, is) {
			t.Errorf("PublishTx in schema %s: %v, want %v", schema, err, is)
		}
		tx, err := pool.BeginTx(f.Ctx, nil)
		f.Must(err)
		if err := outbox.PublishSQL(f.Ctx, tx, m); !errors.Is(err, is) {
			t.Errorf("PublishSQL in schema %s: %v, want %v", schema, err, is)
		}
		f.Must(tx.Rollback())
	}
}

// A transaction with the pool's only connection gets the error all the same, without the names.
func TestAbsentQueueWithOneConnection(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	config, err := pgxpool.ParseConfig(f.URL)
	f.Must(err)
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(f.Ctx, config)
	f.Must(err)
	t.Cleanup(pool.Close)
	q := postgres.New(pool, postgres.Options{}).Queue("emial")
	err = pgx.BeginFunc(f.Ctx, pool, func(tx pgx.Tx) error { _, err := q.EnqueueTx(f.Ctx, tx, texts("a")...); return err })
	if !errors.Is(err, penstock.ErrNoQueue) || !strings.Contains(err.Error(), "penstock queue create emial") {
		t.Error(err)
	}
}

// A role that may not read which queues there are learns that this one is missing.
func TestAbsentQueueOfAnEnqueuer(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	name, asRole := f.role()
	f.Exec("select penstock.grant_enqueuer('jobs', $1)", name)
	_, err := openStore(t, asRole, postgres.Options{}).Queue("emails").Enqueue(f.Ctx, texts("a")...)
	if !errors.Is(err, penstock.ErrNoQueue) || !strings.Contains(err.Error(), "penstock queue create emails") {
		t.Error(err)
	}
}

// work.Run ends at its start if the role has no right to the queue, and names the grant. One whose right is revoked later continues.
func TestWorkOfARoleWithoutRights(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	name, asRole := f.role()
	nothing := func(context.Context, penstock.Job) error { return nil }
	q := openStore(t, asRole, postgres.Options{}).Queue("jobs")
	err := work.Run(f.Ctx, q, nothing, work.Options{})
	if err == nil || !strings.Contains(err.Error(), "42501") || !strings.Contains(err.Error(), "penstock queue grant jobs ROLE --work") {
		t.Errorf("a worker without the right: %v", err)
	}
	f.Exec("select penstock.grant_worker('jobs', $1)", name)
	ctx, stop := context.WithCancel(f.Ctx)
	ran, ended, logged := make(chan string, 1), make(chan error, 1), make(logLines, 1000)
	go func() {
		ended <- work.Run(ctx, q, func(_ context.Context, j penstock.Job) error { ran <- string(j.Payload); return nil }, work.Options{Logger: slog.New(slog.NewTextHandler(logged, nil))})
	}()
	f.enqueue(texts("first")...)
	<-ran
	f.Exec(`revoke usage on schema penstock from "` + name + `"`)
	f.enqueue(texts("second")...)
	for line := ""; !strings.Contains(line, "trying until it works"); {
		select {
		case line = <-logged:
		case err := <-ended:
			t.Fatalf("it ended when the right was revoked: %v", err)
		}
	}
	f.Exec("select penstock.grant_worker('jobs', $1)", name)
	if got := <-ran; got != "second" {
		t.Errorf("ran %q, want second", got)
	}
	stop()
	f.Must(<-ended)
}

// logLines has what is logged, line by line.
type logLines chan string

func (l logLines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}
