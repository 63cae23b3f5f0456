package trace_test

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/propagation"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/trace"
)

// A producer puts its span into a message, and a consumer continues it.
func ExampleInject() {
	// As set by a middleware of a web framework for a request.
	request := propagation.MapCarrier{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
	ctx := propagation.TraceContext{}.Extract(context.Background(), request)

	message := penstock.Message{Topic: "order.placed", Payload: []byte("{}")}
	message.Headers = trace.Inject(ctx, message.Headers)
	fmt.Println(message.Headers["traceparent"])

	consumer := trace.Extract(context.Background(), message.Headers)
	fmt.Println("goes on with", oteltrace.SpanContextFromContext(consumer).TraceID())
	// Output:
	// 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
	// goes on with 4bf92f3577b34da6a3ce929d0e0e4736
}
