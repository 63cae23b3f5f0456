package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	parts "github.com/penstock/penstock/cmd/penstock/internal/run"
	"github.com/penstock/penstock/driver"
)

// parsed are the subscriptions that penstock relay runs with these flags.
func parsed(t *testing.T, args ...string) (all []config.Subscription, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	d := &desk{t: t, open: func() driver.Database { return bare{} }}
	a := d.app(strings.NewReader(""), &stdout, &stderr)
	a.Parts = func(_ context.Context, cfg *config.Config, _ parts.Options) error {
		all = cfg.Subscriptions
		return nil
	}
	if code := runWith(t.Context(), a, append([]string{"relay", "--database-url", "postgres://127.0.0.1:1/nowhere"}, args...)); code != 0 {
		return nil, errors.New(stderr.String())
	}
	return all, nil
}

func TestRelayFlags(t *testing.T) {
	t.Chdir(t.TempDir())
	jobs, err := parsed(t, "--outbox", "orders", "--sink", "discard", "--topic", "order.*", "--topic", "refund.>", "--header", "region=eu", "--header", "test=*",
		"--max-attempts", "10", "--max-age", "24h", "--on-dead", "hold", "--lease", "3s", "--subscription", "billing", "--start", "now", "--rate", "60/1m", "--burst", "5")
	if err != nil {
		t.Fatal(err)
	}
	j := jobs[0]
	if len(jobs) != 1 || j.Outbox != "orders" || j.Name != "billing" || j.Start != config.FromNow || j.Sink.Name() != "discard" {
		t.Errorf("got %+v", jobs)
	}
	l := j.Relay
	if l.Lease != 3*time.Second || l.MaxAttempts != 10 || time.Duration(l.MaxAge) != 24*time.Hour || string(l.OnDead) != "hold" || cli.RateText(l.Rate) != "60 in 1m, 5 at once" ||
		fmt.Sprint(j.Filter.Topics) != "[order.* refund.>]" || fmt.Sprint(j.Filter.Headers) != "map[region:eu test:*]" {
		t.Errorf("got %+v", l)
	}

	jobs, err = parsed(t, "--outbox", "orders", "--sink", "discard")
	if err != nil {
		t.Fatal(err)
	}
	if jobs[0].Format != nil {
		t.Errorf("a format that nobody asked for: %+v", jobs[0].Format)
	}
	formatted, err := parsed(t, "--outbox", "orders", "--sink", "discard", "--format", "cloudevents?mode=structured")
	if err != nil || formatted[0].Format.Mode != "structured" || formatted[0].Format.Source != "/penstock/orders" {
		t.Errorf("got %+v, %v", formatted, err)
	}
	if l := jobs[0].Relay; jobs[0].Name != "default" || !jobs[0].Filter.Empty() || l.Lease != 15*time.Second || l.MaxAttempts != 25 || l.MaxAge >= 0 || l.OnDead != "continue" {
		t.Errorf("got %+v", jobs[0])
	}
	jobs, err = parsed(t, "--outbox", "orders", "--sink", "discard", "--max-attempts", "unlimited", "--max-age", "unlimited", "--on-dead", "continue")
	if err != nil || jobs[0].Relay.MaxAttempts >= 0 || jobs[0].Relay.MaxAge >= 0 || string(jobs[0].Relay.OnDead) != "continue" {
		t.Errorf("got %+v, %v", jobs, err)
	}
}

// A variable of a script that is not set must not leave out a filter silently.
func TestEmptyFlags(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, flag := range []string{"--topic", "--subscription", "--format", "--claim-check", "--rate"} {
		if jobs, err := parsed(t, "--outbox", "orders", "--sink", "discard", flag, ""); err == nil || !strings.Contains(err.Error(), flag+" is empty: ") {
			t.Errorf("%s: %+v, %v; want an error", flag, jobs, err)
		}
	}
	write(t, "penstock.yaml", "database_url: sqlite:x.db\nsubscriptions:\n  - {name: a, outbox: o, sink: discard}\n  - {name: b, outbox: o, sink: discard}\n")
	if jobs, err := parsed(t, "--subscription", ""); err == nil {
		t.Errorf("%d subscriptions run, want an error", len(jobs))
	}
}

// A size in a URL has the units of the file.
func TestSizeInURL(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, tc := range []struct{ flag, url string }{
		{"--sink", "kafka://127.0.0.1:9092?max_message_bytes=2MiB"},
		{"--sink", "sqs://sqs.eu-west-1.amazonaws.com/1/orders?max_message_bytes=512KiB"},
		{"--claim-check", "file:///srv/payloads?max_inline_bytes=64KiB"},
	} {
		if _, err := parsed(t, "--outbox", "orders", "--sink", "discard", tc.flag, tc.url); err != nil {
			t.Errorf("%s: %v", tc.url, err)
		}
	}
}

func TestAdoptFlags(t *testing.T) {
	t.Chdir(t.TempDir())
	jobs, err := parsed(t, "--adopt", "dotnet", "--table", "shop.outbox_messages", "--workers", "4", "--sink", "discard", "--topic", "OrderPlaced", "--format", "cloudevents")
	if err != nil {
		t.Fatal(err)
	}
	j := jobs[0]
	if j.Adopt == nil || j.Adopt.Preset != "dotnet" || j.Adopt.Table != "shop.outbox_messages" || j.Adopt.Workers != 4 || j.Adopt.Columns.ProcessedAt != "processed_on_utc" ||
		j.Name != "shop.outbox_messages" || j.Outbox != "" || j.Format.Source != "/penstock/shop.outbox_messages" {
		t.Errorf("got %+v", j)
	}
	if jobs, err = parsed(t, "--adopt", "debezium", "--subscription", "events", "--sink", "discard"); err != nil || jobs[0].Name != "events" || jobs[0].Adopt.Table != "outboxevent" {
		t.Errorf("got %+v, %v", jobs, err)
	}
}

func TestConfiguredJobs(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "penstock.yaml", `
database_url: sqlite:x.db
relay: {max_attempts: 7, lease: 5s}
subscriptions:
  - name: billing
    outbox: orders
    sink: discard
    filter: {topics: [order.paid], headers: {region: eu}}
    relay: {on_dead: hold, max_attempts: unlimited, max_age: 48h}
  - {name: audit, outbox: orders, sink: discard}
`)
	jobs, err := parsed(t)
	if err != nil || len(jobs) != 2 {
		t.Fatalf("%+v, %v", jobs, err)
	}
	b, a := jobs[0].Relay, jobs[1].Relay
	filter := jobs[0].Filter
	if b.Lease != 5*time.Second || b.MaxAttempts >= 0 || time.Duration(b.MaxAge) != 48*time.Hour || string(b.OnDead) != "hold" ||
		fmt.Sprint(filter.Topics, filter.Headers) != "[order.paid] map[region:eu]" {
		t.Errorf("billing: %+v", b)
	}
	if a.Lease != 5*time.Second || a.MaxAttempts != 7 || a.MaxAge >= 0 || string(a.OnDead) != "continue" || !jobs[1].Filter.Empty() {
		t.Errorf("audit: %+v", a)
	}
	if jobs, err = parsed(t, "--subscription", "audit"); err != nil || len(jobs) != 1 || jobs[0].Name != "audit" {
		t.Errorf("%+v, %v", jobs, err)
	}
}
