package kafka_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/sinktest"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/internal/test/testcerts"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/sink/kafka"
)

// The tests of this file need Apache Kafka itself. It needs Java, so `make test-kafka` runs them.
// `make test` uses kfake and skips them.
func needBroker(t *testing.T) {
	t.Helper()
	if !testserver.HasKafka() {
		t.Skip("run by make test-kafka")
	}
}

// A broker that requires a user, behind a network that fails, and that is killed.
func TestBrokerConformance(t *testing.T) {
	needBroker(t)
	i := newIssuer(t, time.Hour)
	o := i.options("client")
	o.Properties = append(o.Properties, "listener.name.client.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512,OAUTHBEARER")
	b := startBroker(t, o)
	t.Logf("Apache Kafka %s", b.Version())
	for _, cfg := range []kafka.Config{
		{SASL: "scram-sha-512", Compression: "lz4"},
		{SASL: "plain", Compression: "gzip", Timestamp: "created"},
		{SASL: "oauthbearer", OAuth: kafka.OAuthConfig{TokenURL: i.URL, Scope: "kafka"}},
	} {
		t.Run(cfg.SASL, func(t *testing.T) {
			var only []string
			if cfg.SASL == "oauthbearer" {
				only = sinktest.Transport
			}
			sinktest.Run(t, sinktest.Harness{
				Features: everything,
				Only:     only,
				New:      func(t *testing.T) *sinktest.Destination { return b.destination(t, cfg) },
			})
		})
	}
}

// A listener with TLS that requires a client's certificate. Java's TLS and Go's differ in what
// they refuse, and how.
func TestBrokerTLS(t *testing.T) {
	needBroker(t)
	authority, other := testcerts.New(t), testcerts.New(t)
	cert, client, stranger := authority.Server(t, "kafka.example"), authority.Client(t), other.Client(t)
	port, err := testserver.FreePort()
	check(t, err)
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	b := startBroker(t, testserver.KafkaOptions{
		Listeners: []testserver.KafkaListener{{Name: "SECURE", Protocol: "SASL_SSL", Port: port, Advertised: addr}},
		Properties: []string{
			"listener.name.secure.ssl.keystore.type=PEM",
			"listener.name.secure.ssl.keystore.location=" + joined(t, cert.KeyFile, cert.CertFile),
			"listener.name.secure.ssl.truststore.type=PEM",
			"listener.name.secure.ssl.truststore.location=" + authority.CAFile,
			"listener.name.secure.ssl.client.auth=required",
			"listener.name.secure.sasl.enabled.mechanisms=SCRAM-SHA-512",
			"listener.name.secure.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;",
		},
	})
	topic := b.create(t, "orders.placed", nil)
	good := unhurried(kafka.Config{
		URL: "kafkas://" + addr, User: user, Password: password, SASL: "scram-sha-512", Compression: "zstd",
		TLS: kafka.TLSConfig{CAFile: authority.CAFile, CertFile: client.CertFile, KeyFile: client.KeyFile, ServerName: "kafka.example"},
	})
	for _, c := range []struct {
		name   string
		change func(*kafka.Config)
		says   string
	}{
		{"another authority", func(c *kafka.Config) { c.TLS.CAFile = other.CAFile }, "set tls.ca_file"},
		{"the system's authorities", func(c *kafka.Config) { c.TLS.CAFile = "" }, "set tls.ca_file"},
		{"another name", func(c *kafka.Config) { c.TLS.ServerName = "" }, "set tls.server_name"},
		{"no client certificate", func(c *kafka.Config) { c.TLS.CertFile, c.TLS.KeyFile = "", "" }, "set tls.cert_file"},
		{"another authority's client certificate", func(c *kafka.Config) {
			c.TLS.CertFile, c.TLS.KeyFile = stranger.CertFile, stranger.KeyFile
		}, "set tls.cert_file"},
		{"no TLS", func(c *kafka.Config) { c.URL, c.TLS = "kafka://"+addr, kafka.TLSConfig{} }, "kafkas://"},
		{"TLS to a listener without", func(c *kafka.Config) { c.URL = "kafkas://" + b.proxy.Addr() }, "kafka://"},
		{"wrong password", func(c *kafka.Config) { c.Password = wrong }, "check user, password and sasl"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := good
			c.change(&cfg)
			wantAnswer(t, send(t, open(t, cfg), message("refused", "", topic))[0], "unavailable", c.says)
		})
	}
	msgs := make([]penstock.Message, 1000)
	for i := range msgs {
		msgs[i] = message(fmt.Sprint(i), fmt.Sprint("key-", i%10), topic)
	}
	for i, err := range send(t, open(t, good), msgs...) {
		if err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	next := map[string]int{} // of each key, as an index of msgs
	for i := range 10 {
		next[msgs[i].Key] = i
	}
	got := newReader(t, []string{topic}, kgo.SeedBrokers(b.addr())).drain(t, len(msgs))
	for _, m := range got {
		if i := next[m.Key]; i >= len(msgs) || m.ID != msgs[i].ID {
			t.Fatalf("key %s: message %s came, want %d", m.Key, m.ID, next[m.Key])
		}
		next[m.Key] += 10
	}
	if len(got) != len(msgs) {
		t.Errorf("%d messages are there, want %d and nothing that was refused", len(got), len(msgs))
	}
}

// joined is a file with the contents of others.
func joined(t *testing.T, files ...string) string {
	t.Helper()
	var all []byte
	for _, file := range files {
		data, err := os.ReadFile(file)
		check(t, err)
		all = append(all, data...)
	}
	file := filepath.Join(t.TempDir(), "joined.pem")
	check(t, os.WriteFile(file, all, 0o600))
	return file
}

// broker has a listener for the sink, behind a proxy, and one for the test.
type broker struct {
	*testserver.Kafka
	proxy  *tcpproxy.Proxy
	admin  *kadm.Client
	topics atomic.Int64
}

func startBroker(t *testing.T, o testserver.KafkaOptions) *broker {
	t.Helper()
	port, err := testserver.FreePort()
	check(t, err)
	b := &broker{proxy: tcpproxy.New(t, fmt.Sprintf("127.0.0.1:%d", port))}
	o.Listeners = append(o.Listeners, testserver.KafkaListener{Name: "CLIENT", Protocol: "SASL_PLAINTEXT", Port: port, Advertised: b.proxy.Addr()})
	o.Scram = append(o.Scram, fmt.Sprintf("SCRAM-SHA-512=[name=%s,password=%s]", user, password), fmt.Sprintf("SCRAM-SHA-256=[name=%s,password=%s]", user, password))
	o.Properties = append([]string{
		"message.max.bytes=4194304",
		"listener.name.client.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
		"listener.name.client.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;",
		"listener.name.client.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;",
		fmt.Sprintf(`listener.name.client.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_%s="%s";`, user, password),
	}, o.Properties...)
	b.Kafka = testserver.StartKafka(t, o)
	client, err := kgo.NewClient(kgo.SeedBrokers(b.addr()))
	check(t, err)
	t.Cleanup(client.Close)
	b.admin = kadm.NewClient(client)
	return b
}

func (b *broker) addr() string { return strings.TrimPrefix(b.URL, "kafka://") }

// create creates a topic that no other test uses.
func (b *broker) create(t *testing.T, name string, config map[string]string) string {
	t.Helper()
	name = fmt.Sprintf("%s-%d", name, b.topics.Add(1))
	values := map[string]*string{}
	for k, v := range config {
		values[k] = &v
	}
	ctx, cancel := context.WithTimeout(context.Background(), sinktest.Patience)
	defer cancel()
	_, err := b.admin.CreateTopic(ctx, 3, 1, values, name)
	check(t, err)
	for { // until the broker has learned of it from its controller
		found, err := b.admin.ListTopics(ctx, name)
		check(t, err)
		if topic := found[name]; topic.Err == nil && len(topic.Partitions) == 3 {
			return name
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (b *broker) destination(t *testing.T, cfg kafka.Config) *sinktest.Destination {
	cfg.URL, cfg.MaxMessageBytes = "kafka://"+b.proxy.Addr(), 2<<20
	topics := []string{b.create(t, "orders.placed", nil), b.create(t, "orders.cancelled", nil)}
	bad := badMessages(cfg.MaxMessageBytes)
	bad[0].Message.Topic = topics[0]
	t.Cleanup(b.proxy.Resume)
	return &sinktest.Destination{
		Topics: topics,
		Open:   opener(cfg, password),
		Drain:  newReader(t, topics, kgo.SeedBrokers(b.addr())).drain,
		Down:   b.proxy.Refuse,
		Up:     b.proxy.Resume,
		Stall:  func() { b.proxy.Stall(tcpproxy.Both) },
		Restart: func(t *testing.T) {
			check(t, b.Kill())
			check(t, b.Start())
		},
		Unroutable: &penstock.Message{ID: "lost", Topic: "invoices.sent", Payload: []byte("x")},
		Bad:        bad,
		Secrets:    []string{password, wrong},
		OpenDenied: opener(cfg, wrong),
	}
}
