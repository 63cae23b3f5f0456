package webhook

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/penstock/penstock"
)

// seen is a request as the endpoint received it.
type seen struct {
	*http.Request
	payload string
}

// request sends m to an endpoint that accepts it, and returns the request, or nil if there was
// none.
func request(t *testing.T, cfg Config, m penstock.Message) (got *seen, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := piped(t, cfg, func(conn net.Conn) {
			var raw strings.Builder
			answering(func(req *http.Request, out io.Writer) {
				got = &seen{Request: req, payload: raw.String()}
				reply(204)(req, out)
			})(recorded{conn, &raw})
		})
		err = one(t, s, m)
	})
	if got != nil {
		_, got.payload, _ = strings.Cut(got.payload, "\r\n\r\n")
	}
	return got, err
}

// recorded keeps the bytes that were read.
type recorded struct {
	net.Conn
	raw *strings.Builder
}

func (r recorded) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.raw.Write(p[:n])
	return n, err
}

func TestRequest(t *testing.T) {
	m := message("0c9e6a52-17", "customer/4711")
	m.Attempt = 3
	m.Headers = map[string]string{
		"content-type": "application/json", "traceparent": "00-4bf9-00f0-01", "Tenant": "Ærø & søn", "empty": "", "ce-id": "a%20b",
		"User-Agent": "spoofed", "X-Api-Key": "spoofed",
	}
	got, err := request(t, Config{Method: http.MethodPut, Headers: map[string]Secret{"authorization": "Bearer t0ken", "X-Api-Key": "k3y"}}, m)
	if err != nil {
		t.Fatal(err)
	}
	if got.Method != "PUT" || got.Host != "endpoint.test" || got.RequestURI != "/hooks" || got.payload != "payload of 0c9e6a52-17" || got.ContentLength != int64(len(m.Payload)) {
		t.Errorf("%s %s %s, %q (%d bytes)", got.Method, got.Host, got.RequestURI, got.payload, got.ContentLength)
	}
	want := http.Header{
		"Content-Type": {"application/json"}, "Traceparent": {"00-4bf9-00f0-01"}, "Tenant": {"Ærø & søn"}, "Empty": {""}, "Ce-Id": {"a%20b"},
		"Idempotency-Key": {"0c9e6a52-17"}, "Penstock-Key": {"customer/4711"}, "Penstock-Topic": {"orders.placed"},
		"Penstock-Created-At": {"2026-01-02T03:04:05Z"}, "Penstock-Attempt": {"3"},
		"Authorization": {"Bearer t0ken"}, "X-Api-Key": {"k3y"}, "User-Agent": {"Penstock"}, "Content-Length": {"22"},
	}
	if !reflect.DeepEqual(got.Header, want) {
		t.Errorf("headers are %v\nwant %v", got.Header, want)
	}
}

func TestPlainRequest(t *testing.T) {
	m := message("1", "")
	m.Payload = nil
	got, err := request(t, Config{URL: "http://app:hunter2@endpoint.test:8080", ContentType: "application/json"}, m)
	if err != nil {
		t.Fatal(err)
	}
	want := http.Header{
		"Content-Type": {"application/json"}, "Idempotency-Key": {"1"}, "Penstock-Topic": {"orders.placed"}, "Penstock-Created-At": {"2026-01-02T03:04:05Z"},
		"Authorization": {"Basic YXBwOmh1bnRlcjI="}, "User-Agent": {"Penstock"}, "Content-Length": {"0"},
	}
	if got.Method != "POST" || got.RequestURI != "/" || got.Host != "endpoint.test:8080" || !reflect.DeepEqual(got.Header, want) {
		t.Errorf("%s %s %s %v\nwant %v", got.Method, got.Host, got.RequestURI, got.Header, want)
	}
}

// Without a type of the message or the configuration, JSON objects and arrays are known by their content.
func TestContentType(t *testing.T) {
	for _, c := range []struct{ payload, configured, published, want string }{
		{payload: `{"total": 10}`, want: "application/json"},
		{payload: " \r\n\t[1, {}] ", want: "application/json"},
		{payload: `{"total": 10`, want: "application/octet-stream"},
		{payload: `{"a": 1} {"b": 2}`, want: "application/octet-stream"},
		{payload: "[info] started", want: "application/octet-stream"},
		{payload: "42", want: "application/octet-stream"},
		{payload: `"text"`, want: "application/octet-stream"},
		{payload: " ", want: "application/octet-stream"},
		{payload: "", want: "application/octet-stream"},
		{payload: "{}", configured: "text/plain", want: "text/plain"},
		{payload: "{}", published: "application/x-ndjson", want: "application/x-ndjson"},
	} {
		m := message("1", "k")
		m.Payload = []byte(c.payload)
		if c.published != "" {
			m.Headers = map[string]string{"content-type": c.published}
		}
		got, err := request(t, Config{ContentType: c.configured}, m)
		if err != nil || got.Header.Get("Content-Type") != c.want {
			t.Errorf("%+v: %v, %v", c, got, err)
		}
	}
}

// Headers of a producer neither change the request's frame, nor count as Penstock's own or as
// credentials.
func TestReservedHeaders(t *testing.T) {
	m := message("1", "k")
	m.Headers = map[string]string{"Harmless": "yes"}
	for name := range reserved {
		m.Headers[strings.ToLower(name)] = "spoofed"
	}
	got, err := request(t, Config{Secrets: []Secret{testSecret}}, m)
	if err != nil {
		t.Fatal(err)
	}
	if got.Header.Get("Harmless") != "yes" || got.Host != "endpoint.test" || len(got.TransferEncoding) > 0 || len(got.Trailer) > 0 {
		t.Errorf("the request is %+v", got.Request)
	}
	for name, values := range got.Header {
		if strings.Contains(strings.Join(values, " "), "spoofed") {
			t.Errorf("%s comes from the message: %q", name, values)
		}
	}
}

func TestHeadersThatCannotTravel(t *testing.T) {
	for what, headers := range map[string]map[string]string{
		"CR":          {"note": "a\rb"},
		"LF":          {"note": "a\nb"},
		"CRLF":        {"note": "a\r\nX-Admin: 1"},
		"ESC":         {"note": "a\x1b[0m"},
		"DEL":         {"note": "a\x7f"},
		"space first": {"note": " a"},
		"tab last":    {"note": "a\t"},
		"space":       {"a b": "c"},
		"colon":       {"a:": "c"},
		"line break":  {"a\r\nX-Admin": "c"},
		"not ASCII":   {"größe": "c"},
		"empty":       {"": "c"},
		"pseudo":      {":path": "/admin"},
		"twice":       {"Tenant": "a", "tenant": "b"},
	} {
		m := message("1", "k")
		m.Headers = headers
		got, err := request(t, Config{}, m)
		wantKind(t, what, err, "permanent")
		if got != nil {
			t.Errorf("%s: the request was sent: %v", what, got.Header)
		}
	}
	for _, m := range []penstock.Message{{ID: " a"}, {Key: "a\nb"}, {Topic: "a\rb"}} {
		got, err := request(t, Config{}, m)
		wantKind(t, fmt.Sprintf("%+v", m), err, "permanent")
		if got != nil {
			t.Errorf("%+v was sent", m)
		}
	}
}

func TestURLTemplates(t *testing.T) {
	for _, c := range []struct{ url, key, want string }{ // empty: permanent
		{"/hooks/{topic}", "", "/hooks/orders.placed"},
		{"/{key}", "a/b c?d#e%f+g&h=i;j", "/a%2Fb%20c%3Fd%23e%25f+g&h=i%3Bj"},
		{"/{key}", "ключ", "/%D0%BA%D0%BB%D1%8E%D1%87"},
		{"/{key}", "a\r\nb", ""}, // it is a header as well
		{"/x/{key}/y", "..", ""},
		{"/x/{key}/y", ".", ""},
		{"/x/{key}", "..", ""},
		{"/x/.{key}", ".", ""},
		{"/x/%2e{key}", ".", ""},
		{"/x/{key}{key}", ".", ""},
		{"/x/{key}", "...", "/x/..."},
		{"/x/{key}", "a..", "/x/a.."},
		{"/x/{key}", "", ""},
		{"/x/{key}", "../../admin", "/x/..%2F..%2Fadmin"},
		{"/x?key={key}", "", "/x?key="},
		{"/x?key={key}", "a&admin=1#x y+z", "/x?key=a%26admin%3D1%23x+y%2Bz"},
		{"/{header.region}?t={header.tenant}", "k", "/eu?t=7"},
		{"/{header.none}", "k", ""},
		{"?{key}", "k", "/?k"},
		{"/x%2Fy?a=%20", "k", "/x%2Fy?a=%20"},
		{"/x?", "k", "/x?"},
		{"/x/{header.long}", "k", ""},
	} {
		m := message("1", c.key)
		m.Headers = map[string]string{"region": "eu", "tenant": "7", "long": strings.Repeat("x", maxURLBytes)}
		got, err := request(t, Config{URL: "http://endpoint.test" + c.url}, m)
		if c.want == "" {
			wantKind(t, c.url+" "+c.key, err, "permanent")
			if got != nil {
				t.Errorf("%s of %q was requested: %s", c.url, c.key, got.RequestURI)
			}
			continue
		}
		if err != nil || got.RequestURI != c.want || got.Host != "endpoint.test" {
			t.Errorf("%s of %q: %s, %v; want %s", c.url, c.key, got.RequestURI, err, c.want)
		}
	}
}

// The libraries of Standard Webhooks accept the signature, with each of the secrets, and with no
// other.
func TestSignature(t *testing.T) {
	const second, wrong = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSx", "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	for _, payload := range []string{"", `{"test": 2432232314}`, "a\x00b\xff", strings.Repeat("x", 1<<20)} {
		m := message("msg_p5jXN8AQM9LWM0D4loKWxJek", "k")
		m.Payload = []byte(payload)
		got, err := request(t, Config{Secrets: []Secret{testSecret, second}}, m)
		if err != nil {
			t.Fatal(err)
		}
		if id, ts := got.Header.Get("webhook-id"), got.Header.Get("webhook-timestamp"); id != m.ID || ts != fmt.Sprint(epoch.Unix()) {
			t.Errorf("id %s, timestamp %s", id, ts)
		}
		for secret, ok := range map[string]bool{testSecret: true, second: true, wrong: false} {
			w, err := standardwebhooks.NewWebhook(secret)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.VerifyIgnoringTimestamp([]byte(payload), got.Header); (err == nil) != ok {
				t.Errorf("%d bytes, secret %s: %v", len(payload), secret, err)
			}
			if err := w.VerifyIgnoringTimestamp([]byte(payload+"x"), got.Header); err == nil {
				t.Errorf("secret %s: another payload has the same signature", secret)
			}
		}
	}
}

// epoch is when a synctest bubble begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// A message that is sent again gets a new signature: receivers refuse old timestamps.
func TestSignatureOfLaterAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stamps, signatures []string
		s := piped(t, Config{Secrets: []Secret{testSecret}}, answering(func(req *http.Request, out io.Writer) {
			stamps, signatures = append(stamps, req.Header.Get("webhook-timestamp")), append(signatures, req.Header.Get("webhook-signature"))
			reply(500)(req, out)
		}))
		for range 2 {
			wantKind(t, "500", one(t, s, message("m", "")), "retry")
			time.Sleep(time.Hour)
		}
		if stamps[0] == stamps[1] || signatures[0] == signatures[1] {
			t.Errorf("%q, %q", stamps, signatures)
		}
	})
}

// Signatures of one sink are made concurrently.
func TestSignatureConcurrently(t *testing.T) {
	key, err := signingKey(testSecret)
	must(t, err)
	s := newSigner([][]byte{key})
	want := map[int]string{}
	for i := range 100 {
		want[i] = newSigner([][]byte{key}).sign(fmt.Sprint(i), "1", []byte("x"))
	}
	t.Run("all", func(t *testing.T) {
		for i, want := range want {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				if got := s.sign(fmt.Sprint(i), "1", []byte("x")); got != want {
					t.Errorf("%d: %s, want %s", i, got, want)
				}
			})
		}
	})
}
