package postgres_test

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/postgres"
)

// pooled is the URL of a database through a pooler of the test's own. Statements are not
// prepared, because Debian's pooler does not know them in transaction mode.
func pooled(t testing.TB, url string, conf ...string) string {
	b := testserver.StartPgBouncer(t, url, conf...)
	return through(t, url, hostOf(t, b.URL)) + "&default_query_exec_mode=exec"
}

// wantNothingSet looks at each of a pooler's connections, at most this many, for settings that
// Penstock could have left there.
func wantNothingSet(t testing.TB, url string, most int) {
	t.Helper()
	db := postgrestest.On(t, url)
	var held []pgx.Tx
	for {
		tx, err := db.Connect().Begin(db.Ctx) // has the pooler take another one
		db.Must(err)
		held = append(held, tx)
		var set []string
		var locks int
		var fresh bool
		db.Must(tx.QueryRow(db.Ctx, `select coalesce(array_agg(name || ' = ' || setting), '{}'),
			       (select count(*) from pg_locks where pid = pg_backend_pid() and locktype = 'advisory'),
			       (select backend_start > now() - interval '1 s' from pg_stat_activity where pid = pg_backend_pid())
			  from pg_settings where source = 'session'
			   and name not in ('application_name', 'client_encoding', 'DateStyle', 'TimeZone', 'standard_conforming_strings')`, pgx.QueryExecModeSimpleProtocol).
			Scan(&set, &locks, &fresh))
		if len(set) > 0 || locks > 0 {
			t.Errorf("left behind: %d locks, settings %v", locks, set)
		}
		if fresh || len(held) == most {
			break
		}
	}
	for _, tx := range held {
		db.Must(tx.Rollback(db.Ctx))
	}
}

// Behind a pooler in transaction mode a relay says what it needs, whichever clients are connected,
// and leaves nothing behind that the applications would find.
func TestRelayBehindAPoolerInTransactionMode(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	for conf, connections := range map[string]int{"server_round_robin = 0": 10, "server_round_robin = 1": 10, "default_pool_size = 1": 1} {
		url := pooled(t, f.URL, conf)
		f.store = openStore(t, url, postgres.Options{})
		for _, ephemeral := range []bool{false, true} {
			_, err := f.store.Subscribe(f.Ctx, driver.Subscribe{Outbox: "orders", Subscription: "sub", Holder: "test", Ephemeral: ephemeral})
			if err == nil || !strings.Contains(err.Error(), "session mode") {
				t.Errorf("%s: got %v, want a refusal that says what a relay needs", conf, err)
			}
		}
		wantNothingSet(t, url, connections)
	}
}

func TestRelayBehindAPoolerInSessionMode(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.store = openStore(t, pooled(t, f.URL, "pool_mode = session"), postgres.Options{})
	src := f.subscribe()
	f.insert(f.Conn, "k", "x")
	f.wantDrain(src, "x")
	f.Must(src.Renew(f.Ctx))
	f.Must(src.Close(f.Ctx))
}

// A session whose statements come to another server process notices it with the next one, and
// stores nothing: that process may be one of after a crash.
func TestSessionIsMovedToAnotherServerProcess(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	src := f.subscribe()
	f.insert(f.Conn, "k", "x")
	written := func() int64 { return f.Number("select max(n) from penstock._cursor") }
	refused := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "session mode") {
			t.Errorf("%s: got %v, want a refusal", what, err)
		}
	}
	f.fetchSome(src)
	postgres.MoveWriter(src)
	refused("Renew", src.Renew(f.Ctx))
	b := f.fetchSome(src) // on a new session
	postgres.MoveWriter(src)
	refused("Settle", src.Settle(f.Ctx, b.Number, driver.Settled{Batch: b}))
	b = f.fetchSome(src)
	postgres.MoveWriter(src)
	before := written()
	refused("Settle of a refusal", storetest.Settle(f.Ctx, src, driver.Settled{Batch: b, Verdicts: []driver.Verdict{{Outcome: driver.Dead, Failures: refusedOnce("no")}}}))
	if written() != before || f.Number("select count(*) from penstock._dead_letter") != 0 {
		t.Error("something was written")
	}
	f.wantDrain(src, "x")
	postgres.MoveReader(src)
	_, err := src.Fetch(f.Ctx, plenty)
	refused("a peek", err)
	f.insert(f.Conn, "k", "y")
	f.Eventually("it goes on", func() bool { return len(f.drain(src)) == 1 })
	f.insert(f.Conn, "k", "z")
	f.wantDrain(src, "z")
	f.Must(src.Renew(f.Ctx))
}

// Commands that need no session work through a pooler in transaction mode, a migration too, and
// nothing stays on its connections.
func TestCommandsThroughAPooler(t *testing.T) {
	t.Parallel()
	direct := freshDatabase(t)
	url := pooled(t, direct)
	f := fixtureOn(t, url, postgres.Options{})
	f.Must(f.store.Migrate(f.Ctx))
	f.Must(f.store.Publish(f.Ctx, "orders", penstock.Message{Key: "k", Payload: []byte("x")}))
	f.Must(f.store.Maintain(f.Ctx, "orders"))
	if status, err := f.store.Status(f.Ctx); err != nil || len(status) != 1 {
		t.Errorf("got %v, %v", status, err)
	}
	wantNothingSet(t, url, 10)
	db := postgrestest.On(t, direct)
	if n := db.Number("select count(*) from pg_class where relnamespace = 'public'::regnamespace"); n != 0 {
		t.Errorf("%d relations are in the schema public", n)
	}
}

// Behind a pooler in transaction mode the statements that a session has prepared are another's. The error names the setting of the URL.
func TestPreparedStatementsAreGone(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	pool, err := pgxpool.New(f.Ctx, f.URL+"&pool_max_conns=1")
	f.Must(err)
	defer pool.Close()
	store := postgres.New(pool, postgres.Options{})
	_, err = store.QueueStatus(f.Ctx)
	f.Must(err)
	_, err = pool.Exec(f.Ctx, "deallocate all")
	f.Must(err)
	if _, err = store.QueueStatus(f.Ctx); err == nil || !strings.Contains(err.Error(), "default_query_exec_mode=exec") {
		t.Errorf("got %v, want an error that says what to add to the URL", err)
	}
}

// In a database whose default is another isolation level a pooler's connections keep it, and
// the error says whose default to change.
func TestPoolerInASerializableDatabase(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.Exec("do $$ begin execute format('alter database %I set default_transaction_isolation = serializable', current_database()); end $$")
	role, _ := f.role()
	url := strings.Replace(pooled(t, f.URL), "postgres://postgres@", "postgres://"+role+"@", 1)
	f.Exec("select penstock.grant_relay('" + role + "')")
	_, err := openStore(t, url, postgres.Options{}).Status(f.Ctx)
	if err == nil || !strings.Contains(err.Error(), "alter role") {
		t.Fatalf("got %v, want an error that says what to do", err)
	}
	wantNothingSet(t, url, 10)
	f.Exec("alter role " + role + " set default_transaction_isolation = 'read committed'")
	url = strings.Replace(pooled(t, f.URL), "postgres://postgres@", "postgres://"+role+"@", 1)
	f.Must(openStore(t, url, postgres.Options{}).Maintain(f.Ctx, "orders"))
	wantNothingSet(t, url, 10)
	// Without a pooler the connection is Penstock's own.
	f.Must(openStore(t, f.URL, postgres.Options{}).Maintain(context.Background(), "orders"))
}

// Buffered transactions and the store's own publishes take turns on few connections of a pooler in transaction mode.
func TestBufferThroughAPooler(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	url := pooled(t, f.URL, "default_pool_size = 2")
	f.Must(f.store.CreateInbox(f.Ctx, "imports", 0))
	pool, err := pgxpool.New(f.Ctx, url+"&pool_max_conns=8")
	f.Must(err)
	defer pool.Close()
	store := openStore(t, url, postgres.Options{})
	const writers, rounds, each = 8, 5, 20
	orders, jobs := store.Outbox("orders"), store.Queue("jobs")
	var all sync.WaitGroup
	for writer := range writers {
		all.Go(func() {
			for round := range rounds {
				err := pgx.BeginFunc(f.Ctx, postgres.NewBuffered(pool, penstock.BufferOptions{Rows: 7}), func(tx pgx.Tx) error {
					for i := range each {
						m := penstock.Message{ID: fmt.Sprint(writer, round, i), Payload: []byte("x")}
						err := cmp.Or(orders.PublishTx(f.Ctx, tx, m), orders.Once("imports").PublishTx(f.Ctx, tx, m))
						if _, failed := tx.(*postgres.BufferedTx).Enqueue(f.Ctx, jobs, penstock.NewJob{}); err == nil {
							err = failed
						}
						if err != nil {
							return err
						}
					}
					return nil
				})
				if err := cmp.Or(err, store.Publish(f.Ctx, "orders", penstock.Message{}), store.PublishOnce(f.Ctx, "imports", "orders", penstock.Message{ID: fmt.Sprint(writer, round, 0)})); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n := f.Number("select count(*) from penstock.orders"); n != writers*rounds*(2*each+1) {
		t.Errorf("%d messages", n)
	}
	if n := f.Number("select count(*) from penstock.jobs"); n != writers*rounds*each {
		t.Errorf("%d jobs", n)
	}
	wantNothingSet(t, url, 2)
}
