package console_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock/penstock/cmd/penstock/internal/console"
	"github.com/penstock/penstock/store/sqlite"
)

// Percentiles cover jobs that ended since the previous sample, so an hour of quick ones does not hide slow ones. If a process
// neither relays nor works, the pages show where to look.
func TestLatenciesOverTime(t *testing.T) {
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "test.db"), sqlite.Options{})
	must(t, err)
	must(t, s.Migrate(t.Context()))
	t.Cleanup(func() { s.Close() })
	fill(t, s)
	ask := func(d *desk, path string) (w console.Waits) {
		t.Helper()
		code, text := d.ask("r", "GET", "/api/v1"+path, "")
		if err := json.Unmarshal(text, &w); code != 200 || err != nil {
			t.Fatalf("%s: %d %s", path, code, text)
		}
		return w
	}
	alone := serve(t, s)
	for path, page := range map[string]string{"/outboxes/orders/subscriptions/billing/latency": "/outboxes/orders", "/queues/mails/latency": "/queues/mails"} {
		if w := ask(alone, path); w.Known || w.Here || len(w.Points) != 0 {
			t.Errorf("%s knows %+v", path, w)
		}
		if _, text := alone.ask("r", "GET", page, ""); !strings.Contains(string(text), "--console-listen") {
			t.Errorf("%s does not say where latencies are", page)
		}
	}
	confirm := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "confirm", Help: "h", Buckets: []float64{.01, .1, 1, 10}, NativeHistogramBucketFactor: 1.1}, []string{"outbox", "subscription"})
	d := serveWith(t, s, func(o *console.Options) { o.Waits, o.WaitsEvery = confirm, time.Millisecond })
	const path = "/outboxes/orders/subscriptions/billing/latency"
	billing := confirm.WithLabelValues("orders", "billing")
	await := func(slow bool) (w console.Waits) {
		for deadline := time.Now().Add(30 * time.Second); ; {
			if w = ask(d, path); w.Last() != nil && w.Last().P50 > 1 == slow {
				return w
			}
			if time.Now().After(deadline) {
				t.Fatalf("slow is %v, and latencies are %+v", slow, w)
			}
		}
	}
	for range 1000 {
		billing.Observe(0.05)
	}
	if w := await(false); !w.Known || !w.Here || w.Last().P50 < .01 || w.Last().P99 > .1 {
		t.Errorf("a thousand quick ones are %+v", w)
	}
	billing.Observe(5)
	if w := await(true); w.Last().Count != 1 || w.Last().P99 > 10 || w.Top() < 1 {
		t.Errorf("a slow one is %+v", w)
	}
	if w := ask(d, "/queues/mails/latency"); !w.Known || w.Here {
		t.Errorf("of a queue that others work on it has %+v", w)
	}
	if _, text := d.ask("r", "GET", "/outboxes/orders", ""); !strings.Contains(string(text), `class="p99" d="M`) {
		t.Errorf("the page has no curve: %s", text)
	}
	for len(ask(d, path).Points) < 360 {
	}
	if n := len(ask(d, path).Points); n != 360 {
		t.Errorf("%d samples are kept", n)
	}
}
