package rabbitmq_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/url"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/sinktest"
	"github.com/penstock/penstock/internal/test/testcerts"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/sink/rabbitmq"
)

// room is an exchange and a queue of a test's own, with a connection to look
// after them.
type room struct {
	url      string
	exchange string
	queue    string
	conn     *amqp.Connection
	ch       *amqp.Channel
}

// broker is a broker that tests kill and configure. It has a user relay who may only write, and a
// TLS listener that requires a client certificate.
type broker struct {
	*testserver.RabbitMQ
	password   string // relay's
	authority  *testcerts.Authority
	tlsAddress string
}

// One broker for all of these tests, because starting one takes as long as they do.
func TestOwnBroker(t *testing.T) {
	authority := testcerts.New(t)
	cert := authority.Server(t, "mq.example", "127.0.0.2")
	port, err := testserver.FreePort()
	check(t, err)
	b := &broker{password: "hush-hush-4711", authority: authority, tlsAddress: fmt.Sprintf("127.0.0.1:%d", port)}
	b.RabbitMQ = testserver.StartRabbitMQ(t,
		"listeners.ssl.1 = "+b.tlsAddress,
		"ssl_options.cacertfile = "+authority.CAFile,
		"ssl_options.certfile = "+cert.CertFile,
		"ssl_options.keyfile = "+cert.KeyFile,
		"ssl_options.verify = verify_peer",
		"ssl_options.fail_if_no_peer_cert = true",
	)
	b.ctl(t, "await_startup") // it takes connections before its other commands
	b.ctl(t, "add_user", "relay", b.password)
	b.ctl(t, "set_permissions", "relay", "", ".*", "")
	t.Run("Conformance", b.conformance)
	t.Run("TLS", b.tls)
	t.Run("Refuses", b.refuses)
}

func (b *broker) ctl(t *testing.T, args ...string) {
	t.Helper()
	_, err := b.Ctl(args...)
	check(t, err)
}

// newRoom makes a topic exchange whose queue takes orders.*.
func newRoom(t testing.TB, brokerURL string) *room {
	t.Helper()
	name := "penstock-test-" + rand.Text()
	r := &room{url: brokerURL, exchange: name, queue: name}
	r.connect(t)
	check(t, r.ch.ExchangeDeclare(name, amqp.ExchangeTopic, true, false, false, false, nil))
	_, err := r.ch.QueueDeclare(name, true, false, false, false, nil)
	check(t, err)
	check(t, r.ch.QueueBind(name, "orders.*", name, false, nil))
	t.Cleanup(func() {
		if r.conn.IsClosed() {
			r.connect(t) // after a restart
		}
		_, err := r.ch.QueueDelete(name, false, false, false)
		check(t, err)
		check(t, r.ch.ExchangeDelete(name, false, false))
		check(t, r.conn.Close())
	})
	return r
}

func (r *room) connect(t testing.TB) {
	t.Helper()
	conn, err := amqp.Dial(r.url)
	check(t, err)
	ch, err := conn.Channel()
	check(t, err)
	r.conn, r.ch = conn, ch
}

// drain takes n messages out of the queue, and those that are there beyond n.
func (r *room) drain(t *testing.T, n int) []sinktest.Received {
	t.Helper()
	if r.conn.IsClosed() {
		r.connect(t)
	}
	var got []sinktest.Received
	for deadline := time.Now().Add(sinktest.Patience); ; {
		d, ok, err := r.ch.Get(r.queue, true)
		check(t, err)
		switch {
		case ok:
			got = append(got, received(t, d))
		case len(got) >= n || time.Now().After(deadline):
			return got
		default:
			time.Sleep(time.Millisecond)
		}
	}
}

func received(t *testing.T, d amqp.Delivery) sinktest.Received {
	t.Helper()
	if d.DeliveryMode != amqp.Persistent {
		t.Errorf("message %s is not persistent", d.MessageId)
	}
	r := sinktest.Received{ID: d.MessageId, Topic: d.RoutingKey, Payload: d.Body, CreatedAt: d.Timestamp, Headers: map[string]string{}}
	for name, value := range d.Headers {
		r.Headers[name] = fmt.Sprint(value)
	}
	if d.ContentType != "" {
		r.Headers["content-type"] = d.ContentType
	}
	r.Key = r.Headers["penstock-key"]
	if topic, ok := r.Headers["penstock-topic"]; ok {
		r.Topic = topic
	}
	if text, ok := r.Headers["penstock-created-at"]; ok {
		exact, err := time.Parse(time.RFC3339Nano, text)
		check(t, err)
		if !exact.Truncate(time.Second).Equal(d.Timestamp) {
			t.Errorf("message %s: timestamp %v, header %v", d.MessageId, d.Timestamp, exact)
		}
		r.CreatedAt = exact
	}
	return r
}

// config sends to the room through address, which is a proxy or the broker.
func (r *room) config(t testing.TB, address string) rabbitmq.Config {
	t.Helper()
	u, err := url.Parse(r.url)
	check(t, err)
	u.Host = address
	return rabbitmq.Config{URL: u.String(), Exchange: r.exchange, CreatedAtHeader: true}
}

// host is where a broker listens.
func host(t testing.TB, brokerURL string) string {
	t.Helper()
	u, err := amqp.ParseURI(brokerURL)
	check(t, err)
	return fmt.Sprintf("%s:%d", u.Host, u.Port)
}

// open opens a sink that the test closes.
func open(t testing.TB, cfg rabbitmq.Config) *rabbitmq.Sink {
	t.Helper()
	s, err := rabbitmq.Open(cfg, slog.New(slog.DiscardHandler))
	check(t, err)
	t.Cleanup(func() { check(t, s.Close(patient(t))) })
	return s
}

func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), sinktest.Patience)
	t.Cleanup(cancel)
	return ctx
}

// orders makes n messages of different keys.
func orders(n int) []penstock.Message {
	msgs := make([]penstock.Message, n)
	for i := range msgs {
		msgs[i] = penstock.Message{
			ID: fmt.Sprintf("id-%d", i), Key: fmt.Sprintf("key-%d", i), Topic: "orders.placed",
			Payload: []byte("payload"), CreatedAt: time.Now(), Attempt: 1,
		}
	}
	return msgs
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
