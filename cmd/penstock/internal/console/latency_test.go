package console_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock/penstock/cmd/penstock/internal/console"
	"github.com/penstock/penstock/internal/test/sqlitetest"
)

// Percentiles cover jobs that ended since the previous sample, so an hour of quick ones does not hide slow ones. If a process
// neither relays nor works, the pages show where to look.
func TestLatenciesOverTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sqlitetest.New(t)
		fill(t, s)
		get := func(c *console.Console, path string) string {
			t.Helper()
			w := httptest.NewRecorder()
			c.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", path, http.NoBody))
			if w.Code != 200 {
				t.Fatalf("%s: %d %s", path, w.Code, w.Body)
			}
			return w.Body.String()
		}
		ask := func(c *console.Console, path string) (w console.Waits) {
			t.Helper()
			must(t, json.Unmarshal([]byte(get(c, "/api/v1"+path)), &w))
			return w
		}
		alone := console.New(console.Options{Store: s})
		for path, page := range map[string]string{"/outboxes/orders/subscriptions/billing/latency": "/outboxes/orders", "/queues/mails/latency": "/queues/mails"} {
			if w := ask(alone, path); w.Known || w.Here || len(w.Points) != 0 {
				t.Errorf("%s knows %+v", path, w)
			}
			if text := get(alone, page); !strings.Contains(text, "--console-listen") {
				t.Errorf("%s does not say where latencies are", page)
			}
		}
		confirm := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "confirm", Help: "h", Buckets: []float64{.01, .1, 1, 10}, NativeHistogramBucketFactor: 1.1}, []string{"outbox", "subscription"})
		c := console.New(console.Options{Store: s, Waits: confirm})
		ctx, stop := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer stop()
		go c.Watch(ctx)
		const path = "/outboxes/orders/subscriptions/billing/latency"
		billing := confirm.WithLabelValues("orders", "billing")
		sampled := func() console.Waits {
			t.Helper()
			time.Sleep(11 * time.Second)
			return ask(c, path)
		}
		for range 1000 {
			billing.Observe(0.05)
		}
		if w := sampled(); !w.Known || !w.Here || w.Last() == nil || w.Last().Count != 1000 || w.Last().P50 < .01 || w.Last().P99 > .1 {
			t.Errorf("a thousand quick ones are %+v", w)
		}
		billing.Observe(5)
		if w := sampled(); w.Last() == nil || w.Last().Count != 1 || w.Last().P50 < 1 || w.Last().P99 > 10 || w.Top() < 1 {
			t.Errorf("a slow one is %+v", w)
		}
		if w := ask(c, "/queues/mails/latency"); !w.Known || w.Here {
			t.Errorf("of a queue that others work on it has %+v", w)
		}
		if text := get(c, "/outboxes/orders"); !strings.Contains(text, `class="p99" d="M`) {
			t.Errorf("the page has no curve: %s", text)
		}
		time.Sleep(2 * time.Hour)
		if n := len(ask(c, path).Points); n != 360 {
			t.Errorf("%d samples are kept", n)
		}
	})
}
