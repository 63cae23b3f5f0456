package ingest_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/cmd/penstock/internal/ingest"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/sqlitetest"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/store/sqlite"
	"github.com/penstock/penstock/writer"
)

// database has the methods that the tests need.
type database interface {
	driver.Store
	driver.InboxStore
	writer.OnceStore
}

func open(ctx context.Context, at string) (database, error) {
	if path, ok := strings.CutPrefix(at, "sqlite:"); ok {
		return sqlite.Open(ctx, path, sqlite.Options{})
	}
	return postgres.Open(ctx, at, postgres.Options{})
}

// stores runs a test on a database of each kind, with the outboxes orders and mails and the inbox ingest.
func stores(t *testing.T, test func(t *testing.T, at string, store database)) {
	for name, fresh := range map[string]func(t *testing.T) string{
		"sqlite":   func(t *testing.T) string { return "sqlite:" + sqlitetest.File(t) },
		"postgres": func(t *testing.T) string { return postgrestest.Database(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := fresh(t)
			store, err := open(t.Context(), at)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = store.Close() })
			for _, err := range []error{store.CreateOutbox(t.Context(), "orders"), store.CreateOutbox(t.Context(), "mails"), store.CreateInbox(t.Context(), "ingest", 0)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			test(t, at, store)
		})
	}
}

// published returns the messages of an outbox.
func published(t *testing.T, store database, outbox string) (all []penstock.Message) {
	t.Helper()
	src, err := store.Subscribe(t.Context(), driver.Subscribe{Outbox: outbox, Subscription: "look", Holder: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = src.Close(context.Background()) }()
	for {
		b, err := src.Fetch(t.Context(), driver.Limit{Messages: 1000, Bytes: 16 << 20})
		if err != nil {
			t.Fatal(err)
		}
		if len(b.Messages) == 0 {
			return all
		}
		all = append(all, b.Messages...)
		if err := src.Settle(t.Context(), b.Number, driver.Settled{Batch: b}); err != nil {
			t.Fatal(err)
		}
	}
}

// serve serves until the test ends, or until end is called, which drains.
func serve(t testing.TB, store writer.OnceStore, o ingest.Options) (s *ingest.Server, end func()) {
	t.Helper()
	o.Listen, o.Logger = "127.0.0.1:0", slog.New(slog.NewTextHandler(t.Output(), nil))
	s, err := ingest.New(store, o)
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- s.Run(context.Background()) }()
	end = sync.OnceFunc(func() {
		s.Drain()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(end)
	return s, end
}

// post sends a body with headers, as name: value.
func post(ctx context.Context, addr, outbox, body string, headers ...string) (int, string, http.Header, error) {
	r, err := http.NewRequestWithContext(ctx, "POST", "http://"+addr+"/outboxes/"+outbox+"/messages", strings.NewReader(body))
	if err != nil {
		return 0, "", nil, err
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), answer.Header, err
}

func wants(t *testing.T, s *ingest.Server, outbox, body string, code int, contains string, headers ...string) http.Header {
	t.Helper()
	got, text, header, err := post(t.Context(), s.Addr(), outbox, body, headers...)
	if err != nil || got != code || !strings.Contains(text, contains) {
		t.Errorf("%.80s %v: %d %s %v, want %d with %q", body, headers, got, text, err, code, contains)
	}
	return header
}

const (
	asJSON   = "Content-Type: application/json"
	asLines  = "Content-Type: application/x-ndjson"
	asEvent  = "Content-Type: application/cloudevents+json; charset=utf-8"
	asEvents = "Content-Type: application/cloudevents-batch+json"
)

const traced = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// Each form becomes the messages that it describes.
func TestForms(t *testing.T) {
	stores(t, func(t *testing.T, _ string, store database) {
		s, _ := serve(t, store, ingest.Options{})
		wants(t, s, "orders", `{"id":"1","key":"k","topic":"t","headers":{"a":"b"},"payload":{"total": 10}}`, 200, `{"accepted":1}`, asJSON, "Traceparent: "+traced, "Tracestate: s=1,t=2")
		wants(t, s, "orders", "{\"id\":\"2\",\"payload\":\"p\",\"headers\":{\"traceparent\":\"own\"}}\n\n{\"id\":\"3\",\"payload_base64\":\"AP8=\"}", 200, `{"accepted":2}`, asLines, "Traceparent: "+traced, "Tracestate: "+strings.Repeat("x", 513))
		wants(t, s, "orders", `{"specversion":"1.0","id":"4","source":"/s","type":"t","subject":"sub","partitionkey":"k","time":"2026-01-01T00:00:00Z","tenant":7,"gone":null,
			"datacontenttype":"application/json","data":{"a": 1}}`, 200, `{"accepted":1}`, asEvent)
		wants(t, s, "orders", `[{"specversion":"1.0","id":"5","source":"/s","type":"t","subject":"sub","datacontenttype":"text/plain","data":"te\u00e9xt"},
			{"specversion":"1.0","id":"6","source":"/s","type":"t","data_base64":"AP8="},{"specversion":"1.0","id":"7","source":"/s","type":"t","data":"json"}]`, 200, `{"accepted":3}`, asEvents)
		wants(t, s, "orders", "\x00\xff", 200, `{"accepted":1}`, "ce-specversion: 1.0", "ce-id: 8", "ce-source: /s", "ce-type: t", "ce-subject: order%204711", "ce-tenant: acme", "Content-Type: image/png")
		for i, none := range []string{"00-1", "x\xff", "00-" + strings.Repeat("0", 9000), ""} { // the server ignores a trace that is not valid, and accepts the message
			wants(t, s, "orders", fmt.Sprintf(`{"id":"%d","payload":"\ud83d\ude00"}`, 9+i), 200, `{"accepted":1}`, asJSON, "Traceparent: "+none, "Tracestate: s=1")
		}
		wants(t, s, "orders", "", 200, `{"accepted":0}`, asLines)
		want := []string{
			`1 "k" "t" map[a:b traceparent:` + traced + ` tracestate:s=1,t=2] "{\"total\": 10}"`,
			`2 "" "" map[traceparent:own] "p"`,
			`3 "" "" map[traceparent:` + traced + `] "\x00\xff"`,
			`4 "k" "t" map[content-type:application/json source:/s subject:sub tenant:7 time:2026-01-01T00:00:00Z] "{\"a\": 1}"`,
			`5 "sub" "t" map[content-type:text/plain source:/s] "teéxt"`,
			`6 "" "t" map[source:/s] "\x00\xff"`,
			`7 "" "t" map[source:/s] "\"json\""`,
			`8 "order 4711" "t" map[content-type:image/png source:/s tenant:acme] "\x00\xff"`,
			`9 "" "" map[] "😀"`, `10 "" "" map[] "😀"`, `11 "" "" map[] "😀"`, `12 "" "" map[] "😀"`,
		}
		var got []string
		for _, m := range published(t, store, "orders") {
			got = append(got, fmt.Sprintf("%s %q %q %v %q", m.ID, m.Key, m.Topic, m.Headers, m.Payload))
		}
		if !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// A refusal names the fault and its place, and nothing of the request is published.
func TestRefusals(t *testing.T) {
	stores(t, func(t *testing.T, _ string, store database) {
		s, _ := serve(t, store, ingest.Options{MaxBody: 1000})
		wants(t, s, "orders", "{\"payload\":\"p\"}\n{\"colour\":1}\n", 400, `"error":"is not a message: json: unknown field \"colour\"","line":2`, asLines)
		wants(t, s, "orders", `[{"specversion":"1.0","id":"5","source":"/s","type":"t"},{"specversion":"1.0","id":"5","type":"t"}]`, 400, `without source","line":2`, asEvents)
		wants(t, s, "orders", `{}`, 400, "not an array", asEvents)
		wants(t, s, "orders", `{"specversion":"0.3"}`, 400, `specversion \"0.3\"`, asEvent)
		wants(t, s, "orders", `{"specversion":"1.0","id":"5","source":"/s","type":"t","x":{}}`, 400, "attribute x", asEvent)
		wants(t, s, "orders", "", 400, "percent-encoded", "ce-specversion: 1.0", "ce-id: %zz")
		wants(t, s, "orders", `{"key":"`+strings.Repeat("x", 900)+`","topic":"`+"\\u0000"+`"}`, 400, "topic has a NUL", asJSON)
		wants(t, s, "orders", "null", 400, "is a JSON null", asJSON)
		wants(t, s, "orders", "{}\nnull\n", 400, `"line":2`, asLines)
		wants(t, s, "orders", "null", 400, "specversion", asEvent)
		wants(t, s, "orders", "[null]", 400, `"line":1`, asEvents)
		wants(t, s, "orders", `nonsense`, 400, `"line":1`, asJSON)
		wants(t, s, "orders", strings.Repeat("x", 1001), 413, "more than 1000 bytes", asLines)
		wants(t, s, "orders", `{}`, 415, "send application/json", "Content-Type: application/x-www-form-urlencoded")
		for _, half := range []string{`{"id":"\ud83d"}`, `{"key":"\ude00\ud83d"}`, `{"headers":{"a":"\ud83dx"}}`, `{"payload":"\ud83d\n"}`} { // two ids would become one
			wants(t, s, "orders", half, 400, "surrogate", asJSON)
			wants(t, s, "orders", "{}\n"+half, 400, `"line":2`, asLines)
		}
		wants(t, s, "orders", `{"specversion":"1.0","id":"\ud83d","source":"/s","type":"t"}`, 400, "surrogate", asEvent)
		wants(t, s, "orders", `{"specversion":"1.0","id":"1","id":"2","source":"/s","type":"t"}`, 400, "has id twice", asEvent)
		wants(t, s, "nothing", `{}`, 404, "no such outbox", asJSON)
		const event = `{"specversion":"1.0","id":"1","source":"/s","type":"t"}`
		wants(t, s, "orders", "["+event+"]["+event+"]", 400, "not an array", asEvents)
		wants(t, s, "orders", event+event, 400, "not an event", asEvent)
		wants(t, s, "orders", "{}{}", 400, "more than one JSON value", asJSON)
		wants(t, s, "orders", "\x1f\x8b", 415, "as it is", "ce-specversion: 1.0", "ce-id: 1", "ce-source: /s", "ce-type: t", "Content-Encoding: gzip")
		for _, cut := range []string{"Content-Length: 9\r\n\r\n{}\n{}", "Transfer-Encoding: chunked\r\n\r\n5\r\n{}\n{}\r\n"} {
			if got := half(t, s, cut); got != 400 {
				t.Errorf("a request that ends early, %q: %d", cut, got)
			}
		}
		if got := published(t, store, "orders"); len(got) > 0 {
			t.Errorf("published %v", got)
		}
	})
}

// half sends lines, the end of the head and a part of the body.
func half(t *testing.T, s *ingest.Server, rest string) int {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	fmt.Fprintf(conn, "POST /outboxes/orders/messages HTTP/1.1\r\nHost: localhost\r\n%s\r\n%s", asLines, rest)
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

// Each outbox has its own token.
func TestTokens(t *testing.T) {
	stores(t, func(t *testing.T, _ string, store database) {
		s, _ := serve(t, store, ingest.Options{Outboxes: []ingest.Outbox{{Name: "orders", Token: "token-o"}, {Name: "mails", Token: "token-m"}}})
		wants(t, s, "orders", "{}", 401, "no token", asJSON)
		wants(t, s, "orders", "{}", 401, "no token", asJSON, "Authorization: Bearer token-x")
		wants(t, s, "orders", "{}", 403, "another outbox", asJSON, "Authorization: Bearer token-m")
		wants(t, s, "nothing", "{}", 403, "another outbox", asJSON, "Authorization: Bearer token-m")
		if got := published(t, store, "orders"); len(got) > 0 {
			t.Errorf("published %v", got)
		}
		wants(t, s, "orders", "{}", 200, "", asJSON, "Authorization: Bearer token-o")
		wants(t, s, "mails", "{}", 200, "", asJSON, "Authorization: Bearer token-m")
		open, _ := serve(t, store, ingest.Options{Outboxes: []ingest.Outbox{{Name: "orders"}}})
		wants(t, open, "mails", "{}", 404, "takes no messages here", asJSON)
	})
}

// With an inbox a message is published once by its id, however often it comes, also at the same time.
func TestOnce(t *testing.T) {
	stores(t, func(t *testing.T, _ string, store database) {
		s, _ := serve(t, store, ingest.Options{Outboxes: []ingest.Outbox{{Name: "orders", Inbox: "ingest"}}})
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() { wants(t, s, "orders", fmt.Sprintf(`{"id":"%d"}`, i%4), 200, `{"accepted":1}`, asJSON) })
		}
		all.Wait()
		wants(t, s, "orders", "{\"id\":\"3\"}\n{\"id\":\"4\"}\n{\"id\":\"4\"}\n{}\n{}", 200, `{"accepted":5}`, asLines)
		got := map[string]int{}
		for _, m := range published(t, store, "orders") {
			got[m.ID]++
		}
		for _, id := range []string{"0", "1", "2", "3", "4"} {
			if got[id] != 1 {
				t.Errorf("message %s was published %d times", id, got[id])
			}
		}
	})
}

// observed are the answers that were reported.
type observed struct {
	mu  sync.Mutex
	got []string
}

func (o *observed) Answered(outbox string, status, messages int, took time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.got = append(o.got, fmt.Sprint(outbox, " ", status, " ", messages, took > 0))
}

// Each answer is reported, without names that a client invented.
func TestObserver(t *testing.T) {
	stores(t, func(t *testing.T, _ string, store database) {
		o := &observed{}
		s, end := serve(t, store, ingest.Options{Observer: o})
		wants(t, s, "orders", "{}\n{}", 200, "", asLines)
		wants(t, s, "orders", "nonsense", 400, "", asLines)
		wants(t, s, "made-up", "{}", 404, "", asLines)
		wants(t, s, "made-up-2", "nonsense", 400, "", asLines) // an outbox that was not looked up before
		wants(t, s, "made-up-3", "{}", 415, "")
		wants(t, s, "made-up-4", "", 200, "", asLines)
		end() // the answer is reported
		if want := []string{"orders 200 2 true", "orders 400 0 true", " 404 0 true", " 400 0 true", " 415 0 true", " 200 0 true"}; !slices.Equal(o.got, want) {
			t.Errorf("got %q, want %q", o.got, want)
		}
	})
}
