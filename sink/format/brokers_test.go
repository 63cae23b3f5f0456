package format_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/sinktest"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/sink/format"
	"github.com/penstock/penstock/sink/kafka"
	"github.com/penstock/penstock/sink/nats"
	"github.com/penstock/penstock/sink/rabbitmq"
	"github.com/penstock/penstock/sink/stdout"
	"github.com/penstock/penstock/sink/webhook"
)

// arrival is a message that a consumer of a broker receives, by the vendor's client.
type arrival struct {
	headers     map[string]string // without the content type
	contentType string
	payload     []byte
}

// broker is a destination that is created for one test.
type broker struct {
	binding format.Binding
	prefix  string // of attributes
	percent bool   // values are percent-encoded
	open    func(t *testing.T, log *slog.Logger) driver.Sink
	// take waits for n messages and returns all that are there by then; it gives up after
	// sinktest.Patience.
	take  func(t *testing.T, n int) []arrival
	proxy *tcpproxy.Proxy // between the sink and the broker; nil if there is no network
}

// brokers are all brokers. Topics orders.placed and orders.cancelled exist.
var brokers = map[string]func(*testing.T) *broker{
	"stdout": newStdout, "webhook": newWebhook, "kafka": newKafka, "nats": newNATS, "rabbitmq": newRabbitMQ,
}

func newStdout(*testing.T) *broker {
	var mu sync.Mutex
	var out bytes.Buffer
	locked := writerFunc(func(b []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return out.Write(b)
	})
	return &broker{
		binding: stdout.Driver.Binding, prefix: "ce-",
		open: func(*testing.T, *slog.Logger) driver.Sink { return stdout.New(locked) },
		take: func(t *testing.T, _ int) (got []arrival) {
			mu.Lock()
			defer mu.Unlock()
			for dec := json.NewDecoder(&out); dec.More(); {
				var line struct {
					Headers       map[string]string
					Payload       string
					PayloadBase64 []byte `json:"payload_base64"`
				}
				check(t, dec.Decode(&line))
				a := arrival{headers: line.Headers, contentType: line.Headers["content-type"], payload: append([]byte(line.Payload), line.PayloadBase64...)}
				delete(a.headers, "content-type")
				got = append(got, a)
			}
			return got
		},
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func newWebhook(t *testing.T) *broker {
	requests := make(chan arrival, 10_000)
	endpoint := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		a := arrival{headers: map[string]string{}, contentType: r.Header.Get("Content-Type"), payload: body}
		for name, values := range r.Header {
			a.headers[name] = values[0]
		}
		requests <- a
	}))
	t.Cleanup(endpoint.Close)
	return &broker{
		binding: webhook.Driver.Binding, prefix: "Ce-", percent: true,
		open: func(t *testing.T, log *slog.Logger) driver.Sink {
			s, err := webhook.Open(webhook.Config{URL: endpoint.URL, AllowPrivate: true}, log)
			check(t, err)
			return s
		},
		take: func(t *testing.T, n int) (got []arrival) {
			for ctx := patient(t); len(got) < n && ctx.Err() == nil; {
				select {
				case a := <-requests:
					got = append(got, a)
				case <-ctx.Done():
				}
			}
			return got
		},
	}
}

func newKafka(t *testing.T) *broker {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders.placed", "orders.cancelled"),
		kfake.BrokerConfigs(map[string]string{"message.max.bytes": "4194304"}))
	check(t, err)
	t.Cleanup(cluster.Close)
	consumer, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics("orders.placed", "orders.cancelled"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(50*time.Millisecond))
	check(t, err)
	t.Cleanup(consumer.Close)
	return &broker{
		binding: kafka.Driver.Binding, prefix: "ce_",
		open: func(t *testing.T, log *slog.Logger) driver.Sink {
			s, err := kafka.Open(kafka.Config{URL: "kafka://" + cluster.ListenAddrs()[0], MaxMessageBytes: 4 << 20}, log)
			check(t, err)
			return s
		},
		take: func(t *testing.T, n int) (got []arrival) {
			for ctx := patient(t); len(got) < n && ctx.Err() == nil; {
				consumer.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
					a := arrival{headers: map[string]string{}, payload: r.Value}
					for _, h := range r.Headers {
						a.headers[h.Key] = string(h.Value)
					}
					a.contentType = a.headers["content-type"]
					delete(a.headers, "content-type")
					got = append(got, a)
				})
			}
			return got
		},
	}
}

func newNATS(t *testing.T) *broker {
	srv, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true, MaxPayload: 4 << 20,
	})
	check(t, err)
	srv.Start()
	t.Cleanup(func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	})
	if !srv.ReadyForConnections(sinktest.Patience) {
		t.Fatal("the test's NATS server does not start")
	}
	conn, err := natsgo.Connect(srv.ClientURL())
	check(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	check(t, err)
	stream, err := js.CreateStream(patient(t), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	check(t, err)
	read := uint64(0)
	consumer := func() jetstream.Consumer { // again for each call: a message that comes after its time is not delivered again
		c, err := stream.CreateConsumer(patient(t), jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: read + 1})
		check(t, err)
		return c
	}
	proxy := tcpproxy.New(t, srv.Addr().String())
	return &broker{
		binding: nats.Driver.Binding, prefix: "ce-", percent: true, proxy: proxy,
		open: func(t *testing.T, log *slog.Logger) driver.Sink {
			s, err := nats.Open(nats.Config{URL: "nats://" + proxy.Addr(), ConnectTimeout: sinktest.Patience, AckWait: sinktest.Patience}, log)
			check(t, err)
			return s
		},
		take: func(t *testing.T, n int) (got []arrival) {
			from := func(batch jetstream.MessageBatch, err error) int {
				check(t, err)
				before := len(got)
				for msg := range batch.Messages() {
					meta, err := msg.Metadata()
					check(t, err)
					read = meta.Sequence.Stream
					a := arrival{headers: map[string]string{}, contentType: msg.Headers().Get("Content-Type"), payload: msg.Data()}
					for name, values := range msg.Headers() {
						a.headers[name] = values[0]
					}
					got = append(got, a)
				}
				return len(got) - before
			}
			for ctx := patient(t); len(got) < n && ctx.Err() == nil; {
				from(consumer().Fetch(n-len(got), jetstream.FetchMaxWait(time.Second)))
			}
			for from(consumer().FetchNoWait(1000)) > 0 {
			}
			return got
		},
	}
}

func newRabbitMQ(t *testing.T) *broker {
	brokerURL := testserver.RabbitMQURL(t)
	conn, err := amqp.Dial(brokerURL)
	check(t, err)
	ch, err := conn.Channel()
	check(t, err)
	name := "penstock-test-format-" + rand.Text()
	check(t, ch.ExchangeDeclare(name, amqp.ExchangeTopic, true, false, false, false, nil))
	_, err = ch.QueueDeclare(name, true, false, false, false, nil)
	check(t, err)
	check(t, ch.QueueBind(name, "orders.*", name, false, nil))
	t.Cleanup(func() {
		_, err := ch.QueueDelete(name, false, false, false)
		check(t, err)
		check(t, ch.ExchangeDelete(name, false, false))
		check(t, conn.Close())
	})
	u, err := amqp.ParseURI(brokerURL)
	check(t, err)
	proxy := tcpproxy.New(t, fmt.Sprintf("%s:%d", u.Host, u.Port))
	return &broker{
		binding: rabbitmq.Driver.Binding, prefix: "cloudEvents_", proxy: proxy,
		open: func(t *testing.T, log *slog.Logger) driver.Sink {
			to, err := url.Parse(brokerURL)
			check(t, err)
			to.Host = proxy.Addr()
			s, err := rabbitmq.Open(rabbitmq.Config{URL: to.String(), Exchange: name}, log)
			check(t, err)
			return s
		},
		take: func(t *testing.T, n int) (got []arrival) {
			for deadline := time.Now().Add(sinktest.Patience); ; {
				d, ok, err := ch.Get(name, true)
				check(t, err)
				switch {
				case ok:
					a := arrival{headers: map[string]string{}, contentType: d.ContentType, payload: d.Body}
					for name, value := range d.Headers {
						a.headers[name] = fmt.Sprint(value)
					}
					got = append(got, a)
				case len(got) >= n || time.Now().After(deadline):
					return got
				default:
					time.Sleep(time.Millisecond)
				}
			}
		},
	}
}

func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), sinktest.Patience)
	t.Cleanup(cancel)
	return ctx
}
