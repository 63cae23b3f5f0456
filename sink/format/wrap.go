package format

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// encoder turns a message into its form on the wire. Several goroutines use it at once, each with
// its own scratch.
type encoder interface {
	// encode fills headers, which is empty, and returns the payload. It changes
	// nothing that m points to, and its result may share m's memory. The
	// error explains why there is no such message on the wire.
	encode(m *penstock.Message, headers map[string]string, s *scratch) ([]byte, error)
}

// Wrap returns a sink that gives messages the configured format and sends them to
// sink. With kind raw it is sink itself. Its Close closes sink.
//
// A message that cannot have the format fails as penstock.Permanent and is not sent.
// The others are sent.
//
// The error is a *penstock.FieldError.
func Wrap(sink driver.Sink, cfg Config, b Binding) (driver.Sink, error) {
	cfg.SetDefaults()
	if err := cfg.ValidateFor(b); err != nil {
		return nil, err
	}
	var enc encoder
	var err error
	switch cfg.Kind {
	case Raw:
		return sink, nil
	case Debezium:
		enc, err = newDebezium(cfg)
	case CloudEvents:
		enc, err = newCloudEvents(cfg, b)
	}
	if err != nil {
		return nil, err
	}
	in, ok := sink.(driver.InOrderSink)
	return &formatted{Sink: sink, encoder: enc, inOrder: ok && in.KeepsOrder()}, nil
}

// formatted is a sink behind an encoder.
type formatted struct {
	driver.Sink
	encoder encoder
	inOrder bool
	scratch sync.Pool // of *scratch
}

var _ driver.InOrderSink = (*formatted)(nil)

// KeepsOrder returns that of the wrapped sink. After a message that cannot be
// encoded, later ones of its key are not sent.
func (f *formatted) KeepsOrder() bool { return f.inOrder }

var errNoID = penstock.WithHint(errors.New("the message has no id"), "publish with one, or let the store derive it")

// errHeldBack has no class: nothing is wrong with the message.
var errHeldBack = errors.New("held back: an earlier message with the same key cannot be sent")

// Send encodes msgs and sends those that can be encoded.
func (f *formatted) Send(ctx context.Context, msgs []penstock.Message) []error {
	s, ok := f.scratch.Get().(*scratch)
	if !ok {
		s = new(scratch)
	}
	defer f.scratch.Put(s)
	defer s.release()

	var errs []error // nil as long as all can be encoded
	var held map[string]bool
	for i := range msgs {
		m := &msgs[i]
		err := errHeldBack
		if !held[m.Key] {
			if err = f.add(s, m); err == nil {
				continue
			}
		}
		if errs == nil {
			errs, held = make([]error, len(msgs)), map[string]bool{}
		}
		errs[i] = err
		held[m.Key] = f.inOrder && m.Key != ""
	}
	if errs == nil {
		return f.Sink.Send(ctx, s.wire)
	}
	if len(s.wire) == 0 {
		return errs
	}
	// The answers are for the sent messages, in their order.
	answers := f.Sink.Send(ctx, s.wire)
	next := 0
	for i, err := range errs {
		if err == nil {
			if answers != nil {
				errs[i] = answers[next]
			}
			next++
		}
	}
	return errs
}

// add encodes m as the next message on the wire.
func (f *formatted) add(s *scratch, m *penstock.Message) error {
	headers := s.nextHeaders()
	payload, err := f.encoder.encode(m, headers, s)
	if err != nil {
		clear(headers) // the next message gets them
		return penstock.Permanent(fmt.Errorf("format: %w", err))
	}
	out := *m
	out.Headers, out.Payload = headers, payload
	s.wire = append(s.wire, out)
	return nil
}
