package mysql_test

import (
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/testserver"
)

// A job that is cancelled while a claim of it is under way leaves nothing behind that its key would wait for.
func TestCancelledWithinAClaim(t *testing.T) {
	t.Parallel()
	url := testserver.MariaDBDatabase(t)
	schema, _ := databaseOf(t, url)
	s, app := migrated(t, url), application(t, url)
	must(t, s.CreateQueue(t.Context(), "jobs", penstock.FIFO))
	exec(t, app, "create table gate (n int primary key)", "insert into gate values (1)",
		"create trigger through before insert on leases for each row begin declare x int; select n into x from gate where n = 1 for update; end")
	q := s.Queue("jobs")
	made, err := q.Enqueue(t.Context(), penstock.NewJob{Key: "k", Payload: []byte("1")}, penstock.NewJob{Key: "k", Payload: []byte("2")})
	must(t, err)
	closed, err := app.Begin()
	must(t, err)
	if _, err := closed.Exec("select n from gate for update"); err != nil {
		t.Fatal(err)
	}
	await := func(what string, condition func() bool) {
		t.Helper()
		// Asked more often than every 100 ms the server would show an old copy of innodb_trx.
		for deadline := time.Now().Add(time.Minute); !condition(); time.Sleep(150 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("it does not come true that %s", what)
			}
		}
	}
	waiting := func() (n int) {
		must(t, app.QueryRow("select count(*) from information_schema.innodb_trx x join information_schema.processlist p on p.id = x.trx_mysql_thread_id where x.trx_state = 'LOCK WAIT' and p.db = ?", schema).Scan(&n))
		return n
	}
	claimed, cancelled := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := q.Claim(t.Context(), driver.Claim{Jobs: 1, Lease: time.Second})
		claimed <- err
	}()
	await("the claim waits", func() bool { return waiting() == 1 })
	go func() {
		n, err := s.CancelJobs(t.Context(), "jobs", made[0].ID)
		if err == nil && n != 1 {
			t.Errorf("cancelled %d, want 1", n)
		}
		cancelled <- err
	}()
	await("the cancellation waits or is over", func() bool { return len(cancelled) == 1 || waiting() == 2 })
	must(t, closed.Commit(), <-claimed, <-cancelled)
	var jobs []penstock.Job
	deadline := time.Now().Add(20 * time.Second)
	for len(jobs) == 0 && time.Now().Before(deadline) {
		jobs, err = q.Claim(t.Context(), driver.Claim{Jobs: 2, Lease: time.Minute})
		must(t, err)
	}
	if len(jobs) != 1 || string(jobs[0].Payload) != "2" {
		t.Errorf("claimed %+v, want the second job of the key", jobs)
	}
}
