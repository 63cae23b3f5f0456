package postgres_test

import (
	"errors"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/store/postgres"
)

// A subscription that is dropped while a replay of it is counted has none: the request
// says so, whenever it comes to see it.
func TestReplayOfASubscriptionThatIsDropped(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.Must(f.store.SetRetention(f.Ctx, "orders", admin.Retention{Age: postgrestest.Deadline}))
	src := f.subscribe()
	f.insert(f.Conn, "k", "m")
	f.wantDrain(src, "m")
	f.Must(src.Renew(f.Ctx))

	// It waits for the outbox, and its subscription is gone when it may continue.
	holder := f.Connect()
	tx := f.begin(holder)
	_, err := tx.Exec(f.Ctx, "lock table penstock.orders in access exclusive mode")
	f.Must(err)
	refused := make(chan error)
	go func() {
		_, err := f.store.Replay(f.Ctx, admin.Replay{Outbox: "orders", Subscription: "sub"})
		refused <- err
	}()
	f.Eventually("the replay waits for the outbox", func() bool {
		return f.Number("select count(*) from pg_locks where relation = 'penstock.orders'::regclass and not granted and mode = 'AccessShareLock' and database = (select oid from pg_database where datname = current_database())") > 0
	})
	f.Exec("select penstock.drop_subscription('orders', 'sub')")
	f.Must(tx.Rollback(f.Ctx))
	if err := <-refused; !errors.Is(err, penstock.ErrNoSubscription) {
		t.Errorf("got error %v, want one that is %q", err, penstock.ErrNoSubscription)
	}
}
