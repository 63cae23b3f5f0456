package postgres_test

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/tcpproxy"
	"github.com/penstock/penstock/internal/testserver"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/store/postgres/postgrestest"
	"github.com/penstock/penstock/store/storetest"
)

func TestStore(t *testing.T) { runSuite(t, postgres.Options{}, 1) }

// With segments that are full after a few hundred messages the same suite rotates
// and reclaims all the time.
func TestStoreOnASmallRing(t *testing.T) { runSuite(t, small, 2) }

func runSuite(t *testing.T, opts postgres.Options, oneOf int) {
	t.Parallel()
	storetest.Run(t, storetest.Harness{
		Open:         func(t testing.TB) storetest.Instance { return openInstance(t, freshDatabase(t), opts) },
		OpenMigrated: func(t testing.TB) storetest.Instance { return openInstance(t, postgrestest.Database(t), opts) },
		Features:     storetest.Features{ConcurrentWriters: true, Reclaim: true, Snapshots: true, Outage: true, Copy: true, SmallPieces: opts == small},
		OneOf:        oneOf,
	})
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
	store := openStore(t, through(t, direct, proxy.Addr()), opts)
	return storetest.Instance{
		Store: store,
		Begin: func(ctx context.Context) (storetest.Tx, error) {
			conn, err := pgx.Connect(ctx, direct)
			if err != nil {
				return nil, err
			}
			tx, err := conn.Begin(ctx)
			if err != nil {
				_ = conn.Close(ctx)
				return nil, err
			}
			return &businessTx{tx: tx, conn: conn, schema: opts.Schema}, nil
		},
		Another: func(t testing.TB) penstock.Store { return openStore(t, direct, opts) },
		Pin:     func(t testing.TB) func() { return pin(t, direct) },
		Outage: func(t testing.TB) (down, up func()) {
			t.Cleanup(proxy.Resume)
			return proxy.Refuse, proxy.Resume
		},
		Copy: func(t testing.TB) storetest.Instance { return instanceOn(t, copyOf(t, direct), opts) },
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

// businessTx is a transaction on a connection of its own.
type businessTx struct {
	tx       pgx.Tx
	conn     *pgx.Conn
	schema   string
	prepared bool // it is committed in two phases
}

func (b *businessTx) Publish(ctx context.Context, outbox string, msgs ...penstock.Message) error {
	return postgres.NewOutbox(b.schema, outbox).Publish(ctx, b.tx, msgs...)
}

func (b *businessTx) Count(ctx context.Context, name string) (n int64, err error) {
	err = b.tx.QueryRow(ctx, `insert into counter values ($1, 1)
		on conflict (name) do update set n = counter.n + 1 returning n`, name).Scan(&n)
	return n, err
}

func (b *businessTx) Commit(ctx context.Context) error {
	defer func() { _ = b.conn.Close(context.Background()) }()
	if b.prepared {
		return commitPrepared(ctx, b.tx)
	}
	return b.tx.Commit(ctx)
}

func (b *businessTx) Rollback(ctx context.Context) error {
	defer func() { _ = b.conn.Close(context.Background()) }()
	return b.tx.Rollback(ctx)
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
