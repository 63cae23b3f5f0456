// Package discard is a sink that confirms every message and keeps none. Use it to
// measure how fast messages come out of a database. It is also the smallest
// example of a sink.
package discard

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/descriptor"
)

// Config has no settings.
type Config = descriptor.NoSettings

// Driver describes this sink for the list in internal/drivers.
var Driver = descriptor.Sink[Config]{
	Name: "discard", Usage: "discard", Schemes: []string{"discard"},
	Parse: descriptor.Alone("discard", "discard:"), Open: descriptor.Opens(Open),
	Binding: descriptor.Headers("discard", "ce-"), // as stdout
}

// Sink confirms messages and does not keep them. It implements driver.InOrderSink.
type Sink struct {
	closed atomic.Bool
}

var _ driver.InOrderSink = (*Sink)(nil)

// Open never fails and never logs.
func Open(Config, *slog.Logger) (*Sink, error) { return &Sink{}, nil }

// Send confirms every message. It does not allocate.
func (s *Sink) Send(_ context.Context, msgs []penstock.Message) []error {
	if s.closed.Load() {
		return driver.SendError(msgs, penstock.Unavailable(penstock.ErrClosed))
	}
	return nil
}

// KeepsOrder returns true: no message is ever refused.
func (*Sink) KeepsOrder() bool { return true }

// Close makes later Sends fail with penstock.ErrClosed.
func (s *Sink) Close(context.Context) error {
	s.closed.Store(true)
	return nil
}
