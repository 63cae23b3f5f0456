package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/internal/test/testserver"
)

type outcome struct {
	stdout, stderr string
	code           int
}

// benchCLI runs the command line on a database, "" for none.
func benchCLI(t *testing.T, url string, args ...string) outcome {
	t.Helper()
	t.Chdir(t.TempDir())
	return benchIn(t.Context(), url, args...)
}

// benchIn is benchCLI where the test is.
func benchIn(ctx context.Context, url string, args ...string) outcome {
	var stdout, stderr bytes.Buffer
	a := &app{stdout: &terminal.Results{W: &stdout}, stderr: terminal.NewScrubber(&stderr), getenv: func(name string) string {
		if name == "PENSTOCK_DATABASE_URL" {
			return url
		}
		return ""
	}}
	code := a.run(ctx, args)
	return outcome{stdout.String(), stderr.String(), code}
}

func TestBenchWebhook(t *testing.T) {
	args := strings.Fields("webhook --messages 100 --keys 10 --delay 1ms")
	if got := benchCLI(t, "", args...); got.code != terminal.ExitOK || !strings.Contains(got.stdout, "ratio") || got.stderr != "" {
		t.Fatalf("exit %d, %q, %q", got.code, got.stdout, got.stderr)
	}
	got := benchCLI(t, "", append(args, "--json")...)
	var object struct {
		Settings             struct{ Keys int }
		Client, Relay, Ratio float64
	}
	if err := json.Unmarshal([]byte(got.stdout), &object); err != nil || object.Settings.Keys != 10 || object.Client <= 0 || object.Relay <= 0 || object.Ratio <= 0 {
		t.Errorf("exit %d, %q, %q: %v", got.code, got.stdout, got.stderr, err)
	}
}

// Interrupted in its last phase, a benchmark shows its measurements before.
func TestBenchInterrupted(t *testing.T) {
	for _, flags := range [][]string{nil, {"--json"}} {
		ctx, interrupt := context.WithCancel(t.Context())
		var sent atomic.Int64
		sink := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			if sent.Add(1) > 100 { // more than the backlog: the latency phase has begun
				interrupt()
			}
		}))
		defer sink.Close()
		got := benchIn(ctx, "", append([]string{"relay", "--relay-only", "--messages", "20", "--latency-for", "1h", "--rate", "100", "--sink", sink.URL + "#allow_private=true"}, flags...)...)
		var measured map[string]any
		if err := json.Unmarshal([]byte(got.stdout), &measured); err != nil || got.code != terminal.ExitInterrupted {
			t.Fatalf("exit %d, %q, %q: %v", got.code, got.stdout, got.stderr, err)
		}
		if rate, _ := measured["relay"].(float64); rate <= 0 || measured["latency_ms"] != nil || measured["read_ceiling"] != nil {
			t.Errorf("it shows %v, want the relay's rate, and nothing of what was not measured", measured)
		}
		if flags == nil && (!strings.Contains(got.stderr, "What was measured until then") || !strings.HasSuffix(got.stderr, "bench: interrupted\n")) {
			t.Errorf("stderr is %q", got.stderr)
		}
	}
}

func TestBenchQueuesMisused(t *testing.T) {
	for args, want := range map[string]string{
		"fifo-lifo":                              "needs PostgreSQL: pass --database-url postgres://… or mysql://…",
		"tombstones --database-url sqlite:x":     "needs PostgreSQL",
		"queue --plot chart.gif":                 "neither .svg nor .png",
		"fifo-lifo --rate -1":                    "--arrivals=false",
		"fifo-lifo --order random":               "expected fifo or lifo",
		"fifo-lifo --mode both":                  "expected call, tx or carried",
		"fifo-lifo --duration 0":                 "expected 100ms or more",
		"fifo-lifo --arrivals=false --preload 0": "there would be no jobs",
		"tombstones --events 1":                  "--events is 1, expected 10 or more",
		"queue --ops peek":                       `"peek" cannot be measured`,
		"queue --batches 0":                      "--batches is 0, expected 1 to 10000",
		"steady --rate 0":                        "expected 1 or more",
		"processor --sink nats://x":              "must be an amqp:// URL",
		"processor --batch 0":                    "expected 1 to 10000",
		"processor --payload 2500":               "expected 26 to 2000",
		"processor":                              "needs PostgreSQL",
		"churn":                                  "needs PostgreSQL",
		"churn --late 2m":                        "before the duration is over",
		"churn --batch 0":                        "--batch is 0, expected 1 to 10000",
		"churn --margin 0":                       "expected 1ms or more",
		"buffering":                              "needs PostgreSQL",
		"buffering --publishes 0":                "expected 100 or more",
		"buffering --callers 0":                  "1 to 10000",
		"buffering --delays -1ms":                "expected 0s or more",
		"webhook --keys 0":                       "--keys is 0, expected 1 to 4096",
		"yugabyte-simulator":                     "needs PostgreSQL",
		"yugabyte-simulator --runs relay":        `"relay" cannot be run`,
		"yugabyte-simulator --flush -1ms":        "--flush is -1ms, expected 0s or more",
		"yugabyte-simulator --margin 0":          "--margin is 0s, expected 1ms or more",
		"yugabyte-simulator --rows 1":            "expected 10 or more",
		"walk":                                   `"walk" is not a verb of bench: did you mean all or park?`,
		"relay --walk":                           "unknown flag: --walk: see bench relay --help",
		"relay --profile odd":                    `"odd" is none of auto, postgres and portable`,
		"steady --profile portable --database-url postgres://127.0.0.1:1/x": "not the portable profile",
	} {
		got := benchCLI(t, "", strings.Fields(args)...)
		if got.code != terminal.ExitUsage || !strings.Contains(got.stderr, want) || got.stdout != "" {
			t.Errorf("%s: exit %d, %q, want %q in it", args, got.code, got.stderr, want)
		}
	}
}

// A script knows the cause by the exit code, and a person by one line that names the next step, but no password.
func TestBenchFails(t *testing.T) {
	for args, want := range map[string]outcome{
		"relay --database-url postgres://app:hunter2@127.0.0.1:1/shop":  {stderr: ": is PostgreSQL running there", code: terminal.ExitDatabase},
		"relay --sink nats://app:hunter2@127.0.0.1:1 --log-level error": {stderr: ": check that the server is up", code: terminal.ExitBroker},
	} {
		got := benchCLI(t, "", strings.Fields(args)...)
		if got.code != want.code || !strings.HasPrefix(got.stderr, "bench: ") || !strings.Contains(got.stderr, want.stderr) || strings.Contains(got.stderr, "hunter2") || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("%s: exit %d, %q", args, got.code, got.stderr)
		}
	}
}

// Each shows a table or one JSON object, and draws a chart.
func TestBenchQueues(t *testing.T) {
	url := testserver.Database(t, testserver.PostgresURL(t))
	for name, c := range map[string]struct {
		args string
		keys []string // of the JSON object
	}{
		"fifo-lifo":  {"fifo-lifo --preload 300 --arrivals=false --workers 3 --plot CHART", []string{"intervals", "first_p50_ms", "last_p50_ms", "first_p99_ms", "last_p99_ms", "flatness", "jobs_per_second", "baseline", "ratio", "ratio_at_start", "ratio_to_start"}},
		"tombstones": {"tombstones --events 500 --fetches 3 --pin", []string{"settings", "cases", "worst_ratio"}},
		"queue":      {"queue --jobs 20 --batches 1,5 --workers 2 --ops insert,dequeue", []string{"settings", "cells"}},
		"steady":     {"steady --rate 100 --duration 300ms --plot CHART", []string{"latency_ms", "by_hand"}},
		"processor":  {"processor --rows 100 --batch 50 --sink " + testserver.RabbitMQURL(t), []string{"rungs", "ceiling", "adopted", "outbox", "ratios"}},
		"buffering":  {"buffering --publishes 200 --duration 100ms --callers 1,2 --delays 1ms", []string{"flushes", "ratio_to_bulk", "speedup_over_single", "ways", "delayed", "writers"}},
		"churn":      {"churn --duration 1s --batch 50 --margin 100ms --pin --plot CHART", []string{"by_hand", "adopted", "outbox", "adopted_over_by_hand", "outbox_over_by_hand"}},
	} {
		t.Run(name, func(t *testing.T) {
			chart := filepath.Join(t.TempDir(), "chart.svg")
			args := strings.Fields(strings.Replace(c.args, "CHART", chart, 1))
			if testseed.Long() || name == "fifo-lifo" { // one prints its table here, each in make soak
				if got := benchCLI(t, url, args...); got.code != terminal.ExitOK || len(strings.Split(got.stdout, "\n")) < 3 || got.stderr != "" {
					t.Fatalf("exit %d, %q, %q", got.code, got.stdout, got.stderr)
				}
			}
			got := benchCLI(t, url, append(args, "--json")...)
			if text, err := os.ReadFile(chart); strings.Contains(c.args, "CHART") && (err != nil || !bytes.Contains(text, []byte("</svg>"))) {
				t.Errorf("no chart: %v", err)
			}
			var object map[string]any
			if err := json.Unmarshal([]byte(got.stdout), &object); err != nil || got.code != terminal.ExitOK {
				t.Fatalf("exit %d, %q, %q: %v", got.code, got.stdout, got.stderr, err)
			}
			for _, key := range c.keys {
				if _, ok := object[key]; !ok {
					t.Errorf("the result has no %q: %s", key, got.stdout)
				}
			}
		})
	}
}

// All of them are on one page that loads nothing, and in a file of JSON; what has no server is left out, and said to be.
func TestBenchAll(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "report")
	args := []string{"all", "--report", dir, "--run", "webhook --messages 100 --keys 10 --delay 1ms", "--run", "steady --rate 100 --duration 300ms", "--run", "processor"}
	pages := map[string]string{"": "sqlite"}
	if url := testserver.PostgresURL(t); url != "" {
		pages[testserver.Database(t, url)] = "postgres"
	}
	for url, on := range pages {
		got := benchCLI(t, url, args...)
		if got.code != terminal.ExitOK || !strings.Contains(got.stdout, "ratio") {
			t.Fatalf("%s: exit %d, %q, %q", on, got.code, got.stdout, got.stderr)
		}
		page, err := os.ReadFile(filepath.Join(dir, "index.html"))
		if err != nil {
			t.Fatal(err)
		}
		wanted := []string{"check.lost", "net/http from memory", "Cores", "it needs RabbitMQ"}
		if on == "sqlite" {
			wanted[3] = "it needs PostgreSQL"
		} else {
			wanted = append(wanted, "PostgreSQL fsync", "<svg", "work.Run", ">P99 MS</th>")
		}
		for _, want := range wanted {
			if !strings.Contains(string(page), want) {
				t.Errorf("%s: the page has no %q", on, want)
			}
		}
		for _, part := range regexp.MustCompile(`(?i)(?:src|href)="[^#"][^"]*"|url\(|@import|<script`).FindAllString(string(page), -1) {
			t.Errorf("%s: the page loads %s", on, part)
		}
		text, err := os.ReadFile(filepath.Join(dir, "report.json"))
		var r struct {
			Machine    []struct{ Name, Is string }
			Benchmarks []struct {
				Command, Failed string
				LeftOut         string `json:"left_out"`
				Result          map[string]any
			}
		}
		if err := errors.Join(err, json.Unmarshal(text, &r)); err != nil || len(r.Machine) < 3 || len(r.Benchmarks) != 3 || r.Benchmarks[0].Result["ratio"] == nil || (r.Benchmarks[1].Result["latency_ms"] == nil) != (on == "sqlite") || r.Benchmarks[2].LeftOut == "" {
			t.Errorf("%s: %v, %s", on, err, text)
		}
	}
	for args, want := range map[string]string{"all --run walk": `"walk" is no benchmark`, "all relay": "all"} {
		if got := benchCLI(t, "", strings.Fields(args)...); got.code != terminal.ExitUsage || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: exit %d, %q", args, got.code, got.stderr)
		}
	}
	if got := benchCLI(t, "", "all", "--run", "webhook --keys 0"); got.code == terminal.ExitOK || !strings.Contains(got.stderr, "webhook: ") {
		t.Errorf("one that fails: exit %d, %q", got.code, got.stderr)
	}
}
