package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/terminal"
)

var consoleURL = regexp.MustCompile(`http://127\.0\.0\.1:\d+/\w*/?`)

// address is a log that notes the console's address.
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

// get asks again for up to a minute while the answer is 503: on a busy machine one reading may take longer than the console
// or PostgreSQL gives it.
func get(t *testing.T, url, token string) (code int, text string) {
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if code, text = getOnce(t, url, token); code != http.StatusServiceUnavailable || time.Now().After(end) {
			return code, text
		}
	}
}

func getOnce(t *testing.T, url, token string) (int, string) {
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

// The console serves clients that have the token, and PostgreSQL ends statements that take too
// long.
func TestConsole(t *testing.T) {
	eachStore(t, func(t *testing.T, d *desk) {
		d.must("queue", "create", "mails")
		d.outbox("orders", slices.Repeat([]penstock.Message{{Topic: "t", Payload: []byte("x")}}, 1001)...)
		source, err := d.store.Subscribe(t.Context(), driver.Subscribe{Outbox: "orders", Subscription: "billing", Holder: "r"})
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
			waits = "1,001 messages wait" // it counts everything
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

// A relay, a worker and the demo serve the console while they run. The relay also does so if the file says
// so.
func TestConsoleDuringWork(t *testing.T) {
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
			a.Open = nil // a separate database
		} else if c.args[1] != "--config" {
			c.args = append(c.args, "--database-url", "sqlite:replaced.db")
		}
		url, stop := consoleOf(t, a, log, c.args...)
		for deadline := time.Now().Add(2 * time.Minute); ; { // the relay has not subscribed yet
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
		if _, text := get(t, url+"api/v1/"+of+"/latency", ""); !strings.Contains(text, `"known":true`) {
			t.Errorf("%q says of latencies: %s", c.args, text)
		}
		if code := stop(); code != terminal.ExitOK {
			t.Errorf("%q ends with %d", c.args, code)
		}
	}
	var stderr strings.Builder
	a := d.app(strings.NewReader(""), io.Discard, &stderr)
	a.Getenv = func(string) string { return "" }
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	code := runWith(ctx, a, []string{"work", "mails", "--exec", "true", "--console-listen", "0.0.0.0:0", "--database-url", "sqlite:replaced.db"})
	if code != terminal.ExitUsage || !strings.Contains(stderr.String(), "PENSTOCK_CONSOLE_OPERATE_TOKEN") {
		t.Errorf("for other machines without a token: %d %s", code, stderr.String())
	}
}

// A token that does not identify a role, or that other machines could guess, is refused.
func TestConsoleTokens(t *testing.T) {
	long := strings.Repeat("k", 32)
	for _, one := range []struct{ listen, read, operate, want string }{
		{"127.0.0.1:0", "same", "same", "its own token"},
		{"0.0.0.0:0", long, long, "its own token"},
		{"0.0.0.0:0", "short", "", "fewer than 32"},
		{"0.0.0.0:0", long, "short", "fewer than 32"},
	} {
		stderr := &strings.Builder{}
		a := cli.New(strings.NewReader(""), io.Discard, stderr)
		a.Getenv = func(name string) string {
			return map[string]string{"PENSTOCK_CONSOLE_READ_TOKEN": one.read, "PENSTOCK_CONSOLE_OPERATE_TOKEN": one.operate}[name]
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		code := runWith(ctx, a, []string{"console", "--listen", one.listen, "--database-url", sqliteFile(t)})
		cancel()
		if said := stderr.String(); code != 2 || !strings.Contains(said, one.want) || strings.Contains(said, one.read+" ") || strings.Contains(said, long) {
			t.Errorf("%+v: %d %s", one, code, said)
		}
	}
}

// Several databases are on one list. Each is below its own path with its own API. Roles and audit are common to all.
func TestConsoleOfSeveralDatabases(t *testing.T) {
	t.Run("flags", func(t *testing.T) {
		consoleOfSeveral(t, func(first, second string) []string {
			return []string{"--database-url", first, "--database-url", second}
		})
	})
	t.Run("file", func(t *testing.T) {
		consoleOfSeveral(t, func(first, second string) []string {
			return []string{"--config", yaml(t, fmt.Sprintf("console: {databases: [%q, %q]}\n", first, second))}
		})
	})
}

func consoleOfSeveral(t *testing.T, databases func(first, second string) []string) {
	t.Helper()
	one, two := urlDesk(t, sqliteFile(t)), urlDesk(t, sqliteFile(t))
	one.must("queue", "create", "mails")
	two.must("queue", "create", "bills")
	dir := t.TempDir()
	log, lines := address{make(chan string, 1)}, &strings.Builder{}
	var writing sync.Mutex
	a := cli.New(strings.NewReader(""), io.Discard, writer(func(p []byte) (int, error) {
		writing.Lock()
		defer writing.Unlock()
		lines.Write(p)
		return log.Write(p)
	}))
	a.Getenv = func(name string) string {
		return map[string]string{"PENSTOCK_CONSOLE_READ_TOKEN": "secret", "PENSTOCK_CONSOLE_OPERATE_TOKEN": "more"}[name]
	}
	a.Open = func(_ context.Context, url, _ string, _ *slog.Logger) (driver.Database, error) {
		if strings.Contains(url, "/a/") {
			return one.open(), nil
		}
		return two.open(), nil
	}
	url, stop := consoleOf(t, a, log, append([]string{"console", "--listen", "127.0.0.1:0", "--base-path", "/ops", "--title", "all shops"}, databases("sqlite:"+dir+"/a/shop.db", "sqlite:"+dir+"/b/shop.db")...)...)
	for path, want := range map[string]string{"": `href="/ops/shop-2/"`, "shop/": "mails", "shop-2/": "bills", "shop-2/queues/bills": "All databases", "shop/api/v1/status": `"queue":"mails"`,
		"shop-2/api/v1/openapi.json": "3.1.0", "static/console.css": "--fg", "shop-2/static/app.js": "fetch"} {
		if code, text := get(t, url+path, "secret"); code != 200 || !strings.Contains(text, want) {
			t.Errorf("%q: %d without %q: %s", path, code, want, text)
		}
		if code, _ := get(t, url+path, ""); code != http.StatusUnauthorized {
			t.Errorf("%q without the token: %d", path, code)
		}
	}
	if code, _ := get(t, url+"shop-3/", "secret"); code != http.StatusNotFound {
		t.Errorf("a database that is not there: %d", code)
	}
	for user, want := range map[string]int{"read": http.StatusForbidden, "operate": http.StatusOK} {
		r, err := http.NewRequestWithContext(t.Context(), "POST", url+"shop-2/api/v1/queues/bills/settings", strings.NewReader(`{"paused": true}`))
		if err != nil {
			t.Fatal(err)
		}
		r.SetBasicAuth(user, map[string]string{"read": "secret", "operate": "more"}[user])
		r.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("pausing as %s: %s", user, answer.Status)
		}
	}
	stop()
	writing.Lock()
	defer writing.Unlock()
	if !strings.Contains(lines.String(), "did settings") || !strings.Contains(lines.String(), "database=shop-2") {
		t.Errorf("the audit is %s", lines)
	}
	if status := two.must("status", "--json"); !strings.Contains(status, `"paused":true`) {
		t.Errorf("the queue is not paused: %s", status)
	}
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }
