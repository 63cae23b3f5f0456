// Package trace connects OpenTelemetry's spans across outboxes and queues. It uses the headers
// traceparent and tracestate of messages and jobs:
//
//	message.Headers = trace.Inject(ctx, message.Headers) // a producer, before Publish or Enqueue
//	relay.Options{Observer: trace.Relay("orders", "billing", &relay.Counters{})}
//	work.Options{Middleware: []func(work.Handler) work.Handler{trace.Worker("emails")}}
//	ctx = trace.Extract(ctx, headers)                                        // a consumer
//
// Spans go to OpenTelemetry's global provider. Package otlp makes one from the standard environment
// variables. Messages and jobs without a traceparent, or with one that is not sampled, get no span.
package trace

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	otrace "go.opentelemetry.io/otel/trace"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/work"
)

var w3c propagation.TraceContext

func tracer() otrace.Tracer { return otel.Tracer("github.com/penstock/penstock") }

// Inject returns the headers with the span of ctx added, if there is one. It changes a copy.
func Inject(ctx context.Context, headers map[string]string) map[string]string {
	if !otrace.SpanContextFromContext(ctx).IsValid() {
		return headers
	}
	headers = maps.Clone(headers)
	if headers == nil {
		headers = map[string]string{}
	}
	w3c.Inject(ctx, propagation.MapCarrier(headers))
	return headers
}

// Extract returns ctx with the span from the headers, if there is one. It is the parent of spans that start in ctx.
func Extract(ctx context.Context, headers map[string]string) context.Context {
	return w3c.Extract(ctx, propagation.MapCarrier(headers))
}

// sampled reports whether the producer records its trace: the last of traceparent's flags.
func sampled(headers map[string]string) bool {
	const length = len("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	parent := headers["traceparent"]
	return len(parent) >= length && (parent[length-1]-'0')&1 == 1
}

// Relay returns an observer that makes a span for each sampled message, from the call of the sink to its answer. It
// passes everything on to next.
func Relay(outbox, subscription string, next relay.Observer) relay.Observer {
	return &relayObserver{next, "send " + outbox + "/" + subscription, []attribute.KeyValue{
		attribute.String("messaging.system", "penstock"), attribute.String("messaging.operation.type", "send"),
		attribute.String("messaging.destination.name", outbox), attribute.String("penstock.outbox", outbox), attribute.String("penstock.subscription", subscription)}}
}

type relayObserver struct {
	relay.Observer
	name string
	of   []attribute.KeyValue
}

// Sent implements relay.Observer.
func (o *relayObserver) Sent(s relay.Send) {
	o.Observer.Sent(s)
	for i := range s.Messages {
		m := &s.Messages[i]
		if !sampled(m.Headers) {
			continue
		}
		_, span := tracer().Start(Extract(context.Background(), m.Headers), o.name, otrace.WithTimestamp(s.Answered.Add(-s.Took)), otrace.WithSpanKind(otrace.SpanKindProducer),
			otrace.WithAttributes(o.of...), otrace.WithAttributes(attribute.String("messaging.message.id", m.ID), attribute.Int("penstock.attempt", m.Attempt),
				attribute.Float64("penstock.commit_to_confirm_seconds", s.Answered.Sub(m.CreatedAt).Seconds())))
		if s.Errors != nil && s.Errors[i] != nil {
			span.SetStatus(codes.Error, s.Errors[i].Error())
		}
		span.End(otrace.WithTimestamp(s.Answered))
	}
}

// Worker returns a middleware for work.Options that runs each handler of a sampled job in a new span. The job's headers
// and context then carry this span.
func Worker(queue string) func(work.Handler) work.Handler {
	of := otrace.WithAttributes(attribute.String("messaging.system", "penstock"), attribute.String("messaging.operation.type", "process"),
		attribute.String("messaging.destination.name", queue), attribute.String("penstock.queue", queue))
	return func(next work.Handler) work.Handler {
		return func(ctx context.Context, job penstock.Job) (err error) {
			if !sampled(job.Headers) {
				if otrace.SpanContextFromContext(ctx).IsValid() { // the span in which the worker began: it would get children for as long as the worker runs
					ctx = Extract(otrace.ContextWithSpan(ctx, nil), job.Headers)
				}
				return next(ctx, job)
			}
			ctx, span := tracer().Start(Extract(ctx, job.Headers), "run "+queue, otrace.WithSpanKind(otrace.SpanKindConsumer), of, otrace.WithAttributes(
				attribute.Int64("penstock.job", job.ID), attribute.Int("penstock.attempt", job.Attempt), attribute.Float64("penstock.enqueue_to_start_seconds", time.Since(job.CreatedAt).Seconds())))
			defer span.End() // also records a panic
			job.Headers = Inject(ctx, job.Headers)
			if err = next(ctx, job); err != nil && !errors.Is(err, work.ErrSettled) {
				span.SetStatus(codes.Error, err.Error())
			}
			return err
		}
	}
}

// LogHandler adds trace_id and span_id to records that are logged with a context that has a span.
func LogHandler(next slog.Handler) slog.Handler { return logHandler{next} }

type logHandler struct{ slog.Handler }

func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	if at := otrace.SpanContextFromContext(ctx); at.IsValid() {
		r = r.Clone()
		r.AddAttrs(slog.String("trace_id", at.TraceID().String()), slog.String("span_id", at.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

func (h logHandler) WithAttrs(a []slog.Attr) slog.Handler { return logHandler{h.Handler.WithAttrs(a)} }
func (h logHandler) WithGroup(name string) slog.Handler   { return logHandler{h.Handler.WithGroup(name)} }
