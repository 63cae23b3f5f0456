package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/penstock/penstock"
)

// jobsOf parses the flags of relay and returns what would run.
func jobsOf(t *testing.T, args ...string) ([]relayJob, error) {
	t.Helper()
	a := &app{stdout: io.Discard, stderr: &scrubber{w: io.Discard}, getenv: func(string) string { return "" }}
	var f relayFlags
	flags := pflag.NewFlagSet("relay", pflag.ContinueOnError)
	f.add(flags)
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	f.given(flags)
	return a.relayJobs(f)
}

func TestRelayFlags(t *testing.T) {
	t.Chdir(t.TempDir())
	jobs, err := jobsOf(t, "--outbox", "orders", "--sink", "discard", "--topic", "order.*", "--topic", "refund.>", "--header", "region=eu", "--header", "test=*",
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

	jobs, err = jobsOf(t, "--outbox", "orders", "--sink", "discard")
	if err != nil {
		t.Fatal(err)
	}
	if jobs[0].format != nil {
		t.Errorf("a format that nobody asked for: %+v", jobs[0].format)
	}
	formatted, err := jobsOf(t, "--outbox", "orders", "--sink", "discard", "--format", "cloudevents?mode=structured")
	if err != nil || formatted[0].format.Mode != "structured" || formatted[0].format.Source != "/penstock/orders" {
		t.Errorf("got %+v, %v", formatted, err)
	}
	// Zero values are the relay's defaults.
	if l := jobs[0].limits; jobs[0].subscription != "default" || !l.Filter.Empty() || l.Lease != 0 || l.MaxAttempts != 0 || l.MaxAge != 0 || l.OnDead != "" {
		t.Errorf("got %+v", jobs[0])
	}
	jobs, err = jobsOf(t, "--outbox", "orders", "--sink", "discard", "--max-attempts", "unlimited", "--max-age", "unlimited", "--on-dead", "continue")
	if err != nil || jobs[0].limits.MaxAttempts >= 0 || jobs[0].limits.MaxAge > 0 || string(jobs[0].limits.OnDead) != "continue" {
		t.Errorf("got %+v, %v", jobs, err)
	}
}

func TestRelayFlagsThatAreRefused(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "penstock.yaml", "database_url: sqlite:x.db\nsubscriptions:\n  - {name: a, outbox: o, sink: discard}\n")
	for args, want := range map[string]string{
		"--topic a>b":                           "wildcard inside a word",
		"--topic >.a":                           "with > before the end",
		"--header region":                       "write NAME=VALUE",
		"--header =eu":                          "has an empty name",
		"--header region=eu --header region=us": "given with two values",
		"--max-attempts 0":                      "write a whole number from 1, or unlimited",
		"--max-attempts many":                   "write a whole number from 1, or unlimited",
		"--max-age soon":                        "or unlimited",
		"--on-dead ignore":                      "continue or hold",
		"--lease 0s":                            "--lease is 0",
		"--lease -3s":                           "use a number with",
		"--format avro":                         "--format: kind is \"avro\": write raw, cloudevents or debezium",
		"--format cloudevents?prefix=ce_":       "--format: prefix is \"ce_\"",
	} {
		cli(t, append([]string{"relay", "--outbox", "o", "--sink", "discard"}, strings.Fields(args)...)...).wants(t, exitUsage, want)
	}
	for _, args := range []string{"--topic a", "--header a=b", "--max-attempts 3", "--max-age 1h", "--on-dead hold", "--lease 3s", "--from now", "--format raw", "--previous", "--table t", "--workers 2"} {
		cli(t, append([]string{"relay"}, strings.Fields(args)...)...).wants(t, exitUsage, "goes with --outbox or --adopt, and --sink: with a configuration file, write it there")
	}
}

func TestAdoptFlags(t *testing.T) {
	t.Chdir(t.TempDir())
	jobs, err := jobsOf(t, "--adopt", "dotnet", "--table", "shop.outbox_messages", "--workers", "4", "--sink", "discard", "--topic", "OrderPlaced", "--format", "cloudevents")
	if err != nil {
		t.Fatal(err)
	}
	j := jobs[0]
	if j.adopt == nil || j.adopt.Preset != "dotnet" || j.adopt.Table != "shop.outbox_messages" || j.adopt.Workers != 4 || j.adopt.Columns.ProcessedAt != "processed_on_utc" ||
		j.subscription != "shop.outbox_messages" || j.outbox != "" || j.format.Source != "/penstock/shop.outbox_messages" {
		t.Errorf("got %+v", j)
	}
	if jobs, err = jobsOf(t, "--adopt", "debezium", "--subscription", "events", "--sink", "discard"); err != nil || jobs[0].subscription != "events" || jobs[0].adopt.Table != "outboxevent" {
		t.Errorf("got %+v, %v", jobs, err)
	}
	for args, want := range map[string]string{
		"--adopt dotnet": "--adopt is given without --sink",
		"--adopt dotnet --outbox o --sink discard":                 "--outbox and --adopt are both given",
		"--outbox o --table t --sink discard":                      "--table goes with --adopt",
		"--outbox o --workers 2 --sink discard":                    "--workers goes with --adopt",
		"--adopt java --sink discard":                              `--adopt: preset is "java": choose one of debezium`,
		"--adopt dotnet --table a.b.c --sink discard":              "--adopt: table has 3 parts",
		"--adopt dotnet --workers 99 --sink discard":               "--adopt: workers is 99",
		"--adopt dotnet --workers -1 --sink discard":               "--adopt: workers is -1",
		"--adopt dotnet --from now --sink discard":                 "--from now has no meaning with --adopt",
		"--adopt dotnet --sink queue:emails":                       "only an outbox is forwarded",
		"--adopt dotnet --sink discard --previous --workers 2":     "--previous is given with several workers",
		"--adopt dotnet --sink discard --database-url sqlite:a.db": "tables are adopted in PostgreSQL, and this database is SQLite",
	} {
		cli(t, append([]string{"relay"}, strings.Fields(args)...)...).wants(t, exitUsage, want)
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
	jobs, err := jobsOf(t)
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
	if jobs, err = jobsOf(t, "--subscription", "audit"); err != nil || len(jobs) != 1 || jobs[0].subscription != "audit" {
		t.Errorf("%+v, %v", jobs, err)
	}
}

// The log says once that a process begins, and once that it has the lease.
func TestRelayLogsItsStartOnce(t *testing.T) {
	d := memoryDesk(t)
	d.outbox("orders", numbered(3)...)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	log := &notifyingBuffer{wait: "took the lease", found: cancel}
	a := &app{
		stdin: strings.NewReader(""), stdout: io.Discard, stderr: &scrubber{w: log}, getenv: func(string) string { return "sqlite:replaced.db" },
		open: func(context.Context, string, string) (penstock.Store, error) { return d.open(), nil },
	}
	if code := a.run(ctx, []string{"relay", "--outbox", "orders", "--sink", "discard", "--topic", "t"}); code != exitInterrupted {
		t.Errorf("exit code %d", code)
	}
	for _, line := range []string{"msg=relaying", "took the lease", "msg=stopped"} {
		if n := bytes.Count(log.written.Bytes(), []byte(line)); n != 1 {
			t.Errorf("%s is there %d times in %s", line, n, log.written.String())
		}
	}
}

// Workers are relays of their own. Nothing is connected to before they run.
func TestOneRelayPerWorker(t *testing.T) {
	t.Chdir(t.TempDir())
	for workers, want := range map[string]int{"0": 1, "1": 1, "3": 3} {
		jobs, err := jobsOf(t, "--adopt", "dotnet", "--workers", workers, "--sink", "discard")
		if err != nil {
			t.Fatal(err)
		}
		a := &app{databaseURL: "postgres://127.0.0.1:1/nowhere", stderr: &scrubber{w: io.Discard}, getenv: func(string) string { return "" }}
		all, end, err := a.runners(t.Context(), &jobs[0], nil, slog.New(slog.DiscardHandler), nil)
		if err != nil || len(all) != want {
			t.Errorf("--workers %s: %d relays, %v; want %d", workers, len(all), err, want)
			continue
		}
		end()
	}
}
