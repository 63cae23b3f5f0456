package nats

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// stride is how many messages are published between looks at the flight.
const stride = 256

// Send publishes msgs one after another without waiting between them. It returns when
// each has been acknowledged by its stream or refused.
func (s *Sink) Send(ctx context.Context, msgs []penstock.Message) []error {
	if len(msgs) == 0 {
		return nil
	}
	pass := s.gate.Enter(nil)
	if pass == nil {
		return driver.SendError(msgs, errClosed)
	}
	defer pass.Leave()
	if err := s.ready(ctx); err != nil {
		return driver.SendError(msgs, err)
	}
	f := s.acks.begin(msgs)
	err := s.publish(ctx, f)
	if err == nil {
		err = s.await(ctx, f)
	}
	return s.explain(ctx, msgs, s.acks.end(f, err))
}

func (s *Sink) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return interrupted(err)
	}
	if !s.up.Load() || s.trouble.Load() != nil {
		return s.unavailable(nats.ErrDisconnected)
	}
	return s.ensureStream(ctx)
}

// publish passes every message to the connection. Messages that cannot be published fail alone;
// the returned error stops the others.
func (s *Sink) publish(ctx context.Context, f *flight) error {
	released := make(chan struct{})
	defer close(released)
	defer context.AfterFunc(ctx, func() { s.dialer.freeWriter(released) })()

	msg := &nats.Msg{}
	e := newEnvelope()
	msg.Header = e.header
	var replies []string
	for next := 0; next < len(f.msgs); {
		if err := ctx.Err(); err != nil {
			return interrupted(err)
		}
		n, err := s.window.take(ctx, s.quit, f.msgs[next:min(next+stride, len(f.msgs))])
		if err != nil {
			return interrupted(err)
		}
		s.acks.reserve(f, n)
		if f.unanswered() == 0 {
			return nil // aborted: the connection went, or the sink is closing
		}
		replies = s.acks.replies(f, next, next+n, replies)
		for i := next; i < next+n; i++ {
			msg.Reply = replies[i-next]
			refused, lost := s.publishOne(msg, e, &f.msgs[i])
			if lost != nil {
				return s.unavailable(lost)
			}
			if refused != nil {
				s.acks.settle(f, i, refused)
			}
		}
		next += n
	}
	return nil
}

// publishOne passes one message to the connection. The first error is about the message, the
// second about the connection.
func (s *Sink) publishOne(msg *nats.Msg, e *envelope, m *penstock.Message) (refused, lost error) {
	subject, err := s.subject.Execute(m)
	if err != nil {
		return err, nil
	}
	if err := checkSubject(subject); err != nil {
		return err, nil
	}
	if err := e.fill(m); err != nil {
		return err, nil
	}
	msg.Subject, msg.Data = subject, m.Payload
	switch err := s.conn.PublishMsg(msg); {
	case err == nil:
		return nil, nil
	case errors.Is(err, nats.ErrMaxPayload):
		return penstock.Permanent(penstock.WithHint(
			fmt.Errorf("a payload of %d bytes and its headers exceed the server's max_payload of %d bytes", len(m.Payload), s.conn.MaxPayload()),
			"raise max_payload on the server, or set claim_check, which sends a reference")), nil
	case errors.Is(err, nats.ErrBadSubject), errors.Is(err, nats.ErrBadHeaderMsg):
		return penstock.Permanent(err), nil
	default:
		return nil, err
	}
}

// await waits until every message of the flight is answered. It gives up when AckWait passes
// without any acknowledgement; as long as some arrive, the broker is only slow.
func (s *Sink) await(ctx context.Context, f *flight) error {
	timer := time.NewTimer(s.cfg.AckWait)
	defer timer.Stop()
	open := f.unanswered()
	for {
		select {
		case <-f.landed:
			return nil
		case <-ctx.Done():
			return interrupted(ctx.Err())
		case <-timer.C:
			now := f.unanswered()
			if now == open {
				return &silence{after: s.cfg.AckWait}
			}
			open = now
			timer.Reset(s.cfg.AckWait)
		}
	}
}

// interrupted is the answer to messages that had none when ctx ended or the
// sink was closed.
func interrupted(err error) error {
	if errors.Is(err, penstock.ErrClosed) {
		return errClosed
	}
	return penstock.Unavailable(fmt.Errorf("nats sink: no acknowledgement yet: %w", err))
}

// explain finds out why messages got no answer, once per subject, or once for all if the broker is
// the cause.
func (s *Sink) explain(ctx context.Context, msgs []penstock.Message, errs []error) []error {
	var broker error
	reasons := map[string]error{}
	for i, err := range errs {
		var quiet *silence
		if !errors.As(err, &quiet) {
			continue
		}
		if broker != nil {
			errs[i] = broker
			continue
		}
		subject, _ := s.subject.Execute(&msgs[i])
		reason, known := reasons[subject]
		if !known {
			reason = s.explainSilence(ctx, subject, quiet)
			reasons[subject] = reason
		}
		if penstock.IsUnavailable(reason) {
			broker = reason
		}
		errs[i] = reason
	}
	return errs
}
