package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/sqlite"
	"github.com/penstock/penstock/work"
)

// If the job cannot be ended, nothing the handler wrote is there.
func TestWorkTxEndsTheJobInTheTransaction(t *testing.T) {
	path, s, q := newQueue(t, penstock.FIFO)
	app := openApp(t, path)
	mustExec(t, app, `create table done (job integer not null)`)
	mustExec(t, app, `create trigger kept before delete on penstock_queue_jobs begin select raise(abort, 'kept'); end`)
	if _, err := q.Enqueue(t.Context(), penstock.NewJob{}); err != nil {
		t.Fatal(err)
	}
	handler := sqlite.InTx(openApp(t, path), s, "jobs", func(ctx context.Context, tx *sql.Tx, job penstock.Job) error {
		_, err := tx.ExecContext(ctx, `insert into done values (?)`, job.ID)
		return err
	})
	job := claimJobs(t, q, 1)[0]
	if err := handler(t.Context(), job); err == nil || !strings.Contains(err.Error(), "kept") {
		t.Errorf("the handler: %v", err)
	}
	if n := scan[int](t, app, `select count(*) from done`); n != 0 {
		t.Errorf("%d effects of a job that has not ended", n)
	}
	mustExec(t, app, `drop trigger kept`)
	if err := handler(t.Context(), job); !errors.Is(err, work.ErrSettled) {
		t.Errorf("the handler: %v", err)
	}
	if n := scan[int](t, app, `select count(*) from done`); n != 1 {
		t.Errorf("%d effects, want 1", n)
	}
}

// While another connection writes for longer than is waited, the handler is not called, and no attempt is spent.
func TestWorkTxThatCannotBegin(t *testing.T) {
	path, _, q := newQueue(t, penstock.FIFO)
	app := openApp(t, path)
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{BusyTimeout: time.Millisecond, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if _, err := q.Enqueue(t.Context(), penstock.NewJob{}); err != nil {
		t.Fatal(err)
	}
	db := openApp(t, path)
	db.SetMaxOpenConns(1)
	mustExec(t, db, `pragma busy_timeout(0)`) // as WorkTx
	ran := 0
	handler := sqlite.InTx(db, s, "jobs", func(context.Context, *sql.Tx, penstock.Job) error { ran++; return nil })
	job := claimJobs(t, q, 1)[0]
	tx, err := app.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(`update penstock_leases set until = until`); err != nil {
		t.Fatal(err)
	}
	err = handler(t.Context(), job)
	if _, snoozed := work.SnoozeDelay(err); !snoozed || ran != 0 {
		t.Errorf("while another writes: %v, and the handler ran %d times", err, ran)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := handler(t.Context(), job); !errors.Is(err, work.ErrSettled) || ran != 1 {
		t.Errorf("then: %v, and the handler ran %d times", err, ran)
	}
}

// A handler whose lease is lost before its turn came does not run; one that runs cannot lose it,
// because its transaction keeps all others from writing.
func TestWorkTxAndLostLease(t *testing.T) {
	path, s, q := newQueue(t, penstock.FIFO)
	app := openApp(t, path)
	mustExec(t, app, `create table done (job integer not null)`)
	ids, err := q.Enqueue(t.Context(), penstock.NewJob{Payload: []byte("lost")}, penstock.NewJob{Payload: []byte("late")})
	if err != nil {
		t.Fatal(err)
	}
	handler := sqlite.InTx(openApp(t, path), s, "jobs", func(ctx context.Context, tx *sql.Tx, job penstock.Job) error {
		_, err := tx.ExecContext(ctx, `insert into done values (?)`, job.ID)
		if err == nil && string(job.Payload) == "late" { // time passes
			_, err = tx.ExecContext(ctx, `update penstock_leases set until = 1 where lease = ?`, job.Lease)
		}
		return err
	})
	jobs := claimJobs(t, q, 2)
	mustExec(t, app, `update penstock_leases set until = 1 where lease = ?`, jobs[0].Lease)
	if err := handler(t.Context(), jobs[0]); !errors.Is(err, penstock.ErrLeaseLost) {
		t.Errorf("with a lost lease: %v", err)
	}
	if err := handler(t.Context(), jobs[1]); !errors.Is(err, work.ErrSettled) {
		t.Errorf("with a lease that ends while it runs: %v", err)
	}
	if err := handler(t.Context(), jobs[1]); !errors.Is(err, penstock.ErrLeaseLost) {
		t.Errorf("a second time: %v", err)
	}
	if done := scan[string](t, app, `select group_concat(job) from done`); done != fmt.Sprint(ids[1].ID) {
		t.Errorf("jobs %s took effect, want %d", done, ids[1].ID)
	}
	if again := claimJobs(t, q, 2); len(again) != 1 || again[0].ID != ids[0].ID || again[0].Attempt != 2 {
		t.Errorf("what comes back is %v", again)
	}
}
