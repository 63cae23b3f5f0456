package systemtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/demo"
	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/internal/natsserver"
	"github.com/penstock/penstock/internal/readback"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/store/sqlite"
)

// line is the main job in separate parts: business transactions in this process, the relay as a
// separate process that a test may kill, and a consumer of the broker.
type line struct {
	t        testing.TB
	database string
	outbox   string
	config   string // a penstock.yaml
	airline  demo.Airline
	broker   readback.Broker
	queue    string // or stream
	flights  []demo.Flight

	mu       sync.Mutex
	arrivals []demo.Arrival
	arrived  *sync.Cond
	read     chan error
}

const outbox = "flights"

// producers is the number of producers of every line.
const producers = 4

// A killed relay's lease has to end before the next one begins, so it is short in tests that kill
// relays. In other tests it is long, because an expired lease would send messages twice on a slow
// machine.
const (
	shortLease = 2 * time.Second
	longLease  = time.Minute
)

func postgresLine(t testing.TB, flights int, lease time.Duration) *line {
	database := postgrestest.Database(t)
	l := newLine(t, database, testserver.RabbitMQURL(t), flights, lease)
	l.airline = postgresAirline(t, database)
	return l
}

func postgresAirline(t testing.TB, database string) demo.Airline {
	t.Helper()
	store, err := postgres.Open(t.Context(), database, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	airline, err := demo.NewPostgresAirline(t.Context(), database, "airline", producers, store.Outbox(outbox))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = airline.Close() })
	return airline
}

// sqliteLine relays to a NATS server that is not embedded in the relay.
func sqliteLine(t testing.TB, flights int, lease time.Duration) *line {
	server, err := natsserver.Start(natsserver.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Shutdown(context.Background()) })
	database := "sqlite:" + filepath.Join(t.TempDir(), "airline.db")
	l := newLine(t, database, server.ClientURL(), flights, lease)
	store, err := sqlite.Open(t.Context(), database, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if l.airline, err = demo.NewSQLiteAirline(t.Context(), database, "airline", store.Outbox(outbox), false); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.airline.Close() })
	return l
}

func newLine(t testing.TB, database, sinkURL string, flights int, lease time.Duration) *line {
	t.Helper()
	sample, err := demo.Sample(flights)
	if err != nil {
		t.Fatal(err)
	}
	l := &line{t: t, database: database, outbox: outbox, flights: sample, read: make(chan error, 1)}
	l.arrived = sync.NewCond(&l.mu)
	withOutbox(t, database, outbox)

	l.queue = fmt.Sprintf("penstock_test_%08x", rand.Uint32())
	if l.broker, err = drivers.ReadBack(sinkURL, "", l.queue); err != nil {
		t.Fatal(err)
	}
	if err := l.broker.Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.broker.Remove(context.Background()); err != nil {
			t.Error(err)
		}
		_ = l.broker.Close()
	})
	l.config = filepath.Join(t.TempDir(), "penstock.yaml")
	content := fmt.Sprintf("database_url: %q\nrelay:\n  lease: %s\n  max_in_flight: 800\nsubscriptions:\n  - {name: test, outbox: %s, sink: %q}\n",
		database, lease, outbox, l.broker.SinkURL())
	if err := os.WriteFile(l.config, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return l
}

// shares splits the flights into successive rounds.
func (l *line) shares(n int) [][]demo.Flight {
	return slices.Collect(slices.Chunk(l.flights, (len(l.flights)+n-1)/n))
}

// startReading starts the consumer; check ends it.
func (l *line) startReading() {
	ctx, stop := context.WithCancel(l.t.Context())
	l.t.Cleanup(stop)
	go func() {
		l.read <- l.broker.Read(ctx, func(got readback.Arrival) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.arrivals = append(l.arrivals, demo.ParseArrival(got.Key, got.Payload))
			l.arrived.Broadcast()
		})
	}()
}

// startProducing starts the flights' business transactions, a tenth of which roll back. The
// returned function waits for the last commit.
func (l *line) startProducing(flights []demo.Flight) (committed func()) {
	produce := demo.Produce{Flights: flights, Producers: producers, Rollback: 0.1, Seed: 1}
	done := make(chan error, 1)
	go func() { done <- produce.Run(l.t.Context(), l.airline) }()
	return func() {
		l.t.Helper()
		if err := <-done; err != nil {
			l.t.Fatal(err)
		}
	}
}

// relay starts a relay process.
func (l *line) relay() *process {
	l.t.Helper()
	return start(l.t, "relay", "--config", l.config)
}

// count is how many messages the consumer has read.
func (l *line) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.arrivals)
}

// awaitArrivals waits until the consumer has read n messages.
func (l *line) awaitArrivals(n int) {
	l.t.Helper()
	timeout := time.AfterFunc(patience, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.arrived.Broadcast()
	})
	defer timeout.Stop()
	deadline := time.Now().Add(patience)
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.arrivals) < n {
		if !time.Now().Before(deadline) {
			l.t.Fatalf("%d messages arrived, waited for %d", len(l.arrivals), n)
		}
		l.arrived.Wait()
	}
}

// check ends the reading and compares arrivals with commits. No relay runs any more.
func (l *line) check() demo.Checked {
	l.t.Helper()
	if err := l.broker.Finish(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
	if err := <-l.read; err != nil {
		l.t.Fatal(err)
	}
	committed, err := l.airline.Committed(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	checked := demo.Check(committed, l.arrivals)
	l.t.Logf("%d published, %d duplicates", checked.Published, checked.Duplicates)
	if !checked.OK() || checked.Published == 0 {
		l.t.Errorf("lost %d, phantom %d, out of order %d of %d: %s",
			checked.Lost, checked.Phantom, checked.OutOfOrder, checked.Published, strings.Join(checked.Examples, "; "))
	}
	return checked
}
