package format_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/sink/format"
	"github.com/penstock/penstock/sink/kafka"
)

// batch is n messages of 200 bytes of JSON, from transactions of ten messages.
func batch(n int) []penstock.Message {
	msgs := make([]penstock.Message, n)
	payload := fmt.Appendf(nil, `{"filler":"%s"}`, strings.Repeat("x", 187))
	for i := range msgs {
		msgs[i] = order()
		m := &msgs[i]
		m.ID, m.Key, m.Payload = fmt.Sprintf("1f/%d", i), fmt.Sprintf("order-%d", i), payload
		m.CreatedAt = m.CreatedAt.Add(time.Duration(i/10) * time.Millisecond)
	}
	return msgs
}

var confirmAll = sinkFunc(func([]penstock.Message) []error { return nil })

// BenchmarkSend is the cost per message of a format in front of a sink that costs nothing.
func BenchmarkSend(b *testing.B) {
	const n = 500
	msgs := batch(n)
	for name, cfg := range map[string]format.Config{
		"binary": {Kind: format.CloudEvents}, "structured": structured, "debezium": {Kind: format.Debezium},
	} {
		b.Run(name, func(b *testing.B) {
			s := wrap(b, confirmAll, cfg, kafka.Driver.Binding)
			b.ReportAllocs()
			for left := b.N; left > 0; left -= n {
				if errs := s.Send(b.Context(), msgs[:min(n, left)]); errs != nil {
					b.Fatal(errs)
				}
			}
		})
	}
	b.Run("the SDK's JSON", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			m := &msgs[i%n]
			e := event.New()
			e.SetID(m.ID)
			e.SetSource("/penstock")
			e.SetType(m.Topic)
			e.SetSubject(m.Key)
			e.SetTime(m.CreatedAt)
			e.SetExtension("partitionkey", m.Key)
			e.SetExtension("traceparent", m.Headers["traceparent"])
			if err := e.SetData(event.ApplicationJSON, m.Payload); err != nil {
				b.Fatal(err)
			}
			if _, err := e.MarshalJSON(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// Binary mode shares a timestamp among the messages of a transaction and
// allocates nothing else; structured mode allocates the payload.
func TestAllocations(t *testing.T) {
	if raceDetector {
		t.Skip("sync.Pool forgets at random under the race detector")
	}
	msgs := batch(100)
	for _, c := range []struct {
		name  string
		cfg   format.Config
		limit float64 // per message
	}{
		{"binary", format.Config{Kind: format.CloudEvents}, 0.5},
		{"structured", structured, 1.5},
		{"debezium", format.Config{Kind: format.Debezium}, 0.1},
	} {
		s := wrap(t, confirmAll, c.cfg, kafka.Driver.Binding)
		n := testing.AllocsPerRun(50, func() { s.Send(t.Context(), msgs) }) / float64(len(msgs))
		if n > c.limit {
			t.Errorf("%s: %.2f allocations per message, want at most %.1f", c.name, n, c.limit)
		}
	}
}
