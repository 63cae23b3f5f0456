package postgres_test

import (
	"errors"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/postgres"
)

// A subscription that is dropped while a replay of it is counted has none: the request
// says so, whenever it comes to see it.
func TestReplayOfASubscriptionThatIsDropped(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.must(f.store.SetRetention(f.ctx, "orders", penstock.Retention{Age: deadline}))
	src := f.subscribe()
	f.insert(f.conn, "k", "m")
	f.wantDrain(src, "m")
	f.must(src.Renew(f.ctx))

	// It waits for the outbox, and its subscription is gone when it may go on.
	holder := f.connect()
	tx := f.begin(holder)
	_, err := tx.Exec(f.ctx, "lock table penstock.orders in access exclusive mode")
	f.must(err)
	refused := make(chan error)
	go func() {
		_, err := f.store.Replay(f.ctx, penstock.Replay{Outbox: "orders", Subscription: "sub"})
		refused <- err
	}()
	f.eventually("the replay waits for the outbox", func() bool {
		return f.number("select count(*) from pg_locks where relation = 'penstock.orders'::regclass and not granted and mode = 'AccessShareLock' and database = (select oid from pg_database where datname = current_database())") > 0
	})
	f.exec("select penstock.drop_subscription('orders', 'sub')")
	f.must(tx.Rollback(f.ctx))
	if err := <-refused; !errors.Is(err, penstock.ErrNoSubscription) {
		t.Errorf("got error %v, want one that is %q", err, penstock.ErrNoSubscription)
	}
}
