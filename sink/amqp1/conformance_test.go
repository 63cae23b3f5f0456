package amqp1_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/sinktest"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/sink/amqp1"
)

const (
	user     = "relay"
	password = "hush-hush-4711"
	wrong    = "wrong-4712"
	maxBytes = 2 << 20
)

var topics = []string{"orders.placed", "orders.cancelled"}

// room is where the messages of a test go.
type room struct {
	address string   // the template of the sink
	queues  []string // the addresses to read from
}

// broker is a server that a test may kill.
type broker interface {
	Kill() error
	Start() error
}

// A topic exchange with a queue for all topics of the test. Debian's RabbitMQ has AMQP 1.0 in a plugin, with other addresses.
func TestRabbitMQ(t *testing.T) {
	r := testserver.StartRabbitMQ(t, fmt.Sprintf("max_message_size = %d", maxBytes))
	version, err := r.Ctl("version")
	check(t, err)
	if strings.HasPrefix(strings.TrimSpace(version), "3.") {
		t.Skip("needs RabbitMQ 4: make test-engines")
	}
	t.Logf("RabbitMQ %s", strings.TrimSpace(version))
	for _, args := range [][]string{{"add_user", user, password}, {"set_permissions", user, "", ".*", ".*"}} {
		_, err := r.Ctl(args...)
		check(t, err)
	}
	u, err := url.Parse(r.URL)
	check(t, err)
	features := sinktest.Features{ReadBack: true, Network: true, Durable: true, Routes: true, Refuses: true, Secrets: true}
	conformance(t, r, u.Host, features, func(t *testing.T) room {
		conn, err := amqp091.Dial(r.URL)
		check(t, err)
		defer conn.Close()
		ch, err := conn.Channel()
		check(t, err)
		name := "room-" + rand.Text()[:8]
		check(t, ch.ExchangeDeclare(name, "topic", true, false, false, false, nil))
		_, err = ch.QueueDeclare(name, true, false, false, false, nil)
		check(t, err)
		for _, topic := range topics {
			check(t, ch.QueueBind(name, topic, name, false, nil))
		}
		return room{"/exchanges/" + name + "/{topic}", []string{"/queues/" + name}}
	})
}

// A queue for each topic.
func TestArtemis(t *testing.T) {
	const rooms = 60
	var queues []string
	for i := range rooms {
		for _, topic := range topics {
			queues = append(queues, fmt.Sprintf("room-%d-%s", i, topic))
		}
	}
	a := testserver.StartArtemis(t, user, password, queues...)
	next := 0
	features := sinktest.Features{ReadBack: true, Network: true, Durable: true, Routes: true, Secrets: true} // it takes messages of any size
	conformance(t, a, a.Address, features, func(t *testing.T) room {
		defer func() { next++ }()
		return room{fmt.Sprintf("room-%d-{topic}", next), queues[2*next : 2*next+2]}
	})
}

// The consumer of the demo and the benchmark.
func TestArtemisReadBack(t *testing.T) {
	a := testserver.StartArtemis(t, user, password)
	sinktest.ReadBack(t, amqp1.Driver, fmt.Sprintf("amqp1://%s:%s@%s", user, password, a.Address))
}

func conformance(t *testing.T, b broker, address string, features sinktest.Features, furnish func(*testing.T) room) {
	sinktest.Run(t, sinktest.Harness{
		Features: features,
		New: func(t *testing.T) *sinktest.Destination {
			room, proxy := furnish(t), tcpproxy.New(t, address)
			as := func(password string) func(*testing.T, *slog.Logger) driver.Sink {
				return func(t *testing.T, log *slog.Logger) driver.Sink {
					s, err := amqp1.Open(amqp1.Config{URL: fmt.Sprintf("amqp1://%s:%s@%s", user, password, proxy.Addr()), Address: room.address, Timeout: time.Minute, ConnectTimeout: time.Minute}, log)
					check(t, err)
					return s
				}
			}
			return &sinktest.Destination{
				Topics: topics,
				Open:   as(password),
				Drain:  func(t *testing.T, n int) []sinktest.Received { return drain(t, address, n, room.queues) },
				Down:   proxy.Refuse, Up: proxy.Resume,
				Stall: func() { proxy.Stall(tcpproxy.Both) },
				Restart: func(t *testing.T) {
					check(t, b.Kill())
					check(t, b.Start())
				},
				Unroutable: &penstock.Message{ID: "lost", Topic: "invoices.sent", Payload: []byte("x")},
				Bad: []sinktest.Bad{
					{Name: "a byte too much", Message: penstock.Message{ID: "bad", Topic: topics[0], Payload: make([]byte, maxBytes+1)}},
				},
				Secrets:    []string{password, wrong},
				OpenDenied: as(wrong),
			}
		},
	})
}

// drain takes n messages out of the queues, and those that are there beyond n.
func drain(t *testing.T, address string, n int, queues []string) (got []sinktest.Received) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), sinktest.Patience)
	defer cancel()
	conn, err := amqp.Dial(ctx, "amqp://"+address, &amqp.ConnOptions{SASLType: amqp.SASLTypePlain(user, password)})
	check(t, err)
	defer conn.Close()
	session, err := conn.NewSession(ctx, nil)
	check(t, err)
	var receivers []*amqp.Receiver
	for _, queue := range queues {
		r, err := session.NewReceiver(ctx, queue, &amqp.ReceiverOptions{Credit: 1000})
		check(t, err)
		receivers = append(receivers, r)
	}
	for ctx.Err() == nil {
		before := len(got)
		for _, r := range receivers {
			got = append(got, receive(ctx, t, r)...)
		}
		if len(got) >= n && len(got) == before {
			return got
		}
	}
	return got
}

// receive takes messages until none comes for a moment.
func receive(ctx context.Context, t *testing.T, r *amqp.Receiver) (got []sinktest.Received) {
	t.Helper()
	for {
		wait, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		m, err := r.Receive(wait, nil)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			return got
		}
		check(t, err)
		check(t, r.AcceptMessage(ctx, m))
		got = append(got, received(t, m))
	}
}

func received(t *testing.T, m *amqp.Message) sinktest.Received {
	t.Helper()
	r := sinktest.Received{Headers: map[string]string{}, Payload: m.GetData()}
	for name, value := range m.ApplicationProperties {
		r.Headers[name] = fmt.Sprint(value)
	}
	p := m.Properties
	r.ID, _ = p.MessageID.(string)
	if p.GroupID != nil {
		r.Key = *p.GroupID
	}
	if p.Subject != nil {
		r.Topic = *p.Subject
	}
	if p.ContentType != nil {
		r.Headers["content-type"] = *p.ContentType
	}
	if r.Key != r.Headers["penstock-key"] || !m.Header.Durable {
		t.Errorf("group-id %q, penstock-key %q, durable %v", r.Key, r.Headers["penstock-key"], m.Header.Durable)
	}
	var err error
	r.CreatedAt, err = time.Parse(time.RFC3339Nano, r.Headers["penstock-created-at"])
	check(t, err)
	return r
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
