package kafka_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/sink/kafka"
)

// A message as a consumer sees it.
func TestRecord(t *testing.T) {
	c := startCluster(t, 1, kfake.SeedTopics(1, "shop.orders"))
	created := time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)
	m := penstock.Message{
		ID: "id-1", Key: "k", Topic: "orders", Payload: []byte("{}"), CreatedAt: created, Attempt: 2,
		Headers: map[string]string{"content-type": "application/json", "penstock-id": "forged", "Mixed-Case": "stays"},
	}
	before := time.Now().Add(-time.Second)
	sent := c.open(t, func(cfg *kafka.Config) { cfg.Topic = "shop.{topic}" })
	wantAnswer(t, send(t, sent, m)[0], "confirmed", "")
	asCreated := c.open(t, func(cfg *kafka.Config) { cfg.Topic, cfg.Timestamp = "shop.{topic}", "created" })
	bare := penstock.Message{ID: "id-2", Topic: "orders", CreatedAt: created, Attempt: 1}
	wantAnswer(t, send(t, asCreated, bare)[0], "confirmed", "")

	records := newReader(t, []string{"shop.orders"}, kgo.SeedBrokers(c.proxies[0].Addr())).records(t, 2)
	if len(records) != 2 {
		t.Fatalf("%d records", len(records))
	}
	headers := func(r *kgo.Record) map[string]string {
		all := map[string]string{}
		for _, h := range r.Headers {
			if _, twice := all[h.Key]; twice {
				t.Errorf("header %s is there twice", h.Key)
			}
			all[h.Key] = string(h.Value)
		}
		return all
	}
	want := map[string]string{
		"penstock-id": "id-1", "penstock-topic": "orders", "penstock-attempt": "2", "penstock-created-at": "2026-01-02T03:04:05.678901Z",
		"content-type": "application/json", "Mixed-Case": "stays",
	}
	if got := headers(records[0]); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("headers are %v, want %v", got, want)
	}
	if r := records[0]; string(r.Key) != "k" || string(r.Value) != "{}" || r.Timestamp.Before(before) {
		t.Errorf("key %q, value %q, timestamp %v", r.Key, r.Value, r.Timestamp)
	}
	// Without a key the key is null; an empty payload is not: null would delete.
	if r := records[1]; r.Key != nil || r.Value == nil || len(r.Value) != 0 || !r.Timestamp.Equal(created.Truncate(time.Millisecond)) {
		t.Errorf("key %v, value %v, timestamp %v", r.Key, r.Value, r.Timestamp)
	}
}

// Keys go to the partitions that Kafka's own clients choose, so the sink and other producers
// agree. Messages without a key go to all partitions.
func TestPartitions(t *testing.T) {
	const partitions = 5
	c := startCluster(t, 1, kfake.SeedTopics(partitions, orders, "theirs"))
	s := c.open(t, nil)
	theirs, err := kgo.NewClient(kgo.SeedBrokers(c.proxies[0].Addr()))
	check(t, err)
	defer theirs.Close()
	want := map[string]int32{}
	var msgs []penstock.Message
	for i := range 50 {
		key := fmt.Sprint("customer-", i)
		r, err := theirs.ProduceSync(t.Context(), &kgo.Record{Topic: "theirs", Key: []byte(key)}).First()
		check(t, err)
		want[key] = r.Partition
		msgs = append(msgs, message(fmt.Sprint(i), key, orders))
	}
	for range 400 {
		m := message("loose", "", orders)
		m.Payload = make([]byte, 4<<10)
		msgs = append(msgs, m)
	}
	for _, err := range send(t, s, msgs...) {
		check(t, err)
	}
	loose := map[int32]int{}
	for _, r := range newReader(t, []string{orders}, kgo.SeedBrokers(c.proxies[0].Addr())).records(t, len(msgs)) {
		if r.Key == nil {
			loose[r.Partition]++
		} else if r.Partition != want[string(r.Key)] {
			t.Errorf("%s is in partition %d, theirs in %d", r.Key, r.Partition, want[string(r.Key)])
		}
	}
	if len(loose) < 2 {
		t.Errorf("messages without a key by partition: %v", loose)
	}
}

// Every compression can be read.
func TestCompression(t *testing.T) {
	c := startCluster(t, 1, kfake.SeedTopics(1, orders))
	reader := newReader(t, []string{orders}, kgo.SeedBrokers(c.proxies[0].Addr()))
	for i, name := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		s := c.open(t, func(cfg *kafka.Config) { cfg.Compression = name })
		m := message(name, "", orders)
		m.Payload = []byte(strings.Repeat(name, 1000))
		wantAnswer(t, send(t, s, m)[0], "confirmed", "")
		got := reader.records(t, 1)
		if len(got) != 1 || string(got[0].Value) != string(m.Payload) || int(got[0].Attrs.CompressionType()) != i {
			t.Errorf("%s: %d records, type %d", name, len(got), got[0].Attrs.CompressionType())
		}
	}
}

// Wrong certificates and logins are errors of the broker, and name the setting.
func TestLogin(t *testing.T) {
	certs := makeCertificates(t)
	secure := startCluster(t, 1, kfake.SeedTopics(1, orders), kfake.TLS(certs.server), kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", user, password))
	for _, l := range []struct {
		name   string
		change func(*kafka.Config)
		want   string // "" if it works
	}{
		{"in order", func(*kafka.Config) {}, ""},
		{"no check of the certificate", func(c *kafka.Config) {
			c.TLS.CAFile, c.TLS.ServerName, c.TLS.DangerouslySkipCertificateCheck = "", "", true
		}, ""},
		{"unknown authority", func(c *kafka.Config) { c.TLS.CAFile = "" }, "set tls.ca_file"},
		{"another name", func(c *kafka.Config) { c.TLS.ServerName = "" }, "set tls.server_name"},
		{"no client certificate", func(c *kafka.Config) { c.TLS.CertFile, c.TLS.KeyFile = "", "" }, "no Kafka broker can be reached"},
		{"no TLS", func(c *kafka.Config) { c.URL = "kafka://" + secure.proxies[0].Addr(); c.TLS = kafka.TLSConfig{} }, "kafkas://"},
		{"wrong password", func(c *kafka.Config) { c.Password = wrong }, "check user, password and sasl"},
		{"wrong mechanism", func(c *kafka.Config) { c.SASL = "plain" }, "sasl"},
		{"no user", func(c *kafka.Config) { c.User, c.Password, c.SASL = "", "", "" }, "a user"},
	} {
		t.Run(l.name, func(t *testing.T) {
			s := secure.open(t, func(cfg *kafka.Config) {
				cfg.URL = "kafkas://" + secure.proxies[0].Addr()
				cfg.User, cfg.Password, cfg.SASL, cfg.TLS = user, password, "scram-sha-256", certs.client
				l.change(cfg)
			})
			want := "unavailable"
			if l.want == "" {
				want = "confirmed"
			}
			wantAnswer(t, send(t, s, message("1", "", orders))[0], want, l.want)
		})
	}
}

// The sink requires acks of all in-sync replicas, and idempotent writes.
func TestAcks(t *testing.T) {
	c := startCluster(t, 1, kfake.SeedTopics(1, orders))
	seen := make(chan *kmsg.ProduceRequest, 1)
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		select {
		case seen <- r.(*kmsg.ProduceRequest):
		default:
		}
		return nil, nil, false
	})
	wantAnswer(t, send(t, c.open(t, nil), message("1", "", orders))[0], "confirmed", "")
	r := <-seen
	var batch kmsg.RecordBatch
	check(t, batch.ReadFrom(r.Topics[0].Partitions[0].Records))
	if r.Acks != -1 || batch.ProducerID < 0 {
		t.Errorf("acks %d, producer id %d", r.Acks, batch.ProducerID)
	}
}
