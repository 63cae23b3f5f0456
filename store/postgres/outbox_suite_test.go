package postgres_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/postgres"
)

func TestStore(t *testing.T) { runSuite(t, postgres.Options{}, nil, storetest.SmallPieces) }

// With segments that are full after a few hundred messages the same suite rotates
// and reclaims all the time.
func TestStoreOnASmallRing(t *testing.T) { runSuite(t, small, storetest.SmallPieces, nil) }

func runSuite(t *testing.T, opts postgres.Options, only, elsewhere storetest.Cases) {
	t.Parallel()
	storetest.Run(t, storetest.Harness{
		Open:        func(t testing.TB) storetest.Instance { return openInstance(t, freshDatabase(t), opts) },
		OpenCreated: func(t testing.TB) storetest.Instance { return openInstance(t, withOutbox(t, opts), opts) },
		Features:    storetest.Features{ConcurrentWriters: true, Reclaim: true, Snapshots: true, Outage: true, Copy: true, Versions: true, SmallPieces: opts == small},
		Only:        only,
		Elsewhere:   elsewhere,
	})
}

// withOutbox is a migrated database with the suite's outbox.
func withOutbox(t testing.TB, opts postgres.Options) string {
	return postgrestest.Holding(t, fmt.Sprintf("outbox %+v", opts), opts, func(ctx context.Context, s *postgres.Store) error {
		return s.CreateOutbox(ctx, storetest.Outbox)
	})
}

// created is a migrated database's instance after the suite's outbox has been made.
func created(t testing.TB, i storetest.Instance) storetest.Instance {
	if err := i.Store.CreateOutbox(t.Context(), storetest.Outbox); err != nil {
		t.Fatal(err)
	}
	return i
}

// freshDatabase is an empty database of the test's own.
func freshDatabase(t testing.TB) string {
	return testserver.Database(t, testserver.PostgresURL(t))
}

// through returns the URL with another host and port.
func through(t testing.TB, rawURL, addr string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = addr
	return u.String()
}

func hostOf(t testing.TB, rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

func openStore(t testing.TB, url string, opts postgres.Options) *postgres.Store {
	store, err := postgres.Open(context.Background(), url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

func openInstance(t testing.TB, direct string, opts postgres.Options) storetest.Instance {
	exec(t, direct, "create table counter (name text primary key, n bigint not null)")
	return instanceOn(t, direct, opts)
}

// instanceOn is the database of a URL.
func instanceOn(t testing.TB, direct string, opts postgres.Options) storetest.Instance {
	proxy := tcpproxy.New(t, hostOf(t, direct))
	store, business := openStore(t, through(t, direct, proxy.Addr()), opts), businessOn(t, direct)
	return storetest.Instance{
		Store: store,
		Begin: func(ctx context.Context) (storetest.Tx, error) {
			tx, err := begin(ctx, business, opts.Schema)
			return &tx, err
		},
		Another: func(t testing.TB) driver.Store { return openStore(t, direct, opts) },
		Pin:     func(t testing.TB) func() { return pin(t, direct) },
		Outage: func(t testing.TB) (down, up func()) {
			t.Cleanup(proxy.Resume)
			return proxy.Refuse, proxy.Resume
		},
		SetVersion: func(t testing.TB, version int64) {
			exec(t, direct, "update penstock._migration set version_id = $1 where version_id = (select max(version_id) from penstock._migration)", version)
		},
		Spoil: func(t testing.TB) { exec(t, direct, "alter table penstock._dead_letter drop column failures") },
		Copy: func(t testing.TB) storetest.Instance {
			copied := copyOf(t, direct)
			business.Reset()
			return instanceOn(t, copied, opts)
		},
	}
}

// copyOf is a copy of a database. It costs that one its connections.
func copyOf(t testing.TB, rawURL string) string {
	name := func(rawURL string) string {
		u, err := url.Parse(rawURL)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimPrefix(u.Path, "/")
	}
	server, copied := testserver.PostgresURL(t), freshDatabase(t)
	from, to := pgx.Identifier{name(rawURL)}.Sanitize(), pgx.Identifier{name(copied)}.Sanitize()
	exec(t, server, "drop database "+to)
	exec(t, server, "alter database "+from+" allow_connections false")
	defer exec(t, server, "alter database "+from+" allow_connections true")
	exec(t, server, "select pg_terminate_backend(pid, 60000) from pg_stat_activity where datname = $1", name(rawURL))
	exec(t, server, "create database "+to+" template "+from)
	return copied
}

// businessOn are the connections of an application, as many as its transactions need at once.
func businessOn(t testing.TB, url string) *pgxpool.Pool {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 100
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { go pool.Close() }) // a test that failed may not have ended its transactions
	return pool
}

// begin is a transaction that pgx begins itself.
func begin(ctx context.Context, business *pgxpool.Pool, schema string) (businessTx, error) {
	return beginBy(ctx, business, schema, func(conn *pgx.Conn) (pgx.Tx, error) { return conn.Begin(ctx) })
}

func beginBy(ctx context.Context, business *pgxpool.Pool, schema string, by func(*pgx.Conn) (pgx.Tx, error)) (businessTx, error) {
	conn, err := business.Acquire(ctx)
	if err != nil {
		return businessTx{}, err
	}
	tx, err := by(conn.Conn())
	if err != nil {
		conn.Release()
	}
	return businessTx{tx: tx, conn: conn, store: postgres.New(business, postgres.Options{Schema: schema})}, err
}

// businessTx is a transaction of an application.
type businessTx struct {
	tx       pgx.Tx
	conn     *pgxpool.Conn
	store    *postgres.Store
	prepared bool // it is committed in two phases
	ended    bool
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
	if b.prepared {
		return b.end(func() error { return commitPrepared(ctx, b.tx) })
	}
	return b.end(func() error { return b.tx.Commit(ctx) })
}

func (b *businessTx) Rollback(ctx context.Context) error {
	return b.end(func() error { return b.tx.Rollback(ctx) })
}

// end ends it, if that has not happened: afterwards others have its connection.
func (b *businessTx) end(by func() error) error {
	if b.ended {
		return pgx.ErrTxClosed
	}
	b.ended = true
	defer b.conn.Release()
	return by()
}

// pin holds a REPEATABLE READ snapshot open.
func pin(t testing.TB, url string) (release func()) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{"begin isolation level repeatable read", "select pg_current_snapshot(), count(*) from pg_class"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	release = func() { _ = conn.Close(ctx) }
	t.Cleanup(release)
	return release
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
