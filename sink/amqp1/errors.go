package amqp1

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/tlsconfig"
)

// pauseFull is when a message is sent again that the broker had no room for.
const pauseFull = time.Second

var errClosed = penstock.Unavailable(fmt.Errorf("amqp1 sink: %w", penstock.ErrClosed))

// judge translates the broker's answer for a message.
func (s *Sink) judge(address string, state amqp.DeliveryState) error {
	switch state := state.(type) {
	case *amqp.StateAccepted:
		return nil
	case *amqp.StateReleased, *amqp.StateModified:
		return penstock.WithHint(fmt.Errorf("the broker has not kept the message to %s", address), "see that a queue is bound to it")
	case *amqp.StateRejected:
		if state.Error == nil {
			return penstock.WithHint(fmt.Errorf("the broker rejects the message to %s without a reason", address), "see whether the queue is full")
		}
		return s.refused(address, state.Error)
	}
	return penstock.Unavailable(fmt.Errorf("the broker answers for the message to %s with %T", address, state))
}

// refused translates a condition that the broker names.
func (s *Sink) refused(address string, e *amqp.Error) error {
	said := fmt.Errorf("the broker refuses the message to %s: %s", address, text(e))
	switch e.Condition {
	case amqp.ErrCondMessageSizeExceeded:
		return penstock.Permanent(penstock.WithHint(said, "raise the limit of the broker, or set claim_check, which sends a reference"))
	case amqp.ErrCondResourceLimitExceeded, "com.microsoft:server-busy", "com.microsoft:timeout":
		return penstock.RetryAfter(penstock.Unavailable(said), pauseFull)
	case amqp.ErrCondNotFound, amqp.ErrCondUnauthorizedAccess, amqp.ErrCondNotAllowed:
		said = penstock.WithHint(said, "see that the address exists and that the user may send to it; addresses of RabbitMQ are /queues/NAME and /exchanges/NAME/KEY")
		if s.address.Fixed() {
			return penstock.Unavailable(said)
		}
		return said
	case amqp.ErrCondDetachForced, amqp.ErrCondConnectionForced, amqp.ErrCondInternalError, amqp.ErrCondResourceLocked:
		return penstock.Unavailable(said)
	}
	return said
}

// verdict translates an error of the library for a message. It drops the link that has ended.
func (s *Sink) verdict(ctx context.Context, l *line, address string, err error) error {
	if own, ok := err.(*amqp.Error); ok && ctx.Err() == nil { // the message is too large: the link has not ended
		return s.refused(address, own)
	}
	if ctx.Err() != nil || l.conn.Err() != nil {
		return s.unreachable(ctx, err)
	}
	l.drop(ctx, address)
	if said, ok := errors.AsType[*amqp.Error](err); ok {
		return s.refused(address, said)
	}
	return penstock.Unavailable(fmt.Errorf("the link to %s has ended: %w", address, err))
}

func text(e *amqp.Error) string {
	return cmp.Or(e.Description, "no reason") + " (" + string(e.Condition) + ")"
}

// unreachable explains why no message can be sent, or no answer comes.
func (s *Sink) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return penstock.Unavailable(fmt.Errorf("the broker has not accepted the message in time: %w", context.Cause(ctx)))
	}
	hint := "see that a broker runs and that url names it; the relay tries again"
	if certificate := tlsconfig.Hint(err); certificate != "" {
		hint = certificate
	} else if _, ok := errors.AsType[*net.OpError](err); !ok { // it answers
		hint = "if it never works, check user and password, and that the port speaks AMQP 1.0, with TLS (amqps1://) or without"
	}
	return penstock.Unavailable(penstock.WithHint(fmt.Errorf("no broker of AMQP 1.0 can be reached: %w", err), "%s", hint))
}
