package pubsub_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/pubsubtest"
	"github.com/penstock/penstock/internal/test/sinktest"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/sink/pubsub"
)

func TestMain(m *testing.M) { pubsubtest.Main(m) }

var topics = []string{"orders.placed", "orders.cancelled"}

// The configuration has no secret: credentials are those of the environment.
func TestConformance(t *testing.T) {
	sinktest.Run(t, sinktest.Harness{
		Features: sinktest.Features{ReadBack: true, InOrder: true, Network: true, Durable: true, Routes: true, Refuses: true},
		New: func(t *testing.T) *sinktest.Destination {
			e := pubsubtest.Start(t)
			for _, topic := range topics {
				e.Topic(t, topic)
			}
			proxy := tcpproxy.New(t, e.Address)
			d := &sinktest.Destination{
				Topics: topics,
				Open:   func(t *testing.T, log *slog.Logger) driver.Sink { return open(t, proxy.Addr()) },
				Drain:  func(t *testing.T, n int) []sinktest.Received { return e.Drain(t, n, topics...) },
				Down:   proxy.Refuse, Up: proxy.Resume,
				Stall: func() { proxy.Stall(tcpproxy.Both) },
				Restart: func(t *testing.T) {
					check(t, e.Kill())
					check(t, e.Program.Start())
				},
				Unroutable: &penstock.Message{ID: "lost", Topic: "invoices.sent", Payload: []byte("x")},
				Bad: []sinktest.Bad{
					{Name: "a byte too much", Message: penstock.Message{Key: "k", Payload: make([]byte, 10_000_000)}},
					{Name: "a long header", Message: penstock.Message{Key: "k", Headers: map[string]string{"note": strings.Repeat("x", 1025)}}},
					{Name: "a header that the service refuses", Message: penstock.Message{Key: "k", Headers: map[string]string{"googly": "x"}}},
				},
			}
			for i := range d.Bad {
				d.Bad[i].Message.ID, d.Bad[i].Message.Topic = "bad", topics[0]
			}
			return d
		},
	})
}

func open(t *testing.T, address string) *pubsub.Sink {
	t.Helper()
	s, err := pubsub.Open(pubsub.Config{Project: pubsubtest.Project, Endpoint: "http://" + address, AllowPrivate: true, Timeout: time.Minute}, nil)
	check(t, err)
	return s
}

func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), sinktest.Patience)
	t.Cleanup(cancel)
	return ctx
}

// The consumer of the demo and the benchmark.
func TestReadBack(t *testing.T) {
	sinktest.ReadBack(t, pubsub.Driver, "pubsub://"+pubsubtest.Project+"/orders?allow_private=true&endpoint=http://"+pubsubtest.Start(t).Address)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
