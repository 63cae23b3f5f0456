package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/postgres"
)

// Every message becomes one job, in order, though the forwarding's connections are
// cut again and again while it is at work.
func TestForwardMakesOneJobOfEachMessage(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	const messages, name = 1200, "forwards"
	ctx, stop := context.WithCancel(f.Ctx)
	defer stop()
	forwards := openStore(t, f.URL+"&application_name="+name, postgres.Options{Log: quiet})
	ended := make(chan error, 1)
	go func() {
		ended <- forwards.Forward(ctx, driver.Subscribe{Outbox: "orders", Subscription: "sub", Holder: "test", Lease: time.Minute}, "jobs")
	}()
	for i := range messages {
		f.Must(f.store.Publish(f.Ctx, "orders", penstock.Message{Key: "k", Topic: "t", ID: fmt.Sprint("m", i), Payload: fmt.Append(nil, i), Headers: map[string]string{"a": "b"}}))
		if i == 0 { // it does not begin again by itself
			f.Eventually("it has begun", func() bool { return f.Number("select count(*) from penstock.jobs") > 0 })
		}
		if i%300 == 150 {
			f.Exec("select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1 and datname = current_database()", name)
		}
	}
	f.Eventually("every message is a job", func() bool { return f.Number("select count(*) from penstock.jobs") >= messages })
	stop()
	f.Must(<-ended)
	rows, err := f.Conn.Query(f.Ctx, "select convert_from(payload, 'UTF8'), key, headers->>'a', headers->>$1, headers->>$2 from penstock.jobs order by seq", postgres.HeaderMessageID, postgres.HeaderTopic)
	f.Must(err)
	defer rows.Close()
	n := 0
	for ; rows.Next(); n++ {
		var payload, key, header, id, topic string
		f.Must(rows.Scan(&payload, &key, &header, &id, &topic))
		if payload != fmt.Sprint(n) || key != "k" || header != "b" || id != fmt.Sprint("m", n) || topic != "t" {
			t.Fatalf("job %d is %q with key %q, headers %q %q %q", n, payload, key, header, id, topic)
		}
	}
	if n != messages {
		t.Errorf("%d jobs of %d messages", n, messages)
	}
}

// A transaction that fails, while jobs or the cursor are written or when it commits,
// leaves the messages where they were.
func TestForwardAfterAFailure(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	f.Exec("create sequence tries")
	f.Exec(`create function once() returns trigger language plpgsql as $$
		begin
			if nextval('public.tries') in (1, 3, 6) then
				raise 'by intent';
			end if;
			return new;
		end $$`)
	f.Exec("create trigger now after insert on penstock.jobs for each row execute function once()")
	f.Exec("create trigger cursor before insert on penstock._cursor for each row when (new.settled = 1) execute function once()")
	f.Exec("create constraint trigger late after insert on penstock.jobs deferrable initially deferred for each row execute function once()")
	ctx, stop := context.WithCancel(f.Ctx)
	defer stop()
	ended := make(chan error, 1)
	forwards := openStore(t, f.URL, postgres.Options{Log: quiet})
	f.Must(f.store.Publish(f.Ctx, "orders", penstock.Message{Payload: []byte("one")}))
	go func() {
		ended <- forwards.Forward(ctx, driver.Subscribe{Outbox: "orders", Subscription: "sub"}, "jobs")
	}()
	f.Eventually("the message is a job", func() bool { return f.Number("select count(*) from penstock.jobs") == 1 })
	f.Must(f.store.Publish(f.Ctx, "orders", penstock.Message{Payload: []byte("two")}))
	f.Eventually("the other one, too", func() bool { return f.Number("select count(*) from penstock.jobs") == 2 })
	stop()
	f.Must(<-ended)
	if n := f.Number("select last_value from tries"); n < 9 {
		t.Errorf("%d triggers ran, which is too few to have failed three times", n)
	}
	f.wantDrain(f.subscribe()) // nothing is left
}

func TestForwardRefuses(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	sub := driver.Subscribe{Outbox: "orders", Subscription: "sub"}
	if err := f.store.Forward(f.Ctx, sub, "none"); !errors.Is(err, penstock.ErrNoQueue) {
		t.Errorf("got %v, want ErrNoQueue", err)
	}
	if err := f.store.Forward(f.Ctx, driver.Subscribe{Outbox: "none", Subscription: "sub"}, "jobs"); !errors.Is(err, penstock.ErrNoOutbox) {
		t.Errorf("got %v, want ErrNoOutbox", err)
	}
	src := f.subscribe()
	if err := f.store.Forward(f.Ctx, sub, "jobs"); !errors.Is(err, penstock.ErrHeld) {
		t.Errorf("got %v, want ErrHeld", err)
	}
	f.Must(src.Close(f.Ctx))
}
