package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/trace"
	"github.com/penstock/penstock/trace/otlp"
)

// From a producer's span through the relay command to the confirm, and through the worker command to the run: over OTLP.
func TestTracesOfCommands(t *testing.T) {
	spans := make(chan *tracepb.Span, 100)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var got tracepb.TracesData
		body, err := io.ReadAll(r.Body)
		if err = errors.Join(err, proto.Unmarshal(body, &got)); err != nil {
			t.Error(err)
		}
		for _, of := range got.ResourceSpans {
			for _, scope := range of.ScopeSpans {
				for _, s := range scope.Spans {
					spans <- s
				}
			}
		}
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	d := urlDesk(t, sqliteFile(t))
	d.must("queue", "create", "mails")
	stop, err := otlp.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	producing, span := otel.Tracer("shop").Start(t.Context(), "order")
	order := span.SpanContext()
	d.outbox("orders", penstock.Message{Key: "a", Topic: "t", Payload: []byte("1"), Headers: trace.Inject(producing, nil)})
	_, err = d.store.(driver.QueueStore).DriverQueue("mails").Enqueue(t.Context(), penstock.NewJob{Payload: []byte("1"), Headers: trace.Inject(producing, nil)})
	span.End()
	if err = errors.Join(err, stop()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		span, attribute string
		args            []string
	}{
		{"send orders/billing", "penstock.commit_to_confirm_seconds", []string{"relay", "--outbox", "orders", "--subscription", "billing", "--sink", "discard"}},
		{"run mails", "penstock.enqueue_to_start_seconds", []string{"work", "mails", "--exec", "true"}},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		a := d.app(strings.NewReader(""), io.Discard, io.Discard)
		a.OnSignals = func(first, _ func()) func() {
			go func() { // a signal once there is nothing left to do
				defer first()
				for ctx.Err() == nil {
					outboxes, err := d.store.Status(ctx)
					queues, err2 := d.store.(driver.QueueStore).QueueStatus(ctx)
					if err == nil && err2 == nil && (c.args[0] == "work" && queues[0].Ready+queues[0].Running == 0 ||
						c.args[0] == "relay" && len(outboxes[0].Subscriptions) > 0 && outboxes[0].Subscriptions[0].Settled > 0) {
						return
					}
				}
			}()
			return func() {}
		}
		if code := runWith(ctx, a, c.args); code != terminal.ExitOK {
			t.Errorf("%q ends with %d", c.args, code)
		}
		cancel()
		found := false
		for len(spans) > 0 {
			s := <-spans
			if s.Name != c.span {
				continue
			}
			found = true
			if id := order.TraceID(); string(s.TraceId) != string(id[:]) {
				t.Errorf("%s is not of the producer's trace: %v", c.span, s)
			}
			if id := order.SpanID(); string(s.ParentSpanId) != string(id[:]) || !strings.Contains(s.String(), c.attribute) {
				t.Errorf("%s is no child of the producer's span, or without %s: %v", c.span, c.attribute, s)
			}
		}
		if !found {
			t.Errorf("%q has sent no span %s", c.args, c.span)
		}
	}
}
