// Package readback lets the demo and the benchmark judge by the messages of a consumer. Each sink that
// can be read has a consumer next to it (read_back.go) with the broker's own client. It uses none
// of the sink's code, so an error in the sink shows.
package readback

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/penstock/penstock/driver"
)

// Arrival is a message as the broker delivered it.
type Arrival struct {
	ID, Key string
	Payload []byte
}

// Broker is the consumer's side of a broker: it owns the queue or stream to which the run's
// messages go, and reads it with the broker's own client.
type Broker interface {
	// SinkURL is the sink that sends messages to this run's queue.
	SinkURL() string
	// Open creates the queue. The sink is open already, because the embedded server runs inside it.
	Open(ctx context.Context, sink driver.Sink) error
	// Read passes every arrival to got, in order, until the end marker of Finish.
	Read(ctx context.Context, got func(Arrival)) error
	// Finish puts an end marker behind everything that the broker has confirmed.
	Finish(ctx context.Context) error
	// Remove deletes the queue with its contents.
	Remove(ctx context.Context) error
	Close() error
}

// WithQuery sets query parameters of a sink URL, and replaces existing ones.
func WithQuery(sinkURL string, set map[string]string) (string, error) {
	target, raw, _ := strings.Cut(sinkURL, "?")
	query, err := url.ParseQuery(raw)
	if err != nil {
		return "", fmt.Errorf("the query of --sink cannot be read: %w", err)
	}
	for name, value := range set {
		query.Set(name, value)
	}
	return target + "?" + query.Encode(), nil
}
