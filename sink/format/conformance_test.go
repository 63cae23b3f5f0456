package format_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/sinktest"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/sink/format"
)

// TestConformance runs the sinks' suite on sinks with a format. The reader uses only the event.
// The suite's id, key, topic, payload and time are attributes and data.
func TestConformance(t *testing.T) {
	for name, start := range brokers {
		if name == "webhook" {
			continue // the suite's reader needs an end of the arrivals, which this one does not have
		}
		for _, mode := range []string{format.Binary, format.Structured} {
			cfg := format.Config{Kind: format.CloudEvents, Mode: mode, DataContentType: "application/octet-stream"}
			t.Run(name+"/"+mode, func(t *testing.T) {
				sinktest.Run(t, sinktest.Harness{
					Features: sinktest.Features{
						ReadBack: true, Refuses: true, InOrder: name == "stdout" || name == "kafka", Deduplicates: name == "nats",
						Routes: name == "nats" || name == "rabbitmq", Network: name == "nats" && mode == format.Structured,
					},
					New: func(t *testing.T) *sinktest.Destination { return destination(t, start(t), cfg) },
				})
			})
		}
	}
}

func destination(t *testing.T, b *broker, cfg format.Config) *sinktest.Destination {
	d := &sinktest.Destination{
		Topics: []string{"orders.placed", "orders.cancelled"},
		Open: func(t *testing.T, log *slog.Logger) driver.Sink {
			return asJSON{wrap(t, b.open(t, log), cfg, b.binding).(driver.InOrderSink)}
		},
		Drain: func(t *testing.T, n int) []sinktest.Received {
			var got []sinktest.Received
			for _, a := range b.take(t, n) {
				got = append(got, a.received(t, b))
			}
			return got
		},
		Unroutable: &penstock.Message{ID: "lost", Topic: "nowhere.to.go", Payload: []byte("x"), CreatedAt: time.Now(), Attempt: 1},
		Bad: []sinktest.Bad{
			{Name: "no topic", Message: penstock.Message{ID: "bad-1", Key: "k"}},
			{Name: "topic of two lines", Message: penstock.Message{ID: "bad-2", Key: "k", Topic: "orders.placed\n"}},
			{Name: "forged attribute", Message: penstock.Message{ID: "bad-3", Key: "k", Topic: "orders.placed", Headers: map[string]string{b.prefix + "tenant": "x"}}},
			{Name: "content type", Message: penstock.Message{ID: "bad-4", Key: "k", Topic: "orders.placed", Headers: map[string]string{"content-type": "?"}}},
		},
	}
	if b.proxy != nil {
		d.Down, d.Up = b.proxy.Refuse, b.proxy.Resume
		d.Stall = func() { b.proxy.Stall(tcpproxy.Both) }
	}
	return d
}

func (a arrival) received(t *testing.T, b *broker) sinktest.Received {
	t.Helper()
	e := a.event(t, b)
	r := sinktest.Received{ID: e.ID(), Key: e.Subject(), Topic: e.Type(), Payload: e.Data(), Headers: a.headers, CreatedAt: e.Time()}
	if e.DataContentType() == "application/json" {
		r.Headers["Content-Type"] = e.DataContentType() // as the suite calls it
		check(t, json.Unmarshal(e.Data(), &r.Payload))
	}
	return r
}

// asJSON makes JSON of the payloads that the suite labels as JSON and that are not.
type asJSON struct{ driver.InOrderSink }

func (s asJSON) Send(ctx context.Context, msgs []penstock.Message) []error {
	out := make([]penstock.Message, len(msgs))
	for i, m := range msgs {
		if strings.Contains(m.Headers["Content-Type"], "json") {
			m.Payload, _ = json.Marshal(m.Payload) // bytes become a string in base64
		}
		out[i] = m
	}
	return s.InOrderSink.Send(ctx, out)
}
