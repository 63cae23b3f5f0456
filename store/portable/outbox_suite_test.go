package portable_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/portable"
)

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, outboxes(unpooled))
}

func unpooled(_ testing.TB, direct string) string { return direct }

func outboxes(through func(t testing.TB, direct string) (url string)) storetest.Harness {
	return storetest.Harness{
		Open: func(t testing.TB) storetest.Instance {
			direct := testserver.Database(t, testserver.PostgresURL(t))
			if err := without(context.Background(), direct); err != nil {
				t.Fatal(err)
			}
			exec(t, direct, counter)
			return instanceOn(t, through(t, shimmed(t, direct)), slow)
		},
		OpenCreated: func(t testing.TB) storetest.Instance { return instanceOn(t, through(t, database(t)), slow) },
		// Not Reclaim: plain tables do not shrink.
		Features: storetest.Features{ConcurrentWriters: true, Outage: true, Lose: true, Versions: true},
	}
}

// What make test-engine was run on.
func TestEngine(t *testing.T) {
	conn, err := pgx.Connect(t.Context(), testserver.PostgresURL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	var version string
	if err := conn.QueryRow(t.Context(), "select version()").Scan(&version); err != nil {
		t.Fatal(err)
	}
	t.Log(version)
}

// slow: a transaction of the suite may be open for as long as a test.
var slow = portable.Options{Margin: time.Hour}

var created = testserver.Template{Fill: func(url string) error {
	ctx := context.Background()
	if err := without(ctx, url); err != nil {
		return err
	}
	store, err := portable.Open(ctx, url, portable.Options{})
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return errors.Join(err, store.Close())
	}
	defer pool.Close()
	_, err = pool.Exec(ctx, counter)
	return errors.Join(err, store.Migrate(ctx), store.CreateOutbox(ctx, storetest.Outbox), store.Close())
}}

// counter is the table in which business transactions count.
const counter = "create table counter (name text primary key, n bigint not null)"

func TestMain(m *testing.M) {
	code := m.Run()
	if err := created.Drop(); err != nil {
		fmt.Fprintln(os.Stderr, "drop the template of the tests' databases:", err)
	}
	os.Exit(code)
}

func openStore(t testing.TB, url string, opts portable.Options) *portable.Store {
	store, err := portable.Open(context.Background(), url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

func instanceOn(t testing.TB, direct string, opts portable.Options) storetest.Instance {
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	pool := business(t, direct)
	proxy := tcpproxy.New(t, u.Host)
	u.Host = proxy.Addr()
	return storetest.Instance{
		Store:   openStore(t, u.String(), opts),
		Begin:   func(ctx context.Context) (storetest.Tx, error) { return beginOn(ctx, pool) },
		Another: func(t testing.TB) driver.Store { return openStore(t, direct, opts) },
		Outage: func(t testing.TB) (down, up func()) {
			t.Cleanup(proxy.Resume)
			return proxy.Refuse, proxy.Resume
		},
		SetVersion: func(t testing.TB, version int64) {
			exec(t, direct, "update penstock_portable.version set version = $1", version)
		},
		Spoil: func(t testing.TB) { exec(t, direct, "alter table penstock_portable.inboxes drop column keep") },
		Lose: func(t testing.TB) {
			exec(t, direct, "delete from penstock_portable.outbox_"+storetest.Outbox)
			exec(t, direct, "alter table penstock_portable.outbox_"+storetest.Outbox+" alter column seq restart with 1")
		},
	}
}

// business is an application's pool.
func business(t testing.TB, url string) *pgxpool.Pool {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 100
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func beginOn(ctx context.Context, pool *pgxpool.Pool) (*businessTx, error) {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &businessTx{tx, portable.New(pool, portable.Options{})}, nil
}

// businessTx is a transaction of an application.
type businessTx struct {
	tx    pgx.Tx
	store *portable.Store
}

func (b *businessTx) Publish(ctx context.Context, outbox string, msgs ...penstock.Message) error {
	return b.store.Outbox(outbox).PublishTx(ctx, b.tx, msgs...)
}

func (b *businessTx) Count(ctx context.Context, name string) (n int64, err error) {
	err = b.tx.QueryRow(ctx, `insert into counter values ($1, 1)
		on conflict (name) do update set n = counter.n + 1 returning n`, name).Scan(&n)
	return n, err
}

func (b *businessTx) Commit(ctx context.Context) error {
	return b.tx.Commit(ctx)
}

func (b *businessTx) Rollback(ctx context.Context) error {
	return b.tx.Rollback(ctx)
}

func exec(t testing.TB, url, sql string, args ...any) {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
