package relay

import (
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/cli"
	"github.com/penstock/penstock/internal/cli/clitest"
)

// parsed parses the flags of relay and returns what would run.
func parsed(t *testing.T, args ...string) ([]relayJob, error) {
	t.Helper()
	a := &cli.App{Stdout: io.Discard, Stderr: cli.NewScrubber(io.Discard), Getenv: func(string) string { return "" }}
	var f relayFlags
	flags := pflag.NewFlagSet("relay", pflag.ContinueOnError)
	f.add(flags)
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	f.given(flags)
	return jobsOf(a, f)
}

func TestRelayFlags(t *testing.T) {
	t.Chdir(t.TempDir())
	jobs, err := parsed(t, "--outbox", "orders", "--sink", "discard", "--topic", "order.*", "--topic", "refund.>", "--header", "region=eu", "--header", "test=*",
		"--max-attempts", "10", "--max-age", "24h", "--on-dead", "hold", "--lease", "3s", "--holder", "web-1", "--subscription", "billing", "--from", "now")
	if err != nil {
		t.Fatal(err)
	}
	j := jobs[0]
	if len(jobs) != 1 || j.outbox != "orders" || j.subscription != "billing" || j.holder != "web-1" || j.start != penstock.FromNow || j.sink.Name() != "discard" {
		t.Errorf("got %+v", jobs)
	}
	l := j.limits
	if l.Lease != 3*time.Second || l.MaxAttempts != 10 || l.MaxAge != 24*time.Hour || string(l.OnDead) != "hold" ||
		fmt.Sprint(l.Filter.Topics) != "[order.* refund.>]" || fmt.Sprint(l.Filter.Headers) != "map[region:eu test:*]" {
		t.Errorf("got %+v", l)
	}

	jobs, err = parsed(t, "--outbox", "orders", "--sink", "discard")
	if err != nil {
		t.Fatal(err)
	}
	if jobs[0].format != nil {
		t.Errorf("a format that nobody asked for: %+v", jobs[0].format)
	}
	formatted, err := parsed(t, "--outbox", "orders", "--sink", "discard", "--format", "cloudevents?mode=structured")
	if err != nil || formatted[0].format.Mode != "structured" || formatted[0].format.Source != "/penstock/orders" {
		t.Errorf("got %+v, %v", formatted, err)
	}
	// Zero values are the relay's defaults.
	if l := jobs[0].limits; jobs[0].subscription != "default" || !l.Filter.Empty() || l.Lease != 0 || l.MaxAttempts != 0 || l.MaxAge != 0 || l.OnDead != "" {
		t.Errorf("got %+v", jobs[0])
	}
	jobs, err = parsed(t, "--outbox", "orders", "--sink", "discard", "--max-attempts", "unlimited", "--max-age", "unlimited", "--on-dead", "continue")
	if err != nil || jobs[0].limits.MaxAttempts >= 0 || jobs[0].limits.MaxAge > 0 || string(jobs[0].limits.OnDead) != "continue" {
		t.Errorf("got %+v, %v", jobs, err)
	}
}

func TestAdoptFlags(t *testing.T) {
	t.Chdir(t.TempDir())
	jobs, err := parsed(t, "--adopt", "dotnet", "--table", "shop.outbox_messages", "--workers", "4", "--sink", "discard", "--topic", "OrderPlaced", "--format", "cloudevents")
	if err != nil {
		t.Fatal(err)
	}
	j := jobs[0]
	if j.adopt == nil || j.adopt.Preset != "dotnet" || j.adopt.Table != "shop.outbox_messages" || j.adopt.Workers != 4 || j.adopt.Columns.ProcessedAt != "processed_on_utc" ||
		j.subscription != "shop.outbox_messages" || j.outbox != "" || j.format.Source != "/penstock/shop.outbox_messages" {
		t.Errorf("got %+v", j)
	}
	if jobs, err = parsed(t, "--adopt", "debezium", "--subscription", "events", "--sink", "discard"); err != nil || jobs[0].subscription != "events" || jobs[0].adopt.Table != "outboxevent" {
		t.Errorf("got %+v, %v", jobs, err)
	}
}

func TestConfiguredJobs(t *testing.T) {
	t.Chdir(t.TempDir())
	clitest.Write(t, "penstock.yaml", `
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
	b, a := jobs[0].limits, jobs[1].limits
	if b.Lease != 5*time.Second || b.MaxAttempts >= 0 || b.MaxAge != 48*time.Hour || string(b.OnDead) != "hold" ||
		fmt.Sprint(b.Filter.Topics, b.Filter.Headers) != "[order.paid] map[region:eu]" {
		t.Errorf("billing: %+v", b)
	}
	if a.Lease != 5*time.Second || a.MaxAttempts != 7 || a.MaxAge != 0 || string(a.OnDead) != "continue" || !a.Filter.Empty() {
		t.Errorf("audit: %+v", a)
	}
	if jobs, err = parsed(t, "--subscription", "audit"); err != nil || len(jobs) != 1 || jobs[0].subscription != "audit" {
		t.Errorf("%+v, %v", jobs, err)
	}
}

// Workers are relays of their own. Nothing is connected to before they run.
func TestOneRelayPerWorker(t *testing.T) {
	t.Chdir(t.TempDir())
	for workers, want := range map[string]int{"0": 1, "1": 1, "3": 3} {
		jobs, err := parsed(t, "--adopt", "dotnet", "--workers", workers, "--sink", "discard")
		if err != nil {
			t.Fatal(err)
		}
		a := &cli.App{DatabaseURL: "postgres://127.0.0.1:1/nowhere", Stderr: cli.NewScrubber(io.Discard), Getenv: func(string) string { return "" }}
		all, end, err := runnersOf(t.Context(), a, &jobs[0], nil, slog.New(slog.DiscardHandler), nil)
		if err != nil || len(all) != want {
			t.Errorf("--workers %s: %d relays, %v; want %d", workers, len(all), err, want)
			continue
		}
		end()
	}
}
