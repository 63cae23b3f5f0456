package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/sqlite"
)

// newForward is newFile with the queue "emails".
func newForward(t *testing.T) (path string, s *sqlite.Store, app *sql.DB) {
	path, s, app = newFile(t, sqlite.Options{})
	if err := s.CreateQueue(t.Context(), "emails", penstock.FIFO); err != nil {
		t.Fatal(err)
	}
	return path, s, app
}

// forwards runs Forward until the test stops it, which wants no error.
func forwards(t *testing.T, s *sqlite.Store) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- s.Forward(ctx, driver.Subscribe{Outbox: "orders", Subscription: "mails", Holder: "test"}, "emails")
	}()
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never came to be that %s", what)
		}
	}
}

func jobCount(t *testing.T, app *sql.DB) int {
	t.Helper()
	return scan[int](t, app, `select count(*) from `+sqlite.QueueTable("emails"))
}

// Forward that is ended before it has begun returns nil, as it does later.
func TestForwardEndsBeforeItBegins(t *testing.T) {
	t.Parallel()
	_, s, _ := newForward(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Forward(ctx, driver.Subscribe{Outbox: "orders", Subscription: "mails", Holder: "test"}, "emails"); err != nil {
		t.Error(err)
	}
}

// Every message becomes one job, in order, though writing jobs and the cursor fails now
// and then, and one Forward follows another.
func TestForwardMakesOneJobOfEachMessage(t *testing.T) {
	t.Parallel()
	path, s, app := newForward(t)
	ctx := t.Context()
	mustExec(t, app, `create table broken (what text)`)
	mustExec(t, app, `create trigger jobs before insert on `+sqlite.QueueTable("emails")+` when exists (select 1 from broken where what = 'jobs')
		begin select raise(abort, 'by intent'); end`)
	mustExec(t, app, `create trigger positions before update of position on penstock_subscriptions when new.position > old.position and exists (select 1 from broken where what = 'cursor')
		begin select raise(abort, 'by intent'); end`)
	const rounds, each = 4, 50
	for round := range rounds {
		stop := forwards(t, s)
		if round > 0 {
			mustExec(t, app, `insert into broken values (?)`, []string{"jobs", "cursor", "jobs"}[round-1])
		}
		for i := range each {
			n := round*each + i
			if err := s.Publish(ctx, "orders", penstock.Message{ID: fmt.Sprint("m", n), Key: "k", Topic: "t", Payload: fmt.Append(nil, n), Headers: map[string]string{"a": "b"}}); err != nil {
				t.Fatal(err)
			}
		}
		if round < 3 {
			mustExec(t, app, `delete from broken`)
			eventually(t, "every message is a job", func() bool { return jobCount(t, app) >= (round+1)*each })
		}
		stop() // in the last round with messages that could not be moved
	}
	if n := jobCount(t, app); n != 3*each {
		t.Errorf("%d jobs while they cannot be written, want %d", n, 3*each)
	}
	mustExec(t, app, `delete from broken`)
	other, err := sqlite.Open(ctx, path, sqlite.Options{BusyTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	stop := forwards(t, other)
	eventually(t, "every message is a job", func() bool { return jobCount(t, app) >= rounds*each })
	stop()
	jobs, err := s.Queue("emails").Claim(ctx, driver.Claim{Jobs: 1, Lease: time.Minute})
	if err != nil || len(jobs) != 1 {
		t.Fatal(jobs, err)
	}
	if j := jobs[0]; j.Key != "k" || j.Headers["a"] != "b" || j.Headers[sqlite.HeaderMessageID] != "m0" || j.Headers[sqlite.HeaderTopic] != "t" {
		t.Errorf("got %+v", j)
	}
	for n := range rounds * each {
		if got := scan[string](t, app, `select cast(payload as text) from `+sqlite.QueueTable("emails")+` order by seq limit 1 offset ?`, n); got != fmt.Sprint(n) {
			t.Fatalf("job %d is %q", n, got)
		}
	}
	if n := jobCount(t, app); n != rounds*each {
		t.Errorf("%d jobs of %d messages", n, rounds*each)
	}
}

// The transaction commits and its answer is lost: moving the batch again makes no job
// twice.
func TestForwardAfterALostAnswer(t *testing.T) {
	t.Parallel()
	_, s, app := newForward(t)
	ctx := t.Context()
	src := subscribe(t, s, "mails")
	f := sqlite.Forwarding(src, "emails")
	for range 2 {
		if err := s.Publish(ctx, "orders", numbered(3)...); err != nil {
			t.Fatal(err)
		}
		batch, err := f.Fetch(ctx, driver.Limit{Messages: 100, Bytes: 1 << 20})
		if err != nil || len(batch.Messages) != 3 {
			t.Fatal(batch, err)
		}
		for range 3 {
			if err := f.Move(ctx, batch); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := jobCount(t, app); n != 6 {
		t.Errorf("%d jobs of 6 messages", n)
	}
}

func TestForwardRefuses(t *testing.T) {
	t.Parallel()
	_, s, _ := newForward(t)
	ctx := t.Context()
	sub := driver.Subscribe{Outbox: "orders", Subscription: "mails"}
	if err := s.Forward(ctx, sub, "none"); !errors.Is(err, penstock.ErrNoQueue) {
		t.Errorf("got %v, want ErrNoQueue", err)
	}
	if err := s.Forward(ctx, driver.Subscribe{Outbox: "none", Subscription: "mails"}, "emails"); !errors.Is(err, penstock.ErrNoOutbox) {
		t.Errorf("got %v, want ErrNoOutbox", err)
	}
	var wrong *penstock.FieldError
	if err := s.Forward(ctx, driver.Subscribe{Outbox: "orders", Ephemeral: true}, "emails"); !errors.As(err, &wrong) {
		t.Errorf("got %v, want a FieldError", err)
	}
	src := subscribe(t, s, "mails")
	if err := s.Forward(ctx, sub, "emails"); !errors.Is(err, penstock.ErrHeld) {
		t.Errorf("got %v, want ErrHeld", err)
	}
	if err := src.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Publish(ctx, "orders", numbered(1)...); err != nil {
		t.Fatal(err)
	}
	f := sqlite.Forwarding(subscribe(t, s, "mails"), "emails")
	batch, err := f.Fetch(ctx, driver.Limit{Messages: 1, Bytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.DropQueue(ctx, "emails"); err != nil {
		t.Fatal(err)
	}
	if err := f.Move(ctx, batch); !errors.Is(err, penstock.ErrNoQueue) {
		t.Errorf("got %v, want ErrNoQueue", err)
	}
}
