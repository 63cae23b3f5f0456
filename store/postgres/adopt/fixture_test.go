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

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/store/postgres/adopt"
)

var plenty = driver.Limit{Messages: 1000, Bytes: 16 << 20}

// fixture is a database of the test's own, migrated.
type fixture struct{ *postgrestest.DB }

func newFixture(t testing.TB) *fixture {
	t.Helper()
	return &fixture{postgrestest.New(t)}
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
	t, err := adopt.Open(f.Ctx, adopt.Options{URL: f.URL, Subscription: name, Config: c, Log: quiet()})
	f.Must(err)
	f.Cleanup(func() { _ = t.Close() })
	return t
}

func (f *fixture) subscribe(t *adopt.Table) driver.Source {
	f.Helper()
	src, err := t.Subscribe(f.Ctx, driver.Subscribe{Holder: "test"})
	f.Must(err)
	f.Cleanup(func() { _ = src.Close(context.Background()) })
	return src
}

// fetch returns the next batch that is not empty.
func (f *fixture) fetch(src driver.Source) (b driver.Batch) {
	f.Helper()
	f.Eventually("a batch is fetched", func() bool {
		var err error
		b, err = src.Fetch(f.Ctx, plenty)
		f.Must(err)
		return len(b.Messages) > 0
	})
	return b
}

func (f *fixture) settle(src driver.Source, b driver.Batch, verdicts ...driver.Verdict) {
	f.Helper()
	f.Must(storetest.Settle(f.Ctx, src, driver.Settled{Batch: b, Verdicts: verdicts}))
}

func payloads(b driver.Batch) (all []string) {
	for _, m := range b.Messages {
		all = append(all, string(m.Payload))
	}
	return all
}

func (f *fixture) want(b driver.Batch, want ...string) {
	f.Helper()
	if got := payloads(b); !slices.Equal(got, want) {
		f.Fatalf("got %q, want %q", got, want)
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

// tableStore is a relay's store: the table is the application's to maintain.
type tableStore struct{ *adopt.Table }

func (tableStore) Maintain(context.Context, string) error { return nil }

// relay runs a relay from the table to the sink until stop is called or the test ends.
func (f *fixture) relay(t *adopt.Table, sink driver.Sink, change func(*relay.Options)) (stop func()) {
	f.Helper()
	opts := relay.Options{
		Logger: quiet(),
		Limits: relay.Limits{Lease: 2 * time.Second, RetryMin: 10 * time.Millisecond, RetryMax: 50 * time.Millisecond, SettleEvery: 10 * time.Millisecond},
	}
	if change != nil {
		change(&opts)
	}
	r, err := relay.New(tableStore{t}, "", "sub", sink, opts)
	f.Must(err)
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
