package postgres_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/postgres"
)

// A takeover that waits while the cursor log is truncated must still find the head,
// which has moved to the other segment meanwhile.
func TestTakeoverDuringCursorLogRotation(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.subscribe()
	f.Exec("select setval('penstock._cursor_slot', 1)")
	rotation := f.Connect()
	tx, err := rotation.Begin(f.Ctx)
	f.Must(err)
	_, err = tx.Exec(f.Ctx, "lock table penstock._cursor_0 in access exclusive mode")
	f.Must(err)

	other := openStore(t, f.URL, postgres.Options{})
	result := make(chan error, 1)
	go func() {
		_, err := other.Subscribe(f.Ctx, driver.Subscribe{Outbox: "orders", Subscription: "sub", Holder: "other"})
		result <- err
	}()
	f.Eventually("the takeover waits for the lock", func() bool {
		return f.Number("select count(*) from pg_locks where not granted and relation = 'penstock._cursor_0'::regclass") > 0
	})
	_, err = tx.Exec(f.Ctx, `insert into penstock._cursor (subscription, epoch, n, lease_until, since, low, settled, system, slot, holder, done)
		select subscription, epoch, n, lease_until, since, low, settled, system, 1, holder, done from penstock._cursor_0 order by epoch desc, n desc limit 1`)
	f.Must(err)
	_, err = tx.Exec(f.Ctx, "truncate penstock._cursor_0")
	f.Must(err)
	f.Must(tx.Commit(f.Ctx))
	if err := <-result; !errors.Is(err, penstock.ErrHeld) {
		t.Errorf("got %v, want ErrHeld: the lease runs", err)
	}
}

// Whatever the database's default isolation level, Maintain looks again after it has
// waited for a lock.
func TestOtherDefaultIsolation(t *testing.T) {
	t.Parallel()
	f := newFixture(t, small)
	f.Exec("do $$ begin execute format('alter database %I set default_transaction_isolation = ''repeatable read''', current_database()); end $$")
	f.store = openStore(t, f.URL, small)
	src := f.subscribe()
	for range 4 {
		f.fill(400)
		f.Must(f.store.Maintain(f.Ctx, "orders"))
		if n := len(f.drain(src)); n != 400 {
			t.Fatalf("got %d messages, want 400", n)
		}
	}
	conn := f.Connect()
	for _, call := range []string{"select penstock._reclaim('orders', 0)", "select penstock._reclaim_cursor()"} {
		if _, err := conn.Exec(f.Ctx, call); err == nil || !strings.Contains(err.Error(), "25001") {
			t.Errorf("%s under repeatable read: got %v, want a refusal", call, err)
		}
	}
}

// Relays of several subscriptions share a store.
func TestMaintainIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	f := newFixture(t, small)
	src := f.subscribe()
	f.fill(2000)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 20 {
				if err := f.store.Maintain(f.Ctx, "orders"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	f.drain(src)
	wg.Wait()
}

// After a restore, each message comes once, settled or not.
func TestRestoredBacklogComesOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	src := f.subscribe()
	f.insert(f.Conn, "k", "settled")
	f.drain(src)
	for i := range 5 {
		f.insert(f.Conn, "k", fmt.Sprint("open ", i))
	}
	f.Must(src.Close(f.Ctx))
	f.Exec("update penstock.orders set xid = (xid::text::bigint + 1000000000)::text::xid8")
	f.Exec("update penstock._cursor set system = system + 1")
	src = f.subscribe()
	seen := map[string]int{}
	for range 8 {
		b, err := src.Fetch(f.Ctx, plenty)
		f.Must(err)
		for _, m := range b.Messages {
			seen[string(m.Payload)]++
		}
	}
	for i := range 5 {
		if n := seen[fmt.Sprint("open ", i)]; n != 1 {
			t.Errorf("open %d came %d times, want once", i, n)
		}
	}
}

// An outbox that another role has made is reclaimed like any other.
func TestOutboxOfAnotherRole(t *testing.T) {
	t.Parallel()
	f := newFixture(t, small)
	owner, asOwner := f.role()
	f.Exec("do $$ begin execute format('grant create on database %I to " + owner + "', current_database()); end $$")
	options := small
	options.Schema = "theirs"
	f.Must(openStore(t, asOwner, options).Migrate(f.Ctx))
	f.store = openStore(t, f.URL, options) // the superuser
	f.Must(f.store.CreateOutbox(f.Ctx, "orders"))
	f.Must(f.store.CreateOutbox(f.Ctx, "cursor"))
	src := f.subscribe()
	f.Must(f.store.Publish(f.Ctx, "orders", penstock.Message{Payload: make([]byte, 100_000)}))
	f.drain(src)
	f.Eventually("its space is given back", func() bool {
		f.Must(f.store.Maintain(f.Ctx, "orders"))
		return f.Number("select count(*) from theirs._segments('orders') where pg_relation_size(oid) > 0") == 0
	})
	if err := f.store.CreateOutbox(f.Ctx, "orders_seq_idx"); err == nil || errors.Is(err, penstock.ErrOutboxExists) {
		t.Errorf("a name that an index has: got %v, want another error than ErrOutboxExists", err)
	}
}

// A standby's snapshots do not list the transactions in flight on the primary, so a
// source does not read there.
func TestStandbyIsRefused(t *testing.T) {
	t.Parallel()
	server := testserver.StartPostgres(t)
	f := fixtureOn(t, server.URL, postgres.Options{})
	f.insert(f.Conn, "k", "one")
	f.Must(server.Stop())
	signal := filepath.Join(server.Dir(), "data", "standby.signal")
	f.Must(os.WriteFile(signal, nil, 0o666))
	f.Must(os.Chmod(signal, 0o666)) // whatever the umask: the server runs as another user
	f.Must(server.Start())
	for _, ephemeral := range []bool{false, true} {
		_, err := f.store.Subscribe(f.Ctx, driver.Subscribe{Outbox: "orders", Subscription: "sub", Holder: "test", Ephemeral: ephemeral})
		if err == nil || !strings.Contains(err.Error(), "target_session_attrs") {
			t.Errorf("ephemeral %v: got %v, want a refusal that says how to reach the primary", ephemeral, err)
		}
	}
}
