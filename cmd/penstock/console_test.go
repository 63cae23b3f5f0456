package main

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

var consoleURL = regexp.MustCompile(`http://127\.0\.0\.1:\d+/\w*/?`)

// address is a log that tells where the console is.
type address struct{ url chan string }

func (a address) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "serving the console") {
		a.url <- consoleURL.FindString(string(p))
	}
	return len(p), nil
}

// The console serves whoever has the token, and has PostgreSQL end what takes too long.
func TestConsole(t *testing.T) {
	eachStore(t, func(t *testing.T, d *desk) {
		if strings.HasSuffix(t.Name(), "/memory") {
			return // it has no console
		}
		d.must("queue", "create", "mails")
		serve := func(token string, args ...string) (ask func(path, token string) (int, string), stop func()) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			log := address{make(chan string, 1)}
			ended := make(chan int, 1)
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
			go func() { ended <- runWith(ctx, a, append([]string{"console", "--listen", "127.0.0.1:0"}, args...)) }()
			var url string
			select {
			case url = <-log.url:
			case code := <-ended:
				cancel()
				t.Fatalf("penstock console %q ends with %d", args, code)
			}
			return func(path, token string) (int, string) {
				r, err := http.NewRequestWithContext(t.Context(), "GET", url+path, nil)
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
			}, func() { cancel(); <-ended }
		}
		ask, stop := serve("", "--base-path", "/ops")
		for path, want := range map[string]string{"": "mails", "api/v1/status": `"queue":"mails"`, "api/v1/findings": `"check":"queue"`} {
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
