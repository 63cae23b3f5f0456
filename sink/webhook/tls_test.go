package webhook_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/sinktest"
	"github.com/penstock/penstock/internal/test/testcerts"
	"github.com/penstock/penstock/sink/webhook"
)

func send(t *testing.T, cfg webhook.Config, m penstock.Message) error {
	t.Helper()
	cfg.AllowPrivate = true
	s, err := webhook.Open(patient(cfg), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	ctx, cancel := context.WithTimeout(context.Background(), sinktest.Patience)
	defer cancel()
	if errs := s.Send(ctx, []penstock.Message{m}); errs != nil {
		return errs[0]
	}
	return nil
}

func order(id string) penstock.Message {
	return penstock.Message{ID: id, Topic: "orders.placed", Payload: []byte("x"), CreatedAt: time.Now(), Attempt: 1}
}

// A certificate of another host says nothing about a message, and the error names the setting.
func TestWrongCertificate(t *testing.T) {
	authority := testcerts.New(t)
	config, caFile := serve(authority.Server(t, "127.0.0.1", "example.com")), authority.CAFile
	expired := serve(authority.Issue(t, func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	}))
	old := config.Clone()
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	demanding := config.Clone()
	demanding.ClientAuth = tls.RequireAnyClientCert
	for _, c := range []struct {
		name   string
		server *tls.Config
		cfg    webhook.TLSConfig
		says   string
	}{
		{"unknown authority", config, webhook.TLSConfig{}, "tls.ca_file"},
		{"another name", config, webhook.TLSConfig{CAFile: caFile, ServerName: "other.test"}, "tls.server_name"},
		{"expired", expired, webhook.TLSConfig{CAFile: caFile}, "expired"},
		{"TLS 1.1", old, webhook.TLSConfig{CAFile: caFile}, "TLS 1.2"},
		{"no client certificate", demanding, webhook.TLSConfig{CAFile: caFile}, ""}, // the reason may be lost with the connection
		{"no TLS", nil, webhook.TLSConfig{CAFile: caFile}, "does not speak TLS"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := startReceiver(t, c.server)
			err := send(t, webhook.Config{URL: "https://" + r.addr, TLS: c.cfg}, order("1"))
			if !penstock.IsUnavailable(err) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want it to be Unavailable and to say %s", err, c.says)
			}
		})
	}
	t.Run("its own name and a client certificate", func(t *testing.T) {
		client := authority.Client(t)
		r := startReceiver(t, demanding)
		cfg := webhook.TLSConfig{CAFile: caFile, ServerName: "example.com", CertFile: client.CertFile, KeyFile: client.KeyFile}
		if err := send(t, webhook.Config{URL: "https://" + r.addr, TLS: cfg}, order("1")); err != nil {
			t.Error(err)
		}
	})
}

func serve(p testcerts.Pair) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{p.Certificate}}
}

// startH2 serves HTTP/2 over TLS.
func startH2(t *testing.T, handler http.HandlerFunc, adjust func(*http.Server)) webhook.Config {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = true
	s.Config.ErrorLog = quietLog
	adjust(s.Config)
	s.StartTLS()
	t.Cleanup(s.Close)
	caFile := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return patient(webhook.Config{URL: s.URL, AllowPrivate: true, TLS: webhook.TLSConfig{CAFile: caFile}})
}

// An HTTP/2 endpoint announces its limit for headers. The client library refuses larger ones
// itself, and that is about the message.
func TestHTTP2HeadersTooLarge(t *testing.T) {
	cfg := startH2(t, func(http.ResponseWriter, *http.Request) {}, func(s *http.Server) { s.MaxHeaderBytes = 4 << 10 })
	s, err := webhook.Open(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	large := order("2")
	large.Headers = map[string]string{"long": strings.Repeat("x", 60<<10)}
	for i, m := range []penstock.Message{order("1"), large, order("3")} { // the first request makes the server's limit known
		errs := s.Send(context.Background(), []penstock.Message{m})
		if (errs != nil) != (i == 1) || i == 1 && !penstock.IsPermanent(errs[0]) {
			t.Errorf("message %d: %v", i, errs)
		}
	}
}

// More concurrent requests than a connection may carry use several.
func TestHTTP2ManyStreams(t *testing.T) {
	const streams, messages = 100, 250
	var mu sync.Mutex
	all := sync.NewCond(&mu)
	arrived, connections := 0, map[string]bool{}
	cfg := startH2(t, func(_ http.ResponseWriter, req *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		connections[req.RemoteAddr] = true
		for arrived++; arrived < messages; { // no request is answered before all are there
			all.Wait()
		}
		all.Broadcast()
	}, func(s *http.Server) { s.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: streams} })
	s, err := webhook.Open(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	msgs := make([]penstock.Message, messages)
	for i := range msgs {
		msgs[i] = order(fmt.Sprint(i))
	}
	kinds := map[string]int{}
	for _, err := range s.Send(context.Background(), msgs) {
		kinds[fmt.Sprint(err)]++
	}
	if len(kinds) > 0 {
		t.Fatal(kinds)
	}
	if n := len(connections); n < messages/streams {
		t.Errorf("%d connections for %d requests at once, %d of which fit on one", n, messages, streams)
	}
}

// Requests that hang or whose answers never end share their connection with others, which are not
// affected.
func TestHTTP2BadStreams(t *testing.T) {
	cfg := startH2(t, func(w http.ResponseWriter, req *http.Request) {
		switch req.Header.Get("Bad") {
		case "hang":
			<-req.Context().Done()
		case "half":
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "half")
			panic(http.ErrAbortHandler)
		case "endless":
			for req.Context().Err() == nil {
				_, _ = io.WriteString(w, strings.Repeat("y", 1000))
			}
		}
	}, func(*http.Server) {})
	s, err := webhook.Open(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	batch := func(kinds ...string) (msgs []penstock.Message) {
		for i := range 30 {
			m := order(fmt.Sprint(kinds, i))
			if bad := kinds[i%len(kinds)]; bad != "" {
				m.Headers = map[string]string{"bad": bad}
			}
			msgs = append(msgs, m)
		}
		return msgs
	}
	ctx, cancel := context.WithCancel(context.Background())
	hanging := make(chan []error, 1)
	go func() { hanging <- s.Send(ctx, batch("hang")) }()
	want := map[string]bool{"half": false, "endless": true, "": true}
	for range 3 {
		msgs := batch("half", "endless", "")
		for i, err := range s.Send(context.Background(), msgs) {
			bad := msgs[i].Headers["bad"]
			if (err == nil) != want[bad] || penstock.IsPermanent(err) {
				t.Errorf("%q: %v", bad, err)
			}
		}
	}
	cancel()
	for _, err := range <-hanging {
		if !penstock.IsUnavailable(err) {
			t.Errorf("hanging: %v", err)
		}
	}
}
