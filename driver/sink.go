package driver

import (
	"context"

	"github.com/penstock/penstock"
)

// Sink is where messages go. The relay calls it; a driver under sink/
// implements it and passes internal/test/sinktest.
type Sink interface {
	// Send delivers msgs and returns once the broker has confirmed each one or
	// refused it. The relay calls it from several goroutines at once, but never
	// with a key that another running Send holds, and reuses neither msgs nor
	// what they point to until Send has returned.
	//
	// nil means that every message is confirmed: durably, by the broker's own
	// word. Otherwise the result has one entry per message, nil where it is
	// confirmed. One bad message fails alone. An error may be of the class
	// Permanent, RetryAfter or Unavailable, or of the last two; without a class it
	// means: try this message again. What the broker accepted but could not route is an error.
	// When ctx ends, messages without an answer get an Unavailable error.
	//
	// A driver reconnects by itself: after an outage the next Send works,
	// without a new Open.
	Send(ctx context.Context, msgs []penstock.Message) []error

	// Close waits for running Sends until ctx ends and lets go of the
	// connection. A second Close returns nil; a Send after Close fails with
	// ErrClosed, an Unavailable error.
	Close(ctx context.Context) error
}

// InOrderSink is a Sink that keeps order within one Send even when a message
// fails: if one message of a key is not accepted, no later message of that key
// in the same call is. The relay hands such a sink many messages of one key at
// once; to any other it hands one message per key at a time, because a refused
// message would be overtaken by those pipelined behind it.
type InOrderSink interface {
	Sink
	// KeepsOrder reports whether the promise holds with the sink's
	// configuration.
	KeepsOrder() bool
}

// SendError is Send's answer when every message fails for the same reason.
func SendError(msgs []penstock.Message, err error) []error {
	errs := make([]error, len(msgs))
	for i := range errs {
		errs[i] = err
	}
	return errs
}
