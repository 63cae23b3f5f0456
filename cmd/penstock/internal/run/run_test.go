package run

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/ingest"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/sqlitetest"
	"github.com/penstock/penstock/metrics"
	"github.com/penstock/penstock/store/sqlite"
)

// configured is a configuration of one subscription, called a.
func configured(t *testing.T, url, subscription string) *config.Config {
	t.Helper()
	cfg, err := config.Loader{DatabaseURL: url}.LoadBytes("penstock.yaml", []byte("subscriptions:\n  - name: a"+subscription))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// Workers and relays are independent. Nothing is connected before they run.
func TestOneRelayPerWorker(t *testing.T) {
	for workers, want := range map[int]int{1: 1, 3: 3} {
		cfg := configured(t, "postgres://127.0.0.1:1/nowhere", fmt.Sprintf("\n    sink: discard\n    adopt: {preset: dotnet, workers: %d}", workers))
		r, err := New(t.Context(), cfg, Options{Store: sqlitetest.New(t), Log: slog.New(slog.DiscardHandler)})
		if err != nil || len(r.all) != want {
			t.Fatalf("%d workers: %v, %v", workers, r, err)
		}
		r.Close()
	}
}

// A dropped queue does not end the process: its jobs run again once it exists again.
func TestWorkerWaitsForADroppedQueue(t *testing.T) {
	store := sqlitetest.New(t)
	cfg := &config.Config{Workers: []config.Worker{{Queue: "jobs", Exec: "cat", Concurrency: 1}}}
	cfg.SetDefaults()
	create := func() {
		if err := store.CreateQueue(t.Context(), "jobs", penstock.FIFO); err != nil {
			t.Fatal(err)
		}
	}
	logged, ran := lineWriter(make(chan string)), lineWriter(make(chan string))
	create()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- runUntil(ctx, cfg, Options{Store: store, Database: "shop at db:5432", Log: slog.New(slog.NewTextHandler(logged, nil)), Stdout: ran, Stderr: ran})
	}()
	logged.until(t, `msg=working queue=jobs database="shop at db:5432"`)
	if err := store.DropQueue(t.Context(), "jobs"); err != nil {
		t.Fatal(err)
	}
	logged.until(t, "cannot work; trying again")
	create()
	if _, err := store.DriverQueue("jobs").Enqueue(t.Context(), penstock.NewJob{Payload: []byte("after it")}); err != nil {
		t.Fatal(err)
	}
	go func() { // the log meanwhile
		for range logged {
		}
	}()
	ran.until(t, "after it")
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// slow is a store in which one subscription takes long.
type slow struct {
	*sqlite.Store
	made    chan struct{}
	fetches atomic.Int32
}

func (s *slow) Subscribe(ctx context.Context, req driver.Subscribe) (driver.Source, error) {
	if req.Subscription == "slow" {
		<-s.made
	}
	source, err := s.Store.Subscribe(ctx, req)
	return &fetched{source, &s.fetches}, err
}

type fetched struct {
	driver.Source
	n *atomic.Int32
}

func (f *fetched) Fetch(ctx context.Context, limit driver.Limit) (driver.Batch, error) {
	f.n.Add(1)
	return f.Source.Fetch(ctx, limit)
}

// Nothing is read from an outbox before all of its subscriptions are created, but no longer than a lease permits.
func TestSubscriptionsAreMadeTogether(t *testing.T) {
	for _, comes := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			store := &slow{Store: sqlitetest.New(t), made: make(chan struct{})}
			if err := store.CreateOutbox(t.Context(), "orders"); err != nil {
				t.Fatal(err)
			}
			cfg := configured(t, "sqlite:orders.db", "\n    outbox: orders\n    sink: discard\n  - name: slow\n    outbox: orders\n    sink: discard\nrelay: {lease: 30s}")
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				ended <- runUntil(ctx, cfg, Options{Store: store, Log: slog.New(slog.DiscardHandler)})
			}()
			time.Sleep(9 * time.Second)
			if n := store.fetches.Load(); n > 0 {
				t.Errorf("there were %d fetches before all was made", n)
			}
			if comes {
				close(store.made)
			} else {
				time.Sleep(2 * time.Second)
			}
			synctest.Wait()
			if store.fetches.Load() == 0 {
				t.Error("there was no fetch")
			}
			if !comes {
				close(store.made)
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// refusing is a store that refuses a relay at first, for each reason once.
type refusing struct {
	*sqlite.Store
	reasons []error
}

func (s *refusing) Subscribe(ctx context.Context, req driver.Subscribe) (driver.Source, error) {
	if len(s.reasons) > 0 {
		err := s.reasons[0]
		s.reasons = s.reasons[1:]
		return nil, err
	}
	return s.Store.Subscribe(ctx, req)
}

// A relay that starts while the database is slow, full or busy waits: it does not end. To take the lease may last longer than
// the lease, so that it is another's at the end (ErrFenced).
func TestRelayStartsOnASlowDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &refusing{Store: sqlitetest.New(t), reasons: []error{
			&pgconn.PgError{Code: "55P03"}, &pgconn.PgError{Code: "57014"}, &pgconn.PgError{Code: "53100"}, &pgconn.PgError{Code: "40P01"},
			&mysql.MySQLError{Number: 1205}, fmt.Errorf("shop.db: %w", sqlite.ErrBusy), fmt.Errorf("shop.db: %w", sqlite.ErrFull), fmt.Errorf("subscription: %w", penstock.ErrFenced)}}
		if err := store.CreateOutbox(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		took := lineWriter(make(chan string, 100))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- runUntil(ctx, configured(t, "sqlite:orders.db", "\n    outbox: orders\n    sink: discard"), Options{Store: store, Log: slog.New(slog.NewTextHandler(took, nil))})
		}()
		select {
		case err := <-ended:
			t.Fatalf("it has ended: %v", err)
		default:
			took.until(t, "took the lease")
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// lineWriter passes on its input; a write waits until it is read.
type lineWriter chan string

func (w lineWriter) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}

func (w lineWriter) until(t *testing.T, text string) {
	t.Helper()
	for said := range w {
		if strings.Contains(said, text) {
			return
		}
	}
}

// The server that accepts messages updates the metrics.
func TestServeIsCounted(t *testing.T) {
	cfg := &config.Config{Serve: &config.Serve{Listen: "127.0.0.1:0"}}
	store := sqlitetest.New(t)
	if err := store.CreateOutbox(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	m := metrics.New(metrics.Options{})
	r, err := New(t.Context(), cfg, Options{Store: store, Metrics: m, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	answer, err := http.Post("http://"+r.all[0].(*ingest.Server).Addr()+"/outboxes/orders/messages", "application/x-ndjson", strings.NewReader("{}\n{}"))
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatal(answer, err)
	}
	_ = answer.Body.Close()
	r.Drain() // the answer is reported then
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen := httptest.NewRecorder()
	m.Handler().ServeHTTP(seen, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{`penstock_ingest_requests_total{code="200",outbox="orders"} 1`, `penstock_ingest_messages_total{outbox="orders"} 2`} {
		if !strings.Contains(seen.Body.String(), want) {
			t.Errorf("the metrics have no %s", want)
		}
	}
}

// The header with the previous id is set before the message gets its format, which can pass it on.
func TestPreviousComesBeforeTheFormat(t *testing.T) {
	var got []http.Header
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = append(got, r.Header) }))
	defer server.Close()
	cfg := configured(t, "sqlite:"+filepath.Join(t.TempDir(), "test.db"), fmt.Sprintf(`
    outbox: orders
    sink: {webhook: {url: %s/, allow_private: true}}
    previous: true
    format: {kind: cloudevents, extensions: {predecessor: "{header.penstock-previous}"}}`, server.URL))
	s := &subscription{Subscription: &cfg.Subscriptions[0], relays: &Relays{o: Options{Log: slog.New(slog.DiscardHandler)}}}
	sink, err := s.openSink()
	if err != nil {
		t.Fatal(err)
	}
	defer s.closeSink(t.Context(), sink)
	for i := range 2 {
		m := penstock.Message{ID: fmt.Sprintf("m%d", i+1), Seq: int64(i + 1), Key: "k", Topic: "orders.paid", Payload: []byte(`{}`)}
		for _, err := range sink.Send(t.Context(), []penstock.Message{m}) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(got) != 2 || got[0].Get("ce-id") != "m1" || got[0].Get("ce-predecessor") != "" || got[1].Get("ce-predecessor") != "m1" || got[1].Get("ce-source") != "/penstock/orders" {
		t.Errorf("got %v", got)
	}
}

// A shared subscription reports an error if the database permits only one relay.
func TestSharedNeedsAStoreThatShares(t *testing.T) {
	cfg := configured(t, "sqlite:nowhere.db", "\n    outbox: orders\n    shared: true\n    sink: discard")
	_, err := New(t.Context(), cfg, Options{Store: sqlitetest.New(t), Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "shared") {
		t.Fatalf("got %v", err)
	}
}

// runUntil runs a configuration until ctx ends, and then drains.
func runUntil(ctx context.Context, cfg *config.Config, o Options) error {
	r, err := New(ctx, cfg, o)
	if err != nil {
		return err
	}
	defer r.Close()
	defer context.AfterFunc(ctx, r.Drain)()
	return r.Run(context.WithoutCancel(ctx))
}
