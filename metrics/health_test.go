package metrics_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/metrics"
	"github.com/penstock/penstock/relay"
)

func ready(m *metrics.Metrics, accept string) (code int, body string) {
	w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/readyz", nil)
	r.Header.Set("Accept", accept)
	m.Handler().ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestReadiness(t *testing.T) {
	for name, c := range map[string]struct {
		change func(d *database, s *admin.SubscriptionStatus, o *metrics.RelayObserver)
		why    string // part of the problem; empty means ready
	}{
		"stands still":  {func(*database, *admin.SubscriptionStatus, *metrics.RelayObserver) {}, "orders/billing: 5 messages wait, the oldest for 10m0s, the sink is up, and nothing was settled for 5m"},
		"nobody has it": {func(_ *database, s *admin.SubscriptionStatus, _ *metrics.RelayObserver) { s.Holder = "" }, "no relay holds the lease"},
		"it is ours": {func(_ *database, s *admin.SubscriptionStatus, o *metrics.RelayObserver) {
			s.Holder = "3 workers"
			o.Lease(true)
		}, "nothing was settled"},
		"another has it":   {func(_ *database, s *admin.SubscriptionStatus, _ *metrics.RelayObserver) { s.Holder = "there" }, ""},
		"it moves":         {func(_ *database, s *admin.SubscriptionStatus, _ *metrics.RelayObserver) { s.Settled++ }, ""},
		"it has just come": {func(_ *database, s *admin.SubscriptionStatus, _ *metrics.RelayObserver) { s.OldestAge = time.Minute }, ""},
		"nothing waits":    {func(_ *database, s *admin.SubscriptionStatus, _ *metrics.RelayObserver) { s.Backlog = 0 }, ""},
		"the sink is down": {func(_ *database, s *admin.SubscriptionStatus, _ *metrics.RelayObserver) { s.SinkDown = time.Now() }, ""},
		"it refuses everything": {func(_ *database, _ *admin.SubscriptionStatus, o *metrics.RelayObserver) {
			o.Lease(true)
			o.Sink(relay.SinkRefusing)
		}, ""},
		"none of its jobs runs": {func(d *database, s *admin.SubscriptionStatus, _ *metrics.RelayObserver) {
			s.Backlog = 0
			d.queues[0].Running = 0
		}, "queue mails: 3 jobs are ready"},
		"its queue is paused": {func(d *database, s *admin.SubscriptionStatus, _ *metrics.RelayObserver) {
			s.Backlog = 0
			d.queues[0].Running, d.queues[0].Paused = 0, new(true)
		}, ""},
		"others' queues and all": {func(d *database, s *admin.SubscriptionStatus, _ *metrics.RelayObserver) {
			s.Backlog = 0
			d.queues[0].Running, d.queues[0].Queue = 0, "another"
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := busy()
				d.queues[0].Running = 1
				m := metrics.New(metrics.Options{Store: d, Holder: "here"})
				o := m.Relay("orders", "billing")
				m.Worker("mails")
				if problems := m.Problems(); len(problems) > 0 { // it is unknown how long this has lasted
					t.Fatal(problems)
				}
				time.Sleep(5 * time.Minute)
				c.change(d, &d.outboxes[0].Subscriptions[0], o)
				code, text := ready(m, "")
				if c.why != "" && strings.HasPrefix(c.why, "queue") { // it had run until now
					time.Sleep(5 * time.Minute)
					code, text = ready(m, "")
				}
				if c.why == "" && (code != http.StatusOK || text != "ready\n") || c.why != "" && (code != http.StatusServiceUnavailable || !strings.Contains(text, c.why)) {
					t.Errorf("%d %s", code, text)
				}
				var said struct {
					Ready    bool
					Problems []metrics.Problem
				}
				inJSON, text := ready(m, "application/json")
				if err := json.Unmarshal([]byte(text), &said); err != nil || inJSON != code || said.Ready != (c.why == "") || said.Ready != (len(said.Problems) == 0) {
					t.Errorf("%d %s, %v", inJSON, text, err)
				}
			})
		})
	}
}

// The server limits headers, and answers only the paths that it documents.
func TestServe(t *testing.T) {
	server, err := metrics.New(metrics.Options{}).Serve("127.0.0.1:0")
	must(t, err)
	defer server.Close()
	for path, code := range map[string]int{"/metrics": 200, "/healthz": 200, "/readyz": 200, "/": 404, "/debug/pprof/": 404, "/long": 431} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+server.Addr+path, nil)
		must(t, err)
		if code == 431 {
			r.Header.Set("X-Long", strings.Repeat("x", 64<<10))
		}
		answer, err := http.DefaultClient.Do(r)
		must(t, err)
		answer.Body.Close()
		if answer.StatusCode != code {
			t.Errorf("%s: %s, want %d", path, answer.Status, code)
		}
	}
	if _, err := metrics.New(metrics.Options{}).Serve(server.Addr); err == nil || !strings.Contains(err.Error(), "address already in use") && os.Getenv("GOOS") != "windows" {
		t.Errorf("the port is taken, and: %v", err)
	}
}
