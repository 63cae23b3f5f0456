package nats_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/natsserver"
	"github.com/penstock/penstock/internal/test/sinktest"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/sink/nats"
)

// The server inside the process: there is no network, and the server restarts only with the sink
// (TestEmbeddedKeepsConfirmed does both).
func TestConformanceEmbedded(t *testing.T) {
	sinktest.Run(t, sinktest.Harness{
		Features: sinktest.Features{ReadBack: true, Routes: true, Refuses: true, Deduplicates: true},
		New: func(t *testing.T) *sinktest.Destination {
			dir, r := t.TempDir(), &reader{}
			var sink *natsserver.Sink // the latest; one server at a time has the directory
			return &sinktest.Destination{
				Topics: []string{"orders.placed", "orders.shipped"},
				Open: func(t *testing.T, log *slog.Logger) driver.Sink {
					s, err := natsserver.Open(nats.Config{
						Subject: "{topic}", Embedded: &nats.EmbeddedConfig{Dir: dir},
						CreateStream: &nats.StreamConfig{Name: testStream, Subjects: []string{"orders.>"}},
					}, log)
					if err != nil {
						t.Fatal(err)
					}
					sink = s
					return s
				},
				Drain: func(t *testing.T, n int) []sinktest.Received {
					provider := sink.InProcess()
					// If the sink is closed its server is, and the directory is free.
					if own, err := natsserver.Start(natsserver.Options{Dir: dir}, nil); err == nil {
						defer own.Shutdown(t.Context())
						provider = own
					}
					r.opts = []natsgo.Option{natsgo.InProcessServer(provider)}
					return r.drain(t, testStream, n)
				},
				Unroutable: unroutable(),
				Bad:        badMessages(natsserver.MaxPayload),
			}
		},
	})
}

func unroutable() *penstock.Message {
	return &penstock.Message{ID: "unroutable-1", Key: "k", Topic: "nowhere.to.go", Payload: []byte("x"), CreatedAt: time.Now(), Attempt: 1}
}

// A plain server behind a network that fails, with user and password.
func TestConformancePassword(t *testing.T) {
	const user, password = "relay", "s3cr3t-passw0rd"
	sinktest.Run(t, sinktest.Harness{
		Features: everything,
		New: func(t *testing.T) *sinktest.Destination {
			b := startBroker(t, func(o *server.Options) { o.Username, o.Password = user, password })
			return destination(t, b, nats.Config{User: user, Password: password}, nats.Config{User: user, Password: "wr0ng-" + password},
				[]string{password}, natsgo.UserInfo(user, password))
		},
	})
}

// The same under TLS with certificates on both sides and a token in the URL.
func TestConformanceTLS(t *testing.T) {
	const token = "t0p-s3cr3t-t0ken"
	certs := makeCertificates(t)
	sinktest.Run(t, sinktest.Harness{
		Features: everything,
		Only:     sinktest.Transport,
		New: func(t *testing.T) *sinktest.Destination {
			b := startBroker(t, func(o *server.Options) {
				o.Authorization = token
				o.TLSConfig = certs.server
				o.TLSTimeout = sinktest.Patience.Seconds()
			})
			cfg := nats.Config{URL: "tls://" + token + "@", TLS: certs.client}
			denied := nats.Config{URL: "tls://wr0ng-" + token + "@", TLS: certs.client}
			return destination(t, b, cfg, denied, []string{token},
				natsgo.Token(token), natsgo.RootCAs(certs.client.CAFile), natsgo.ClientCert(certs.client.CertFile, certs.client.KeyFile))
		},
	})
}

var everything = sinktest.Features{
	ReadBack: true, Network: true, Durable: true, Routes: true, Refuses: true, Secrets: true, Deduplicates: true,
}

// destination is a stream on b, reached by the sink through a proxy and by the
// reader directly. cfg.URL is what comes before host and port.
func destination(t *testing.T, b *broker, cfg, denied nats.Config, secrets []string, opts ...natsgo.Option) *sinktest.Destination {
	proxy := tcpproxy.New(t, b.addr())
	r := &reader{url: "nats://" + b.addr(), opts: opts}
	r.createStream(t, jetstream.StreamConfig{})
	open := func(cfg nats.Config) func(t *testing.T, log *slog.Logger) driver.Sink {
		return func(t *testing.T, log *slog.Logger) driver.Sink {
			cfg := patiently(cfg)
			if cfg.URL == "" {
				cfg.URL = "nats://"
			}
			cfg.URL += proxy.Addr()
			s, err := nats.Open(cfg, log)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
	}
	return &sinktest.Destination{
		Topics: []string{"orders.placed", "orders.shipped"},
		Open:   open(cfg),
		Drain:  func(t *testing.T, n int) []sinktest.Received { return r.drain(t, testStream, n) },
		Down:   proxy.Refuse, Up: proxy.Resume,
		Stall: func() { proxy.Stall(tcpproxy.Both) },
		Restart: func(t *testing.T) {
			b.stop()
			b.start(t)
		},
		Unroutable: unroutable(),
		Bad:        badMessages(testMaxPayload + 1),
		Secrets:    secrets,
		OpenDenied: open(denied),
	}
}

// badMessages are messages that no NATS server could store unchanged; tooLarge is in bytes.
func badMessages(tooLarge int) []sinktest.Bad {
	var all []sinktest.Bad
	add := func(name string, m penstock.Message) {
		m.ID, m.CreatedAt, m.Attempt = "bad-"+name, time.Now(), 1
		if m.Topic == "" {
			m.Topic = "orders.placed"
		}
		all = append(all, sinktest.Bad{Name: name, Message: m})
	}
	for _, topic := range []string{"orders..placed", ".orders", "orders.", "orders placed", "orders.*", "orders.>", "$JS.API.STREAM.DELETE." + testStream} {
		add("topic "+topic, penstock.Message{Topic: topic})
	}
	add("header of two lines", penstock.Message{Headers: map[string]string{"note": "a\r\nNats-Rollup: all"}})
	add("header name with a colon", penstock.Message{Headers: map[string]string{"a:b": "c"}})
	add("part of a batch", penstock.Message{Headers: map[string]string{"Nats-Batch-Id": "1", "Nats-Batch-Sequence": "1"}})
	add("key with a line break", penstock.Message{Key: "a\nb"})
	add("key with spaces around", penstock.Message{Key: " a "})
	add("headers over 64 KiB", penstock.Message{Headers: map[string]string{"long": strings.Repeat("x", 65_530)}})
	add("too large", penstock.Message{Payload: make([]byte, tooLarge)})
	return all
}
