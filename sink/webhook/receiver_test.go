package webhook_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/test/sinktest"
)

// receiver is an endpoint that keeps its requests. A message with the header "refuse" gets the
// status 422.
type receiver struct {
	tls  *tls.Config // nil for http
	addr string      // host:port, the same after a restart
	srv  *http.Server

	mu       sync.Mutex
	grew     sync.Cond
	received []sinktest.Received
	protos   map[string]int
}

func startReceiver(t *testing.T, config *tls.Config) *receiver {
	r := &receiver{tls: config, addr: "127.0.0.1:0", protos: map[string]int{}}
	r.grew.L = &r.mu
	r.start(t)
	t.Cleanup(func() { _ = r.srv.Close() })
	return r
}

func (r *receiver) start(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	r.addr = l.Addr().String()
	r.srv = &http.Server{Handler: r, TLSConfig: r.tls.Clone(), Protocols: new(http.Protocols), ErrorLog: quietLog}
	r.srv.Protocols.SetHTTP1(true)
	r.srv.Protocols.SetHTTP2(true)
	r.srv.Protocols.SetUnencryptedHTTP2(true)
	srv, serve := r.srv, r.srv.Serve
	if r.tls != nil {
		serve = func(l net.Listener) error { return srv.ServeTLS(l, "", "") }
	}
	go func() { _ = serve(l) }()
}

// restart is not graceful: running requests are lost.
func (r *receiver) restart(t *testing.T) {
	_ = r.srv.Close()
	r.start(t)
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	payload, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	if req.Header.Get("Refuse") != "" {
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	created, _ := time.Parse(time.RFC3339Nano, req.Header.Get("Penstock-Created-At"))
	got := sinktest.Received{
		ID: req.Header.Get("Idempotency-Key"), Key: req.Header.Get("Penstock-Key"), Topic: req.Header.Get("Penstock-Topic"),
		Payload: payload, CreatedAt: created, Headers: map[string]string{},
	}
	for name, values := range req.Header { // HTTP ignores the case of names
		got.Headers[name] = strings.Join(values, ",")
		got.Headers[strings.ToLower(name)] = strings.Join(values, ",")
	}
	r.mu.Lock()
	r.received = append(r.received, got)
	r.protos[req.Proto]++
	r.grew.Broadcast()
	r.mu.Unlock()
	w.WriteHeader(http.StatusAccepted)
	_, _ = io.WriteString(w, "thank you\n")
}

func (r *receiver) drain(_ *testing.T, n int) []sinktest.Received {
	late := false
	timer := time.AfterFunc(sinktest.Patience, func() {
		r.mu.Lock()
		late = true
		r.grew.Broadcast()
		r.mu.Unlock()
	})
	defer timer.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.received) < n && !late {
		r.grew.Wait()
	}
	got := r.received
	r.received = nil
	return got
}

// startProxy is an HTTP proxy that requires a user and password and supports CONNECT.
func startProxy(t *testing.T, user, password string) (addr string) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		check := http.Request{Header: http.Header{"Authorization": req.Header["Proxy-Authorization"]}}
		if u, p, _ := check.BasicAuth(); u != user || p != password {
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		if req.Method != http.MethodConnect {
			forward(w, req)
			return
		}
		there, err := (&net.Dialer{}).DialContext(req.Context(), "tcp", req.Host)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		here, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			_ = there.Close()
			return
		}
		_, _ = io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n")
		closeBoth := func() { _, _ = here.Close(), there.Close() }
		go func() { defer closeBoth(); _, _ = io.Copy(there, here) }()
		go func() { defer closeBoth(); _, _ = io.Copy(here, there) }()
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func forward(w http.ResponseWriter, req *http.Request) {
	out := req.Clone(context.WithoutCancel(req.Context()))
	out.RequestURI = ""
	out.Header.Del("Proxy-Authorization")
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(out)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer res.Body.Close()
	w.WriteHeader(res.StatusCode)
	_, _ = io.Copy(w, res.Body)
}
