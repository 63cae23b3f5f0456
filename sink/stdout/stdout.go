// Package stdout is a sink that writes each message as one line of JSON:
//
//	{"id":"…","seq":7,"key":"N123AA","topic":"flight.departed","headers":{"traceparent":"…"},
//	 "payload":"text","created_at":"2026-05-04T03:02:01.123456Z","attempt":1}
//
// (on one line). A payload that is not valid UTF-8 is in "payload_base64" instead of
// "payload".
//
// A message is confirmed when the operating system has accepted its whole line. That
// does not show whether the reader of the pipe has kept it. If you need that, use a
// broker.
package stdout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// Sink writes JSON lines. It implements driver.InOrderSink.
type Sink struct {
	w io.Writer
	// turn holds one token per running write. Sends wait for it and for their context; a mutex would
	// wait only for the write.
	turn   chan struct{}
	closed atomic.Bool
	// torn is true if the last write ended within a line. Only the holder of
	// the turn touches it.
	torn bool
}

var _ driver.InOrderSink = (*Sink)(nil)

// Open writes to the process's standard output. The log is not used.
func Open(_ Config, _ *slog.Logger) (*Sink, error) { return New(os.Stdout), nil }

// New writes to w, which the sink never closes.
func New(w io.Writer) *Sink { return &Sink{w: w, turn: make(chan struct{}, 1)} }

// KeepsOrder returns true: lines are written one after another, and the first that
// cannot be written ends the Send.
func (*Sink) KeepsOrder() bool { return true }

// chunkBytes is about how much is encoded before it is written. It limits the memory for a Send of
// large messages.
const chunkBytes = 64 << 10

// Send writes the messages and returns when all are written. If the writer fails, the
// other messages get an Unavailable error, because that is not about a message.
func (s *Sink) Send(ctx context.Context, msgs []penstock.Message) []error {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return driver.SendError(msgs, penstock.Unavailable(fmt.Errorf("write to stdout: %w", context.Cause(ctx))))
	}
	if s.closed.Load() {
		<-s.turn
		return driver.SendError(msgs, penstock.Unavailable(fmt.Errorf("stdout sink: %w", penstock.ErrClosed)))
	}
	for sent := 0; sent < len(msgs); {
		c := encode(msgs[sent:], s.torn)
		n, err := s.write(ctx, c)
		sent += c.linesIn(n)
		if err != nil {
			if !errors.Is(err, errLeftBehind) {
				<-s.turn
			}
			return failFrom(msgs, sent, penstock.Unavailable(fmt.Errorf("write to stdout: %w", err)))
		}
	}
	<-s.turn
	return nil
}

// Close waits for the running Send.
func (s *Sink) Close(ctx context.Context) error {
	if s.closed.Swap(true) {
		return nil
	}
	select {
	case s.turn <- struct{}{}:
		<-s.turn
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close stdout sink: a write is still waiting for its reader: %w", context.Cause(ctx))
	}
}

// errLeftBehind: ctx ended while the writer was blocked.
var errLeftBehind = errors.New("the reader of the output does not read")

// write writes a chunk and returns how many bytes were written. A reader that does not read blocks
// the writer. When ctx ends, such a write is left behind. It keeps the turn, so no other write
// starts before it has ended.
func (s *Sink) write(ctx context.Context, c chunk) (int, error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	type result struct {
		n   int
		err error
	}
	done, left := make(chan result), make(chan struct{})
	go func() {
		n, err := s.w.Write(c.bytes)
		if n < len(c.bytes) && err == nil {
			err = io.ErrShortWrite
		}
		if n > 0 {
			s.torn = c.bytes[n-1] != '\n'
		}
		select {
		case done <- result{n, err}:
		case <-left:
			<-s.turn
		}
	}()
	select {
	case r := <-done:
		return r.n, r.err
	case <-ctx.Done():
		close(left)
		return 0, fmt.Errorf("%w: %w", errLeftBehind, context.Cause(ctx))
	}
}

// failFrom confirms the messages before i.
func failFrom(msgs []penstock.Message, i int, err error) []error {
	errs := driver.SendError(msgs, err)
	clear(errs[:i])
	return errs
}
