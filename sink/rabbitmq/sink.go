package rabbitmq

import (
	"context"
	"log/slog"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/gate"
	"github.com/penstock/penstock/internal/template"
)

// Sink publishes to a RabbitMQ exchange. It is not a driver.InOrderSink: on a channel,
// messages behind one that cannot be routed overtake it.
type Sink struct {
	cfg    Config
	key    *template.Template
	broker *broker
	gate   gate.Gate
}

var _ driver.Sink = (*Sink)(nil)

// Open checks the configuration. The broker need not be up: the first Send connects,
// and Sends fail as Unavailable until that succeeds.
func Open(cfg Config, log *slog.Logger) (*Sink, error) {
	cfg.SetDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	uris, err := cfg.addresses()
	if err != nil {
		return nil, err
	}
	if _, err := cfg.tlsConfig(uris[0]); err != nil {
		return nil, err // a wrong file name is found now rather than at night
	}
	key, err := template.Parse(cfg.RoutingKey)
	if err != nil {
		return nil, err
	}
	log = cfg.TLS.Warned(log)
	s := &Sink{cfg: cfg, key: key}
	s.broker = &broker{cfg: &s.cfg, log: log}
	return s, nil
}

// Send publishes the messages, persistent and mandatory, and waits until the
// broker has confirmed each one.
//
// Unavailable: the broker cannot be reached, is blocked by an alarm, or the exchange
// does not exist or is closed to this user. RetryAfter and Unavailable: a nack, because
// a queue is full or has failed. Permanent: the message exceeds a limit of AMQP or of
// the broker. Unclassified: no queue is bound for it, or the user may not write to its
// routing key.
func (s *Sink) Send(ctx context.Context, msgs []penstock.Message) []error {
	if len(msgs) == 0 {
		return nil
	}
	pass := s.gate.Enter(nil)
	if pass == nil {
		return driver.SendError(msgs, closed())
	}
	defer pass.Leave()

	conn, err := s.broker.connection(ctx)
	if err != nil {
		return driver.SendError(msgs, err)
	}
	out := outgoing{
		msgs: msgs,
		todo: make([]int, 0, len(msgs)),
		keys: make([]string, 0, len(msgs)),
		errs: &verdicts{n: len(msgs)},
	}
	for i := range msgs {
		key, err := s.routingKey(&msgs[i], conn.frame)
		if err != nil {
			out.errs.set(i, err)
			continue
		}
		out.todo = append(out.todo, i)
		out.keys = append(out.keys, key)
	}
	for rest := out; len(rest.todo) > 0; {
		part := rest
		n := min(len(rest.todo), s.cfg.MaxPending) // a channel takes no more
		part.todo, part.keys = rest.todo[:n], rest.keys[:n]
		rest.todo, rest.keys = rest.todo[n:], rest.keys[n:]
		sendPart(ctx, conn, part)
	}
	return out.errs.errs
}

func sendPart(ctx context.Context, conn *connection, out outgoing) {
	ch, err := conn.channel(ctx)
	if err != nil {
		out.errs.setAll(out.todo, conn.explainOpen(ctx, err))
		return
	}
	if suspects := ch.send(ctx, out); len(suspects) > 0 {
		isolate(ctx, conn, out.only(suspects))
	}
}

// Close waits for running Sends until ctx ends. Those that run longer end with an
// Unavailable error.
func (s *Sink) Close(ctx context.Context) error {
	return s.gate.CloseSink(ctx, "RabbitMQ", func() {
		patience := goodbye
		if ctx.Err() != nil {
			patience = 0
		}
		s.broker.stop(patience)
	})
}

// goodbye is how long the broker has to answer that the connection is closed.
const goodbye = time.Second
