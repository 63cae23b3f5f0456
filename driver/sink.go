package driver

import (
	"context"

	"github.com/penstock/penstock"
)

// Sink is the destination of messages. The relay calls it. A driver under sink/
// implements it and passes internal/test/sinktest.
type Sink interface {
	// Send delivers msgs and returns once the broker has confirmed or refused each.
	// The relay calls it from several goroutines, but with a key in one running Send
	// at most. It changes neither msgs nor their contents before Send has returned.
	//
	// nil means that the broker itself confirmed every message as durable. Otherwise
	// the result has one entry per message, nil if it is confirmed. One bad message
	// fails alone. An error without a class means: try this message again. Its class
	// may be Permanent, RetryAfter, Unavailable, or both of the last two. A message
	// that the broker accepted but could not route gets an error. When ctx ends,
	// messages without an answer get an Unavailable error. After a panic, each half of msgs
	// is sent again, until the message that is the reason is alone.
	//
	// A driver reconnects: after an outage the next Send works.
	Send(ctx context.Context, msgs []penstock.Message) []error

	// Close waits for running Sends until ctx ends, and closes the connection. A
	// second Close returns nil. A Send after Close fails with ErrClosed, as an
	// Unavailable error.
	Close(ctx context.Context) error
}

// InOrderSink is a Sink that keeps order within one Send even when a message
// fails. If the broker does not accept a message, it accepts no later one of the
// same key in that call. The relay hands such a sink many messages of a key at
// once. It hands any other sink one message of a key at a time, because messages
// sent behind a refused one would overtake it.
type InOrderSink interface {
	Sink
	// KeepsOrder reports whether the promise holds with the sink's
	// configuration.
	KeepsOrder() bool
}

// SendError returns the result of a Send in which every message fails with err.
func SendError(msgs []penstock.Message, err error) []error {
	errs := make([]error, len(msgs))
	for i := range errs {
		errs[i] = err
	}
	return errs
}
