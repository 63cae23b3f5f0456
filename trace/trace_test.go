package trace_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/relay"
	penstocktrace "github.com/penstock/penstock/trace"
	"github.com/penstock/penstock/work"
)

// For each message and each attempt of a job there is one span in its producer's trace. It ends, and stays as large as the
// first, however long a relay and a worker live. The span in which the worker began gets no children.
func TestSpansDoNotGrow(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	otel.SetTracerProvider(trace.NewTracerProvider(trace.WithSyncer(spans)))
	app := otel.Tracer("shop")
	life, began := app.Start(t.Context(), "the process starts")
	observer := penstocktrace.Relay("orders", "billing", &relay.Counters{})
	fails := errors.New("no")
	handler := penstocktrace.Worker("mails")(func(ctx context.Context, job penstock.Job) error {
		_, span := app.Start(ctx, "smtp")
		span.End()
		switch job.Attempt {
		case 1:
			return fails
		case 2:
			return work.ErrSettled
		case 3:
			panic("no")
		}
		return nil
	})
	run := func(headers map[string]string, attempt int) {
		defer func() { _ = recover() }()
		_ = handler(life, penstock.Job{Headers: headers, Attempt: attempt})
	}
	const many = 50
	traces := map[oteltrace.TraceID]int{}
	for range many {
		ctx, span := app.Start(context.Background(), "order")
		traces[span.SpanContext().TraceID()] = 0
		headers := penstocktrace.Inject(ctx, nil)
		span.End()
		m := penstock.Message{ID: "m", Headers: headers, Attempt: 1}
		observer.Sent(relay.Send{Messages: []penstock.Message{m, {ID: "not traced"}, m}, Errors: []error{nil, nil, fails}, Answered: time.Now()})
		for attempt := range 4 {
			run(headers, attempt+1)
		}
	}
	first := map[string]tracetest.SpanStub{}
	for _, s := range spans.GetSpans() {
		if _, ok := traces[s.SpanContext.TraceID()]; !ok || s.EndTime.IsZero() {
			t.Errorf("%q ended at %s, in a trace of no producer's: %v", s.Name, s.EndTime, !ok)
		}
		traces[s.SpanContext.TraceID()]++
		if _, ok := first[s.Name]; !ok {
			first[s.Name] = s
		}
		if f := first[s.Name]; len(s.Attributes) != len(f.Attributes) || len(s.Links) != 0 || len(s.Events) > 1 || s.ChildSpanCount != f.ChildSpanCount {
			t.Errorf("%q has %d attributes, %d links, %d events and %d children", s.Name, len(s.Attributes), len(s.Links), len(s.Events), s.ChildSpanCount)
		}
	}
	for id, n := range traces {
		if n != 1+2+4*2 { // order, its two sends, four runs with what they do
			t.Errorf("trace %s has %d spans, want 11", id, n)
		}
	}
	spans.Reset()
	for attempt := range 4 {
		run(nil, attempt+1)
		run(map[string]string{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"}, attempt+1)
	}
	began.End()
	for _, s := range spans.GetSpans() {
		if s.Name != "the process starts" && s.SpanContext.TraceID() == began.SpanContext().TraceID() {
			t.Errorf("%q is a child of the span in which the worker began", s.Name)
		}
	}
}
