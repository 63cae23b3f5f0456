// Package discard is a sink that confirms every message and keeps none. Use it to
// measure how fast messages come out of a database. It is also the smallest
// example of a sink.
package discard

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// Config has no settings.
type Config struct{}

// SetDefaults does nothing.
func (*Config) SetDefaults() {}

// Validate returns nil.
func (*Config) Validate() error { return nil }

// ParseURL accepts "discard" and "discard:".
func ParseURL(u string) (Config, error) {
	if u != "discard" && u != "discard:" {
		return Config{}, fmt.Errorf("sink URL %q: write just discard, it has no settings", u)
	}
	return Config{}, nil
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
