package systemtest

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/store/sqlite"
)

// If the sink is slower than the relay fetches, stops repeat nothing and kills repeat only what
// was just delivered. Relay after relay makes progress.
func TestSlowEndpoint(t *testing.T) {
	t.Parallel()
	for name, database := range map[string]func(testing.TB) (string, driver.Store){"PostgreSQL": slowPostgres, "SQLite": slowSQLite} {
		for _, keys := range []int{1, 90} {
			t.Run(fmt.Sprintf("%s %d keys", name, keys), func(t *testing.T) {
				t.Parallel()
				url, store := database(t)
				stopSlowly(t, url, store, keys)
			})
		}
	}
}

func slowPostgres(t testing.TB) (string, driver.Store) {
	url := postgrestest.Database(t)
	store, err := postgres.Open(t.Context(), url, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return url, store
}

func slowSQLite(t testing.TB) (string, driver.Store) {
	path := filepath.Join(t.TempDir(), "app.db")
	url := "sqlite:" + path
	store, err := sqlite.Open(t.Context(), path, sqlite.Options{BusyTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return url, store
}

func stopSlowly(t *testing.T, database string, store driver.Store, keys int) {
	const messages, step = 90, 13
	if err := errors.Join(store.Migrate(t.Context()), store.CreateOutbox(t.Context(), "orders")); err != nil {
		t.Fatal(err)
	}
	for i := range messages {
		m := penstock.Message{ID: fmt.Sprint("m", i), Key: fmt.Sprint("key", i%keys), Topic: "t"}
		if err := store.Publish(t.Context(), "orders", m); err != nil {
			t.Fatal(err)
		}
	}
	e := &slowEndpoint{answered: map[string]int{}, changed: make(chan struct{})}
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	relay := func() *process { // a lease that a busy machine renews in time: when it ends, calls of the sink end and are repeated
		return start(t, "relay", "--outbox", "orders", "--database-url", database, "--lease", "10s", "--sink", server.URL+"#allow_addresses=127.0.0.1&concurrency=8")
	}
	for round := 0; e.count() < messages-step-8; round++ {
		p := relay()
		e.allow(step)
		eventually(t, "the endpoint has answered what it may", e.closed)
		if round%2 == 0 {
			awaitSubscription(t, database, "orders", "", "what was delivered is settled, though the rest of its batch is not",
				func(s admin.SubscriptionStatus) bool { return s.Settled == int64(e.count()) })
			p.kill()
			eventually(t, "the endpoint has seen that nobody waits for its answers", e.idle)
			continue
		}
		p.signal(syscall.SIGINT)
		p.says("draining")
		e.allow(messages) // requests in progress are answered
		if o := p.wait(); o.code != 0 {
			t.Fatalf("the stopped relay ended with %d: %s", o.code, p.stderr.tail())
		}
		e.close()
	}
	p := relay()
	e.allow(messages)
	relayed(t, database, "orders")
	p.signal(syscall.SIGTERM)
	p.wait()
	for id, n := range e.answered {
		if n > 1 {
			t.Errorf("%s was delivered %d times", id, n)
		}
	}
	if len(e.answered) != messages {
		t.Errorf("%d of %d messages were delivered", len(e.answered), messages)
	}
}

// slowEndpoint answers as many requests as it is allowed, and blocks the others.
type slowEndpoint struct {
	mu       sync.Mutex
	allowed  int
	waiting  int // requests
	answered map[string]int
	changed  chan struct{} // closed when allowed grows
}

func (e *slowEndpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.wait(1)
	defer e.wait(-1)
	for {
		e.mu.Lock()
		if e.allowed > 0 && r.Context().Err() == nil {
			e.allowed--
			e.answered[r.Header.Get("Idempotency-Key")]++
			e.mu.Unlock()
			w.WriteHeader(http.StatusNoContent)
			return
		}
		changed := e.changed
		e.mu.Unlock()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

func (e *slowEndpoint) wait(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waiting += n
}

func (e *slowEndpoint) idle() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.waiting == 0
}

func (e *slowEndpoint) allow(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.allowed += n
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *slowEndpoint) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.allowed = 0
}

func (e *slowEndpoint) closed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.allowed == 0
}

// count is how many different messages were delivered.
func (e *slowEndpoint) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.answered)
}
