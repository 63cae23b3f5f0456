package portable_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/portable"
)

// A job that is cancelled while a claim of it is under way leaves nothing behind that its key would wait for.
func TestCancelledWithinAClaim(t *testing.T) {
	t.Parallel()
	f := newFixture(t, portable.Options{})
	f.must(f.store.CreateQueue(t.Context(), "jobs", penstock.FIFO))
	exec(t, f.url, `create schema lab; create table lab.gate (n int); insert into lab.gate values (1);
		create function lab.through() returns trigger language plpgsql as $$ begin perform 1 from lab.gate for update; return new; end $$;
		create trigger through before insert on penstock_portable.leases for each row execute function lab.through()`)
	q := f.store.Queue("jobs")
	made, err := q.Enqueue(t.Context(), penstock.NewJob{Key: "k", Payload: []byte("1")}, penstock.NewJob{Key: "k", Payload: []byte("2")})
	f.must(err)
	conn, err := pgx.Connect(t.Context(), f.url)
	f.must(err)
	defer conn.Close(t.Context())
	closed, err := conn.Begin(t.Context())
	f.must(err)
	if _, err := closed.Exec(t.Context(), "select from lab.gate for update"); err != nil {
		t.Fatal(err)
	}
	waiting := func() (n int) {
		f.must(closed.QueryRow(t.Context(), "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'").Scan(&n))
		return n
	}
	await := func(what string, condition func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !condition(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("it does not come true that %s", what)
			}
			_, err := closed.Exec(t.Context(), "select pg_stat_clear_snapshot()")
			f.must(err)
		}
	}
	claimed, cancelled := make(chan error, 1), make(chan error, 1)
	var jobs []penstock.Job
	go func() {
		var err error
		jobs, err = q.Claim(t.Context(), driver.Claim{Jobs: 1, Lease: time.Minute})
		claimed <- err
	}()
	await("the claim waits", func() bool { return waiting() == 1 })
	go func() {
		n, err := f.store.CancelJobs(t.Context(), "jobs", made[0].ID)
		if err == nil && n != 1 {
			t.Errorf("cancelled %d, want 1", n)
		}
		cancelled <- err
	}()
	await("the cancellation waits or is over", func() bool { return len(cancelled) == 1 || waiting() == 2 })
	f.must(errors.Join(closed.Commit(t.Context()), <-claimed, <-cancelled))
	for _, j := range jobs { // its handler fails
		if _, err := q.Retry(t.Context(), j.Lease, 0, "refused"); err != nil && !errors.Is(err, penstock.ErrLeaseLost) {
			t.Fatal(err)
		}
	}
	jobs = nil
	for deadline := time.Now().Add(20 * time.Second); len(jobs) == 0 && time.Now().Before(deadline); {
		jobs, err = q.Claim(t.Context(), driver.Claim{Jobs: 2, Lease: time.Minute})
		f.must(err)
	}
	if len(jobs) != 1 || string(jobs[0].Payload) != "2" {
		t.Errorf("claimed %+v, want the second job of the key", jobs)
	}
}
