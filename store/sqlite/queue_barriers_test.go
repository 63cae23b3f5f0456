package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/penstock/penstock"
)

// A plain INSERT holds a barrier, and whatever deletes a job's row ends it, if it commits. A transaction of the application makes, uses and seals a barrier.
func TestBarriersInTransactions(t *testing.T) {
	path, s, _ := newQueue(t, penstock.FIFO)
	app, q := openApp(t, path), s.Queue("jobs")
	tx, err := app.Begin()
	if err != nil {
		t.Fatal(err)
	}
	b, err := q.BarrierTx(t.Context(), tx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.EnqueueTx(t.Context(), tx, penstock.NewJob{WaitsFor: []int64{b}, Payload: []byte("waits")}); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(`insert into penstock_queue_jobs (payload, headers) values ('1', ?1), ('2', ?1)`, fmt.Sprintf(`{"penstock-holds": "%d"}`, b)); err != nil {
		t.Fatal(err)
	}
	if err := q.SealTx(t.Context(), tx, b); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	late, err := q.Enqueue(t.Context(), penstock.NewJob{WaitsFor: []int64{b}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.CancelJobs(t.Context(), "jobs", late[0].ID); err != nil {
		t.Fatal(err)
	}
	if n := scan[int](t, app, `select count(*) from penstock_waits`); n != 1 {
		t.Errorf("%d jobs wait after one of two was cancelled", n)
	}
	for _, headers := range []string{`{"penstock-holds": "x"}`, fmt.Sprintf(`{"penstock-holds": "%d"}`, b+1)} {
		if _, err := app.Exec(`insert into penstock_queue_jobs (payload, headers) values ('', ?)`, headers); err == nil {
			t.Errorf("a job with the headers %s was inserted", headers)
		}
	}
	if tx, err = app.Begin(); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(`delete from penstock_queue_jobs where payload in ('1', '2')`); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	jobs := claimJobs(t, q, 5)
	if len(jobs) != 2 {
		t.Fatalf("claimed %d jobs, want the two that hold the barrier", len(jobs))
	}
	mustExec(t, app, `delete from penstock_queue_jobs where payload = '1'`)
	if n := len(claimJobs(t, q, 5)); n != 0 {
		t.Fatalf("%d jobs run before the last one has ended", n)
	}
	if _, err := q.Retry(t.Context(), jobs[1].Lease, 0, "once more"); err != nil {
		t.Fatal(err)
	}
	ran := ""
	runWorkTx(t, s, app, func(_ context.Context, _ *sql.Tx, j penstock.Job) error {
		ran += string(j.Payload) + " "
		return nil
	})
	if ran != "2 waits " {
		t.Errorf("the jobs ran as %q", ran)
	}
	for _, table := range []string{"barriers", "waits"} {
		if n := scan[int](t, app, `select count(*) from penstock_`+table); n != 0 {
			t.Errorf("%d rows are left in penstock_%s", n, table)
		}
	}
}

// A queue whose jobs never held a barrier has no trigger for them.
func TestQueueWithoutBarriers(t *testing.T) {
	path, s, q := newQueue(t, penstock.FIFO)
	app := openApp(t, path)
	if err := s.CreateQueue(t.Context(), "other", penstock.FIFO); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Queue("other").Barrier(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Enqueue(t.Context(), penstock.NewJob{Holds: 1}); err == nil {
		t.Error("a job holds a barrier of another queue")
	}
	of := func(queue string) int {
		return scan[int](t, app, `select count(*) from sqlite_schema where type = 'trigger' and tbl_name = ?`, "penstock_queue_"+queue)
	}
	if plain, with := of("jobs"), of("other"); plain != 5 || with != 7 {
		t.Errorf("a queue without barriers has %d triggers and one with them %d, want 5 and 7", plain, with)
	}
}
