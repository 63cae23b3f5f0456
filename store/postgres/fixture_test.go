package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/store/postgres"
)

var plenty = driver.Limit{Messages: 1000, Bytes: 16 << 20}

// fixture is a database of the test's own with one outbox, "orders".
type fixture struct {
	*postgrestest.DB
	store *postgres.Store
}

func newFixture(t testing.TB, opts postgres.Options) *fixture {
	if opts.Schema != "" {
		return fixtureOn(t, postgrestest.Database(t), opts)
	}
	return holding(t, fmt.Sprintf("orders %+v", opts), opts, opts, func(context.Context, *postgres.Store) error { return nil })
}

// holding is a fixture with an outbox and with the objects that more makes in a store of the options
// made, once for all tests. To make an outbox or a queue takes longer than many a test.
func holding(t testing.TB, name string, opts, made postgres.Options, more func(context.Context, *postgres.Store) error) *fixture {
	url := postgrestest.Holding(t, name, made, func(ctx context.Context, s *postgres.Store) error {
		return errors.Join(s.CreateOutbox(ctx, "orders"), more(ctx, s))
	})
	return &fixture{DB: postgrestest.On(t, url), store: openStore(t, url, opts)}
}

// fixtureOn is a fixture in a database that may not have been migrated.
func fixtureOn(t testing.TB, url string, opts postgres.Options) *fixture {
	f := &fixture{DB: postgrestest.On(t, url), store: openStore(t, url, opts)}
	version, err := f.store.SchemaVersion(f.Ctx)
	f.Must(err)
	if version == 0 {
		f.Must(f.store.Migrate(f.Ctx))
	}
	f.Must(f.store.CreateOutbox(f.Ctx, "orders"))
	return f
}

func (f *fixture) subscribe() driver.Source {
	f.Helper()
	src, err := f.store.Subscribe(f.Ctx, driver.Subscribe{Outbox: "orders", Subscription: "sub", Holder: "test"})
	f.Must(err)
	f.Cleanup(func() { _ = src.Close(context.Background()) })
	return src
}

// insert publishes as any language would, in conn's transaction if it has one.
func (f *fixture) insert(conn *pgx.Conn, key, payload string) {
	f.Helper()
	_, err := conn.Exec(f.Ctx, "insert into penstock.orders (key, topic, payload) values ($1, 't', $2)", key, []byte(payload))
	f.Must(err)
}

// drain fetches until there is nothing new and settles what it got.
func (f *fixture) drain(src driver.Source) (payloads []string) {
	f.Helper()
	for {
		b, err := src.Fetch(f.Ctx, plenty)
		f.Must(err)
		if len(b.Messages) == 0 {
			return payloads
		}
		for _, m := range b.Messages {
			payloads = append(payloads, string(m.Payload))
		}
		f.Must(src.Settle(f.Ctx, b.Number, driver.Settled{Batch: b}))
	}
}

func (f *fixture) wantDrain(src driver.Source, want ...string) {
	f.Helper()
	if got := f.drain(src); fmt.Sprint(got) != fmt.Sprint(want) {
		f.Fatalf("got %q, want %q", got, want)
	}
}
