package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/postgres"
)

// deadline ends a test whose condition never came. It is far longer than any condition
// takes, so that a slow machine fails nothing.
const deadline = 2 * time.Minute

var plenty = penstock.Limit{Messages: 1000, Bytes: 16 << 20}

// fixture is a database of the test's own with one outbox, "orders".
type fixture struct {
	testing.TB
	ctx   context.Context
	url   string
	store *postgres.Store
	conn  *pgx.Conn // of the superuser, for looking and for business
}

func newFixture(t testing.TB, opts postgres.Options) *fixture {
	return fixtureOn(t, freshDatabase(t), opts)
}

func fixtureOn(t testing.TB, url string, opts postgres.Options) *fixture {
	ctx, cancel := context.WithTimeout(context.Background(), 3*deadline)
	t.Cleanup(cancel)
	f := &fixture{TB: t, ctx: ctx, url: url, store: openStore(t, url, opts)}
	f.must(f.store.Migrate(ctx))
	f.must(f.store.CreateOutbox(ctx, "orders"))
	f.conn = f.connect()
	return f
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) connect() *pgx.Conn {
	f.Helper()
	conn, err := pgx.Connect(f.ctx, f.url)
	f.must(err)
	f.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (f *fixture) exec(sql string, args ...any) {
	f.Helper()
	if _, err := f.conn.Exec(f.ctx, sql, args...); err != nil {
		f.Fatalf("%s: %v", sql, err)
	}
}

func (f *fixture) number(sql string, args ...any) (n int64) {
	f.Helper()
	if err := f.conn.QueryRow(f.ctx, sql, args...).Scan(&n); err != nil {
		f.Fatalf("%s: %v", sql, err)
	}
	return n
}

func (f *fixture) subscribe() penstock.Source {
	f.Helper()
	src, err := f.store.Subscribe(f.ctx, penstock.Subscribe{Outbox: "orders", Subscription: "sub", Holder: "test"})
	f.must(err)
	f.Cleanup(func() { _ = src.Close(context.Background()) })
	return src
}

// insert publishes as any language would, in conn's transaction if it has one.
func (f *fixture) insert(conn *pgx.Conn, key, payload string) {
	f.Helper()
	_, err := conn.Exec(f.ctx, "insert into penstock.orders (key, topic, payload) values ($1, 't', $2)", key, []byte(payload))
	f.must(err)
}

// drain fetches until there is nothing new and settles what it got.
func (f *fixture) drain(src penstock.Source) (payloads []string) {
	f.Helper()
	for {
		b, err := src.Fetch(f.ctx, plenty)
		f.must(err)
		if len(b.Messages) == 0 {
			return payloads
		}
		for _, m := range b.Messages {
			payloads = append(payloads, string(m.Payload))
		}
		f.must(src.Settle(f.ctx, penstock.Settled{Batch: b}))
	}
}

func (f *fixture) wantDrain(src penstock.Source, want ...string) {
	f.Helper()
	if got := f.drain(src); fmt.Sprint(got) != fmt.Sprint(want) {
		f.Fatalf("got %q, want %q", got, want)
	}
}

func (f *fixture) eventually(what string, ok func() bool) {
	f.Helper()
	for end := time.Now().Add(deadline); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			f.Fatalf("it never came to be that %s", what)
		}
	}
}
