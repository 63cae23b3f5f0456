package web_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/web"
)

var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	if _, err := io.ReadAll(r.Body); err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			http.Error(w, "too large", http.StatusRequestEntityTooLarge)
		}
		return
	}
	_, _ = io.WriteString(w, "for "+web.From(r))
})

func serve(t *testing.T, o web.Options, h http.Handler) *http.Server {
	t.Helper()
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	server, err := web.Serve(o, h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return server
}

// ask sends a request with headers, as name, value, …; "Host" sets the host.
func ask(t *testing.T, server *http.Server, method, body string, headers ...string) (int, string, http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+server.Addr+"/", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
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
	return answer.StatusCode, string(text), answer.Header
}

func TestOnlyTheLoopbackIsServedWithoutACredential(t *testing.T) {
	for _, listen := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:80", "", "localhost", "127.0.0.1:x"} {
		var field *penstock.FieldError
		if _, err := web.Serve(web.Options{Listen: listen}, echo); !errors.As(err, &field) || field.Field != "listen" {
			t.Errorf("%q: %v", listen, err)
		}
	}
	var field *penstock.FieldError
	if _, err := web.Serve(web.Options{Listen: "0.0.0.0:0", Credentials: []web.Credential{{}}}, echo); !errors.As(err, &field) || field.Field != "token" {
		t.Errorf("an empty token: %v", err)
	}
	for _, o := range []web.Options{
		{Listen: "localhost:0"}, {Listen: "127.0.0.2:0"}, {Listen: "0.0.0.0:0", Open: true}, {Listen: "0.0.0.0:0", Credentials: []web.Credential{{Secret: "s"}}},
	} {
		if err := o.Check(); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestCredentials(t *testing.T) {
	server := serve(t, web.Options{Credentials: []web.Credential{
		{Secret: "token-of-orders", Name: "orders"}, {Secret: "token-of-mails", Name: "mails"}, {User: "ann", Secret: "secret", Name: "operate"},
	}}, echo)
	basic := func(user, password string) string {
		r := &http.Request{Header: http.Header{}}
		r.SetBasicAuth(user, password)
		return r.Header.Get("Authorization")
	}
	for authorization, want := range map[string]string{
		"":                             "",
		"Bearer token-of-orders":       "for orders",
		"bearer token-of-mails":        "for mails",
		"Bearer token-of-mail":         "",
		"Bearer token-of-mailsx":       "",
		"Bearer ":                      "",
		"Bearer secret":                "",
		"Basic nonsense":               "",
		"token-of-orders":              "",
		basic("ann", "secret"):         "for operate",
		basic("ann", "wrong"):          "",
		basic("bob", "secret"):         "",
		basic("", "token-of-orders"):   "",
		basic("ann", "token-of-mails"): "",
	} {
		code, text, header := ask(t, server, "GET", "", "Authorization", authorization)
		if want != "" && (code != http.StatusOK || text != want) || want == "" && (code != http.StatusUnauthorized || strings.Contains(text, "for ") || header.Get("WWW-Authenticate") == "") {
			t.Errorf("%q: %d %q", authorization, code, text)
		}
	}
}

// A page elsewhere may make a browser on this machine send requests. It may not change anything, nor read under its own name.
func TestOtherSites(t *testing.T) {
	server := serve(t, web.Options{}, echo)
	for _, c := range []struct {
		method, header, value string
		code                  int
	}{
		{"POST", "Origin", "http://evil.example", http.StatusForbidden},
		{"POST", "Sec-Fetch-Site", "cross-site", http.StatusForbidden},
		{"POST", "Sec-Fetch-Site", "same-origin", http.StatusOK},
		{"POST", "Origin", "http://" + server.Addr, http.StatusOK},
		{"GET", "Host", "evil.example", http.StatusForbidden},
		{"GET", "Host", "127.0.0.1.evil.example:80", http.StatusForbidden},
		{"GET", "Host", "192.0.2.1", http.StatusForbidden},
		{"GET", "Host", "localhost:80", http.StatusOK},
		{"GET", "Host", "[::1]:80", http.StatusOK},
		{"POST", "X", "", http.StatusOK},
	} {
		if code, text, _ := ask(t, server, c.method, "", c.header, c.value); code != c.code {
			t.Errorf("%s with %s %s: %d %s", c.method, c.header, c.value, code, text)
		}
	}
	open := serve(t, web.Options{Open: true}, echo)
	if code, _, _ := ask(t, open, "GET", "", "Host", "prometheus.example"); code != http.StatusOK {
		t.Errorf("open, by another name: %d", code)
	}
}

func TestBodiesAreBounded(t *testing.T) {
	server := serve(t, web.Options{MaxBody: 10}, echo)
	if code, _, _ := ask(t, server, "POST", strings.Repeat("x", 10)); code != http.StatusOK {
		t.Errorf("as large as allowed: %d", code)
	}
	if code, _, _ := ask(t, server, "POST", strings.Repeat("x", 11)); code != http.StatusRequestEntityTooLarge {
		t.Errorf("too large: %d", code)
	}
}

// After Drain, running requests are answered, and new ones are not.
func TestDrain(t *testing.T) {
	began, finish := make(chan struct{}), make(chan struct{})
	server := serve(t, web.Options{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(began)
		<-finish
		_, _ = io.Copy(w, bytes.NewReader([]byte("done")))
	}))
	answered := make(chan string, 1)
	go func() {
		defer close(answered)
		_, text, _ := ask(t, server, "GET", "")
		answered <- text
	}()
	<-began
	drained := make(chan error)
	go func() { drained <- web.Drain(context.Background(), server) }()
	for { // until the port is closed
		c, err := net.Dial("tcp", server.Addr)
		if err != nil {
			break
		}
		_ = c.Close()
	}
	close(finish)
	if text := <-answered; text != "done" {
		t.Errorf("what was under way got %q", text)
	}
	if err := <-drained; err != nil {
		t.Error(err)
	}
}
