package otlp_test

import (
	"context"
	"log"

	"github.com/penstock/penstock/trace/otlp"
)

// A program sends its spans to OTEL_EXPORTER_OTLP_ENDPOINT, and the last ones before it ends.
func ExampleStart() {
	stop, err := otlp.Start(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = stop() }()
	// Relays, workers and producers run here; see package trace.
}
