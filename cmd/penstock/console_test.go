package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/cli"
)

var consoleURL = regexp.MustCompile(`http://127\.0\.0\.1:\d+/\w*/?`)

// address is a log that tells where the console is.
type address struct{ url chan string }

func (a address) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "serving the console") || strings.Contains(string(p), "The console is at") {
		a.url <- consoleURL.FindString(string(p))
	}
	return len(p), nil
}

// consoleOf runs a command line until its console is served.
func consoleOf(t *testing.T, a *cli.App, log address, args ...string) (url string, stop func() int) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	ended := make(chan int, 1)
	interrupt := cancel
	a.OnSignals = func(first, _ func()) func() {
		interrupt = first
		return func() {}
	}
	go func() { ended <- runWith(ctx, a, args) }()
	select {
	case url = <-log.url:
	case code := <-ended:
		cancel()
		t.Fatalf("penstock %q ends with %d", args, code)
	}
	return url, func() int {
		interrupt()
		defer cancel()
		return <-ended
	}
}

func get(t *testing.T, url, token string) (int, string) {
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.SetBasicAuth("read", token)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// The console serves whoever has the token, and has PostgreSQL end what takes too long.
func TestConsole(t *testing.T) {
	eachStore(t, func(t *testing.T, d *desk) {
		if strings.HasSuffix(t.Name(), "/memory") {
			return // it has no console
		}
		d.must("queue", "create", "mails")
		d.outbox("orders", slices.Repeat([]penstock.Message{{Topic: "t", Payload: []byte("x")}}, 1001)...)
		source, err := d.store.Subscribe(t.Context(), penstock.Subscribe{Outbox: "orders", Subscription: "billing", Holder: "r"})
		if err == nil {
			err = source.Close(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		serve := func(token string, args ...string) (ask func(path, token string) (int, string), stop func()) {
			log := address{make(chan string, 1)}
			a := d.app(strings.NewReader(""), io.Discard, log)
			env := a.Getenv
			a.Getenv = func(name string) string {
				switch name {
				case "PENSTOCK_CONSOLE_READ_TOKEN":
					return token
				case "PENSTOCK_CONSOLE_OPERATE_TOKEN":
					return ""
				}
				return env(name)
			}
			url, end := consoleOf(t, a, log, append([]string{"console", "--listen", "127.0.0.1:0"}, args...)...)
			return func(path, token string) (int, string) { return get(t, url+path, token) }, func() { end() }
		}
		waits := "at least 1,000 messages wait"
		if strings.HasSuffix(t.Name(), "/sqlite") {
			waits = "1,001 messages wait" // it counts all
		}
		ask, stop := serve("", "--base-path", "/ops")
		for path, want := range map[string]string{"": "mails", "api/v1/status": `"queue":"mails"`, "api/v1/findings": waits} {
			if code, text := ask(path, ""); code != 200 || !strings.Contains(text, want) {
				t.Errorf("%s: %d %s", path, code, text)
			}
		}
		stop()
		ask, stop = serve("secret")
		if code, _ := ask("", ""); code != http.StatusUnauthorized {
			t.Errorf("without the token: %d", code)
		}
		if code, _ := ask("", "secret"); code != 200 {
			t.Errorf("with the token: %d", code)
		}
		stop()
		var stderr strings.Builder
		a := d.app(strings.NewReader(""), io.Discard, &stderr)
		a.Getenv = func(string) string { return "" }
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if code := runWith(ctx, a, []string{"console", "--listen", "0.0.0.0:0", "--database-url", "sqlite:" + t.TempDir() + "/other.db"}); code != 2 || !strings.Contains(stderr.String(), "PENSTOCK_CONSOLE_OPERATE_TOKEN") {
			t.Errorf("for other machines without a token: %d %s", code, stderr.String())
		}
	})
}

// A relay, a worker and the demo serve the console beside their work, the relay also where the file says so.
func TestConsoleBesideWork(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	d := urlDesk(t, sqliteFile(t))
	d.outbox("orders")
	d.must("queue", "create", "mails")
	file := yaml(t, "database_url: sqlite:replaced.db\nconsole: {listen: '127.0.0.1:0', title: shop, base_path: /ops}\nsubscriptions: [{name: billing, outbox: orders, sink: discard}]")
	for _, c := range []struct {
		want string
		args []string
	}{
		{`"subscription":"billing"`, []string{"relay", "--outbox", "orders", "--subscription", "billing", "--sink", "discard", "--console-listen", "127.0.0.1:0"}},
		{`"subscription":"billing"`, []string{"relay", "--config", file}},
		{`"queue":"mails"`, []string{"work", "mails", "--exec", "true", "--console-listen", "127.0.0.1:0"}},
		{`"subscription":"demo"`, []string{"demo", "--console=127.0.0.1:0", "--limit", "5", "--log-level", "info"}},
	} {
		log := address{make(chan string, 2)}
		a := d.app(strings.NewReader(""), io.Discard, log)
		a.Getenv = func(string) string { return "" }
		if c.args[0] == "demo" {
			a.Open = nil // a database of its own
		} else if c.args[1] != "--config" {
			c.args = append(c.args, "--database-url", "sqlite:replaced.db")
		}
		url, stop := consoleOf(t, a, log, c.args...)
		for deadline := time.Now().Add(30 * time.Second); ; { // the relay is yet to subscribe
			code, text := get(t, url+"api/v1/status", "")
			if code == http.StatusOK && strings.Contains(text, c.want) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%q: %d %s", c.args, code, text)
			}
		}
		if _, page := get(t, url, ""); c.args[1] == "--config" && (!strings.Contains(page, "<title>Overview – shop") || !strings.HasSuffix(url, "/ops/")) {
			t.Errorf("of the file's settings there is nothing at %s: %s", url, page)
		}
		of := "outboxes/orders/subscriptions/billing"
		if c.args[0] == "work" {
			of = "queues/mails"
		}
		if _, text := get(t, url+"api/v1/"+of+"/latency", ""); !strings.Contains(text, fmt.Sprintf(`"known":%v`, c.args[0] != "demo")) {
			t.Errorf("%q says of latencies: %s", c.args, text)
		}
		if code := stop(); code != cli.ExitOK {
			t.Errorf("%q ends with %d", c.args, code)
		}
	}
	var stderr strings.Builder
	a := d.app(strings.NewReader(""), io.Discard, &stderr)
	a.Getenv = func(string) string { return "" }
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	code := runWith(ctx, a, []string{"work", "mails", "--exec", "true", "--console-listen", "0.0.0.0:0", "--database-url", "sqlite:replaced.db"})
	if code != cli.ExitUsage || !strings.Contains(stderr.String(), "PENSTOCK_CONSOLE_OPERATE_TOKEN") {
		t.Errorf("for other machines without a token: %d %s", code, stderr.String())
	}
}
