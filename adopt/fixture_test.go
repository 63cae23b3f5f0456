package adopt_test

import (
	"context"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/adopt"
	"github.com/penstock/penstock/internal/testserver"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/store/postgres"
)

// deadline ends a test whose condition never came. It is far longer than any condition
// takes, so that a slow machine fails nothing.
const deadline = 2 * time.Minute

var plenty = penstock.Limit{Messages: 1000, Bytes: 16 << 20}

// fixture is a database of the test's own, migrated.
type fixture struct {
	testing.TB
	ctx  context.Context
	url  string
	conn *pgx.Conn
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*deadline)
	t.Cleanup(cancel)
	f := &fixture{TB: t, ctx: ctx, url: testserver.Database(t, testserver.PostgresURL(t))}
	store, err := postgres.Open(ctx, f.url, postgres.Options{})
	f.must(err)
	f.must(store.Migrate(ctx))
	f.must(store.Close())
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

// tables of the presets, as their authors made them.
const (
	dotnetTable = `create table outbox_messages (id uuid primary key default gen_random_uuid(), type text not null, content jsonb not null,
		occurred_on_utc timestamptz not null default clock_timestamp(), processed_on_utc timestamptz null, error text null);
		create index on outbox_messages (occurred_on_utc, id) where processed_on_utc is null`
	debeziumTable = `create table outboxevent (id uuid primary key, aggregatetype varchar(255) not null, aggregateid varchar(255) not null,
		type varchar(255) not null, payload jsonb, tracingspancontext varchar(256))`
	messageTable = `create table outbox (ts timestamptz not null default clock_timestamp(), id bigserial, message text, primary key (ts, id))`
	eventsTable  = `create table events (id int primary key generated always as identity, ts timestamp not null default (clock_timestamp() at time zone 'UTC'), data text);
		create index on events (ts, id)`
)

// keyed is a table with everything.
const keyedTable = `create table shop (id bigint primary key generated always as identity, key text, topic text not null default 't', payload text not null,
	headers jsonb, status text not null default 'pending', processed_at timestamptz, failure varchar(40), attempts int not null default 0)`

func keyedConfig() adopt.Config {
	return adopt.Config{Table: "shop", Columns: adopt.Columns{ID: "id", Order: []string{"id"}, Key: "key", Topic: "topic", Payload: "payload", Headers: "headers",
		ProcessedAt: "processed_at", Error: "failure", Attempts: "attempts"}}
}

func (f *fixture) open(c adopt.Config) *adopt.Table {
	f.Helper()
	return f.openAs("sub", c)
}

func (f *fixture) openAs(name string, c adopt.Config) *adopt.Table {
	f.Helper()
	t, err := adopt.Open(f.ctx, adopt.Options{URL: f.url, Subscription: name, Config: c, Log: quiet()})
	f.must(err)
	f.Cleanup(func() { _ = t.Close() })
	return t
}

func (f *fixture) subscribe(t *adopt.Table) penstock.Source {
	f.Helper()
	src, err := t.Subscribe(f.ctx, penstock.Subscribe{Holder: "test"})
	f.must(err)
	f.Cleanup(func() { _ = src.Close(context.Background()) })
	return src
}

// fetch returns the next batch that is not empty.
func (f *fixture) fetch(src penstock.Source) (b penstock.Batch) {
	f.Helper()
	f.eventually("a batch is fetched", func() bool {
		var err error
		b, err = src.Fetch(f.ctx, plenty)
		f.must(err)
		return len(b.Messages) > 0
	})
	return b
}

func (f *fixture) settle(src penstock.Source, b penstock.Batch, verdicts ...penstock.Verdict) {
	f.Helper()
	f.must(src.Settle(f.ctx, penstock.Settled{Batch: b, Verdicts: verdicts}))
}

func payloads(b penstock.Batch) (all []string) {
	for _, m := range b.Messages {
		all = append(all, string(m.Payload))
	}
	return all
}

func (f *fixture) want(b penstock.Batch, want ...string) {
	f.Helper()
	if got := payloads(b); !slices.Equal(got, want) {
		f.Fatalf("got %q, want %q", got, want)
	}
}

func (f *fixture) eventually(what string, ok func() bool) {
	f.Helper()
	for end := time.Now().Add(deadline); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			f.Fatalf("it never came to be that %s", what)
		}
	}
}

// collector is a sink that keeps what it gets. refuse, if set, says what it does not take.
type collector struct {
	mu     sync.Mutex
	got    []penstock.Message
	refuse func(m *penstock.Message) error
}

func (c *collector) Send(_ context.Context, msgs []penstock.Message) []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	errs := make([]error, len(msgs))
	for i := range msgs {
		if c.refuse != nil {
			errs[i] = c.refuse(&msgs[i])
		}
		if errs[i] == nil {
			c.got = append(c.got, msgs[i])
		}
	}
	return errs
}

func (c *collector) Close(context.Context) error { return nil }

func (c *collector) all() []penstock.Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.got)
}

func (c *collector) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.got)
}

// relay runs a relay from the table to the sink until stop is called or the test ends.
func (f *fixture) relay(t *adopt.Table, sink penstock.Sink, change func(*relay.Config)) (stop func()) {
	f.Helper()
	config := relay.Config{
		Name: "sub", Sink: sink, Lease: 2 * time.Second, RetryMin: 10 * time.Millisecond, RetryMax: 50 * time.Millisecond, SettleEvery: 10 * time.Millisecond,
		Logger: quiet(),
		Open: func(ctx context.Context) (penstock.Source, error) {
			return t.Subscribe(ctx, penstock.Subscribe{Holder: "relay", Lease: 2 * time.Second})
		},
	}
	if change != nil {
		change(&config)
	}
	r, err := relay.New(config)
	f.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() { r.Drain(); <-done; cancel() })
	f.Cleanup(stop)
	return stop
}

// quiet is a log that is read only with PENSTOCK_TEST_LOG.
func quiet() *slog.Logger {
	if os.Getenv("PENSTOCK_TEST_LOG") != "" {
		return slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	return slog.New(slog.NewTextHandler(io.Discard, nil))
}
