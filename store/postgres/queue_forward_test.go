package postgres_test

import (
	"context"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/postgres"
)

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
