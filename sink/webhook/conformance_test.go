package webhook_test

import (
	"io"
	"log"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/sinktest"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/internal/test/testcerts"
	"github.com/penstock/penstock/sink/webhook"
)

var quietLog = log.New(io.Discard, "", 0)

var everything = sinktest.Features{ReadBack: true, Network: true, Durable: true, Refuses: true}

// HTTP/1.1, and HTTP/2 with and without TLS, over a network that fails. HTTP/1.1
// over TLS goes through the proxy below.
func TestConformance(t *testing.T) {
	for _, version := range []struct {
		name, http, scheme, proto string
		only                      []string
	}{
		{"http1", "1.1", "http", "HTTP/1.1", nil},
		{"http2", "auto", "https", "HTTP/2.0", sinktest.Transport},
		{"h2c", "2", "http", "HTTP/2.0", sinktest.Transport},
	} {
		t.Run(version.name, func(t *testing.T) {
			sinktest.Run(t, sinktest.Harness{
				Features: everything,
				Only:     version.only,
				New: func(t *testing.T) *sinktest.Destination {
					return destination(t, version.scheme, version.proto, webhook.Config{HTTP: version.http}, badMessages())
				},
			})
		})
	}
}

// patient gives a busy machine enough time.
func patient(cfg webhook.Config) webhook.Config {
	cfg.ConnectTimeout, cfg.ResponseTimeout, cfg.Timeout = sinktest.Patience, sinktest.Patience, sinktest.Patience
	return cfg
}

// destination is an endpoint behind a network, with its HTTP version in proto.
func destination(t *testing.T, scheme, proto string, cfg webhook.Config, bad []sinktest.Bad) *sinktest.Destination {
	var r *receiver
	if scheme == "https" {
		authority := testcerts.New(t)
		config, caFile := serve(authority.Server(t, "127.0.0.1")), authority.CAFile
		cfg.TLS.CAFile = caFile
		r = startReceiver(t, config)
	} else {
		r = startReceiver(t, nil)
	}
	network := tcpproxy.New(t, r.addr)
	cfg.URL = scheme + "://" + network.Addr() + "/hooks/{topic}?tenant=7"
	cfg.AllowPrivate = cfg.Proxy == ""
	cfg = patient(cfg)
	t.Cleanup(func() {
		r.mu.Lock() // requests that were given up may still arrive
		defer r.mu.Unlock()
		for got := range r.protos {
			if got != proto {
				t.Errorf("requests came over %s, want %s", got, proto)
			}
		}
	})
	return &sinktest.Destination{
		Topics: []string{"orders.placed", "orders.shipped"},
		Open: func(t *testing.T, log *slog.Logger) driver.Sink {
			s, err := webhook.Open(cfg, log)
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Drain: r.drain,
		Down:  network.Refuse, Up: network.Resume,
		Stall:   func() { network.Stall(tcpproxy.Both) },
		Restart: r.restart,
		Bad:     bad,
	}
}

// inOrder claims to be an InOrderSink, which the sink does not, to run the suite's tests of order
// within one Send.
type inOrder struct{ *webhook.Sink }

func (inOrder) KeepsOrder() bool { return true }

func TestConformanceInOrder(t *testing.T) {
	features := everything
	features.InOrder = true
	bad := badMessages()
	for i := range bad { // good ones of the same key stand around each
		bad[i].Message.Key = "one-key"
	}
	sinktest.Run(t, sinktest.Harness{
		Features: features,
		New: func(t *testing.T) *sinktest.Destination {
			d := destination(t, "http", "HTTP/1.1", webhook.Config{Concurrency: 16}, bad)
			open := d.Open
			d.Open = func(t *testing.T, log *slog.Logger) driver.Sink { return inOrder{open(t, log).(*webhook.Sink)} }
			return d
		},
	})
}

// Through a proxy that requires a password, with every other secret there is.
func TestConformanceProxy(t *testing.T) {
	const password, wrong = "s3cr3t-pr0xy", "wr0ng-pr0xy"
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			sinktest.Run(t, sinktest.Harness{
				Features: sinktest.Features{ReadBack: true, Refuses: true, Secrets: true},
				Only:     sinktest.Transport,
				New: func(t *testing.T) *sinktest.Destination {
					proxy := startProxy(t, "relay", password)
					config := func(password string) webhook.Config {
						return webhook.Config{
							HTTP:    "1.1",
							Proxy:   "http://relay:" + password + "@" + proxy,
							Headers: map[string]webhook.Secret{"Authorization": "Bearer t0p-s3cr3t"},
							Secrets: []webhook.Secret{signingSecret},
						}
					}
					d := destination(t, scheme, "HTTP/1.1", config(password), badMessages())
					d.OpenDenied = destination(t, scheme, "HTTP/1.1", config(wrong), nil).Open
					d.Secrets = []string{password, wrong, "t0p-s3cr3t", strings.TrimPrefix(signingSecret, "whsec_")}
					return d
				},
			})
		})
	}
}

const signingSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// badMessages are messages that are never sent, or that this endpoint refuses.
func badMessages() []sinktest.Bad {
	var all []sinktest.Bad
	add := func(name string, headers map[string]string) {
		all = append(all, sinktest.Bad{Name: name, Message: penstock.Message{
			ID: "bad-" + name, Topic: "orders.placed", Headers: headers, CreatedAt: time.Now(), Attempt: 1}})
	}
	add("refused by the endpoint", map[string]string{"refuse": "yes"})
	add("header of two lines", map[string]string{"note": "a\r\nX-Admin: yes"})
	add("header with a bare line feed", map[string]string{"note": "a\nb"})
	add("header name with a space", map[string]string{"a b": "c"})
	add("header name with a colon", map[string]string{"a:b": "c"})
	add("header name with a line break", map[string]string{"a\r\nb": "c"})
	add("header name beyond ASCII", map[string]string{"größe": "c"})
	add("header value in spaces", map[string]string{"note": " a "})
	add("one header twice", map[string]string{"Tenant": "a", "tenant": "b"})
	return all
}
