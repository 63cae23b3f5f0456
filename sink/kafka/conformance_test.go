package kafka_test

import (
	"crypto/tls"
	"log/slog"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/sinktest"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/sink/kafka"
)

var everything = sinktest.Features{ReadBack: true, InOrder: true, Network: true, Durable: true, Routes: true, Refuses: true, Secrets: true}

const (
	user     = "relay"
	password = "hush-hush-4711"
	wrong    = "wrong-4712"
)

var topics = []string{"orders.placed", "orders.cancelled"}

// Three brokers, SCRAM, no compression.
func TestConformance(t *testing.T) {
	sinktest.Run(t, sinktest.Harness{
		Features: everything,
		New: func(t *testing.T) *sinktest.Destination {
			login := scram.Auth{User: user, Pass: password}.AsSha512Mechanism()
			return fake(t, 3, "SCRAM-SHA-512", kafka.Config{SASL: "scram-sha-512"}, nil, kgo.SASL(login))
		},
	})
}

// One broker, PLAIN under TLS, zstd.
func TestConformanceTLS(t *testing.T) {
	certs := makeCertificates(t)
	sinktest.Run(t, sinktest.Harness{
		Features: everything,
		Only:     sinktest.Transport,
		New: func(t *testing.T) *sinktest.Destination {
			login := plain.Auth{User: user, Pass: password}.AsMechanism()
			return fake(t, 1, "PLAIN", kafka.Config{SASL: "plain", Compression: "zstd", TLS: certs.client}, certs.server,
				kgo.SASL(login), kgo.DialTLSConfig(certs.reader))
		},
	})
}

func fake(t *testing.T, brokers int, method string, cfg kafka.Config, server *tls.Config, reading ...kgo.Opt) *sinktest.Destination {
	opts := []kfake.Opt{
		kfake.DataDir(t.TempDir()), kfake.SeedTopics(3, topics...), kfake.EnableSASL(), kfake.Superuser(method, user, password),
		kfake.BrokerConfigs(map[string]string{"message.max.bytes": "4194304"}),
	}
	cfg.URL = "kafka://"
	if server != nil {
		cfg.URL = "kafkas://"
		opts = append(opts, kfake.TLS(server))
	}
	c := startCluster(t, brokers, opts...)
	cfg.URL += c.proxies[0].Addr()
	cfg.MaxMessageBytes = 2 << 20
	reader := newReader(t, topics, append(reading, kgo.SeedBrokers(c.proxies[0].Addr()))...)
	return &sinktest.Destination{
		Topics: topics,
		Open:   opener(cfg, password),
		Drain:  reader.drain,
		Down:   func() { c.each((*tcpproxy.Proxy).Refuse) },
		Up:     func() { c.each((*tcpproxy.Proxy).Resume) },
		Stall:  func() { c.each(func(p *tcpproxy.Proxy) { p.Stall(tcpproxy.Both) }) },
		Restart: func(t *testing.T) {
			c.Close()
			c.start(t)
		},
		Unroutable: &penstock.Message{ID: "lost", Topic: "invoices.sent", Payload: []byte("x")},
		Bad:        badMessages(cfg.MaxMessageBytes),
		Secrets:    []string{password, wrong},
		OpenDenied: opener(cfg, wrong),
	}
}

func opener(cfg kafka.Config, password string) func(*testing.T, *slog.Logger) driver.Sink {
	return func(t *testing.T, log *slog.Logger) driver.Sink {
		cfg := unhurried(cfg)
		cfg.User, cfg.Password = user, password
		s, err := kafka.Open(cfg, log)
		check(t, err)
		return s
	}
}

// badMessages are messages that no broker accepts.
func badMessages(limit int) []sinktest.Bad {
	bad := []sinktest.Bad{
		{Name: "larger than max_message_bytes", Message: penstock.Message{Topic: topics[0], Payload: make([]byte, limit)}},
		{Name: "a topic of the brokers", Message: penstock.Message{Topic: "__consumer_offsets"}},
		{Name: "no topic", Message: penstock.Message{}},
	}
	for _, topic := range []string{"orders placed", "orders/placed", "..", "Ærø", strings.Repeat("x", 250)} {
		bad = append(bad, sinktest.Bad{Name: "topic " + topic, Message: penstock.Message{Topic: topic}})
	}
	for i := range bad {
		bad[i].Message.ID, bad[i].Message.Key = "bad", "key-of-bad"
	}
	return bad
}
