package systemtest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/store/postgres"
)

// With an endpoint that fails now and then, and a relay that is killed, nothing is lost. Each
// message arrives, signed, in order per key. The one that is refused permanently becomes a dead
// letter.
func TestKilledRelayToAWebhook(t *testing.T) {
	testseed.Soak(t)
	t.Parallel()
	const messages, keys, kills = 600, 12, 3
	const refused = 77
	random := testseed.New(t.Name(), 0)
	t.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	hook := newEndpoint(t, random.Uint64(), refused)

	database := ordersDatabase(t)
	config := filepath.Join(t.TempDir(), "penstock.yaml")
	content := fmt.Sprintf(`
database_url: %q
relay: {lease: %s, retry_min: 5ms, max_in_flight: 200}
subscriptions:
  - name: partner
    outbox: orders
    format: cloudevents
    sink:
      webhook:
        url: %s/hooks/{topic}
        secrets: [%q]
        allow_addresses: [127.0.0.1]
        content_type: application/json
`, database, shortLease, hook.server.URL, "whsec_"+base64.StdEncoding.EncodeToString(hook.secret))
	if err := os.WriteFile(config, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	store, err := postgres.Open(t.Context(), database, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for i := range messages {
		m := penstock.Message{ID: fmt.Sprintf("order-%d", i), Key: fmt.Sprintf("customer-%d", i%keys), Topic: "orders.placed", Payload: []byte(fmt.Sprintf(`{"n":%d}`, i))}
		if err := store.Publish(t.Context(), "orders", m); err != nil {
			t.Fatal(err)
		}
	}
	for k := range kills {
		relay := start(t, "relay", "--config", config)
		hook.await(k*messages/(kills+1) + 1 + random.IntN(messages/(kills+1)))
		relay.kill()
	}
	last := start(t, "relay", "--config", config)
	relayed(t, database, "orders")
	awaitSubscription(t, database, "orders", "partner", "nothing is parked, and one is dead", func(s admin.SubscriptionStatus) bool {
		return s.Backlog == 0 && hook.count() == messages-1
	})
	last.signal(syscall.SIGTERM)
	if o := last.wait(); o.code != 0 {
		t.Errorf("the last relay ended with %d: %s", o.code, last.stderr.tail())
	}

	dead := must(t, "dead", "list", "orders", "--json", "--database-url", database)
	var letter struct{ ID, Error string }
	if err := json.Unmarshal([]byte(dead), &letter); err != nil || letter.ID != fmt.Sprintf("order-%d", refused) || !strings.Contains(letter.Error, "422") {
		t.Errorf("dead letters: %q, %v", dead, err)
	}
	hook.check(messages, keys, refused)
}

// endpoint is a receiver of webhooks that fails now and then.
type endpoint struct {
	t       *testing.T
	server  *httptest.Server
	secret  []byte
	refused string

	mu      sync.Mutex
	random  *rand.Rand
	order   map[string][]int // by key: numbers in the order of their first arrival
	seen    map[string]int
	faults  []string
	changed chan struct{}
}

func newEndpoint(t *testing.T, seed uint64, refused int) *endpoint {
	e := &endpoint{t: t, secret: []byte("0123456789abcdef0123456789abcdef"), refused: fmt.Sprintf("order-%d", refused),
		random: rand.New(rand.NewPCG(seed, 0)), order: map[string][]int{}, seen: map[string]int{}, changed: make(chan struct{}, 1)}
	e.server = httptest.NewServer(e)
	t.Cleanup(e.server.Close)
	return e
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // half a request: the relay was killed while it wrote
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	id := r.Header.Get("Webhook-Id")
	mac := hmac.New(sha256.New, e.secret)
	fmt.Fprintf(mac, "%s.%s.%s", id, r.Header.Get("Webhook-Timestamp"), body)
	if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); r.Header.Get("Webhook-Signature") != want ||
		r.Header.Get("Ce-Id") != id || r.Header.Get("Idempotency-Key") != id || r.URL.Path != "/hooks/orders.placed" {
		e.faults = append(e.faults, fmt.Sprintf("%s %v", r.URL, r.Header))
	}
	switch {
	case id == e.refused:
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	case e.random.IntN(50) == 0:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	var content struct{ N int }
	if err := json.Unmarshal(body, &content); err != nil {
		e.faults = append(e.faults, string(body))
	}
	if e.seen[id]++; e.seen[id] == 1 {
		key := r.Header.Get("Ce-Subject")
		e.order[key] = append(e.order[key], content.N)
	}
	select {
	case e.changed <- struct{}{}:
	default:
	}
}

// count is how many different messages have arrived.
func (e *endpoint) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.seen)
}

func (e *endpoint) await(n int) {
	e.t.Helper()
	deadline := time.After(patience)
	for e.count() < n {
		select {
		case <-e.changed:
		case <-deadline:
			e.t.Fatalf("%d messages arrived, waited for %d", e.count(), n)
		}
	}
}

// check requires every message but the refused one, and those of a key in order.
func (e *endpoint) check(messages, keys, refused int) {
	e.t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, f := range e.faults {
		e.t.Errorf("a request that is not as it should be: %s", f)
	}
	again := 0
	for _, n := range e.seen {
		again += n - 1
	}
	for k := range keys {
		next := k
		for _, n := range e.order[fmt.Sprintf("customer-%d", k)] {
			if next == refused {
				next += keys
			}
			if n != next {
				e.t.Errorf("customer-%d got %d, want %d", k, n, next)
			}
			next = n + keys
		}
	}
	e.t.Logf("%d messages, %d requests more", len(e.seen), again)
	if len(e.seen) != messages-1 {
		e.t.Errorf("%d messages arrived, want %d", len(e.seen), messages-1)
	}
}
