package rabbitmq_test

import (
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/sinktest"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/sink/rabbitmq"
)

// conformance also kills the broker.
func (b *broker) conformance(t *testing.T) {
	sinktest.Run(t, sinktest.Harness{
		Features: sinktest.Features{ReadBack: true, Network: true, Durable: true, Routes: true, Refuses: true, Secrets: true},
		New: func(t *testing.T) *sinktest.Destination {
			room := newRoom(t, b.URL)
			proxy := tcpproxy.New(t, host(t, b.URL))
			as := func(password string) func(*testing.T, *slog.Logger) driver.Sink {
				return func(t *testing.T, log *slog.Logger) driver.Sink {
					cfg := room.config(t, proxy.Addr())
					u, err := url.Parse(cfg.URL)
					check(t, err)
					u.User = url.UserPassword("relay", password)
					cfg.URL = u.String()
					cfg.Heartbeat = 10 * time.Minute // it shall not end what the sink should
					s, err := rabbitmq.Open(cfg, log)
					check(t, err)
					return s
				}
			}
			return &sinktest.Destination{
				Topics:     []string{"orders.placed", "orders.cancelled"},
				Open:       as(b.password),
				Drain:      room.drain,
				Down:       proxy.Refuse,
				Up:         proxy.Resume,
				Stall:      func() { proxy.Stall(tcpproxy.Both) },
				Unroutable: &penstock.Message{ID: "lost", Topic: "invoices.sent", Payload: []byte("x")},
				Bad: []sinktest.Bad{
					{Name: "routing key of 300 bytes", Message: penstock.Message{ID: "bad", Topic: "orders." + strings.Repeat("x", 293)}},
					{Name: "id of 256 bytes", Message: penstock.Message{ID: strings.Repeat("x", 256), Topic: "orders.placed"}},
					{Name: "header name of 256 bytes", Message: penstock.Message{ID: "bad", Topic: "orders.placed", Headers: map[string]string{strings.Repeat("x", 256): ""}}},
					{Name: "header CC", Message: penstock.Message{ID: "bad", Topic: "orders.placed", Headers: map[string]string{"CC": "elsewhere"}}},
				},
				Secrets:    []string{b.password, "wrong-4712"},
				OpenDenied: as("wrong-4712"),
				Restart: func(t *testing.T) {
					check(t, b.Kill())
					check(t, b.Start())
				},
			}
		},
	})
}
