package kafka

import (
	"context"
	"log/slog"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/gate"
	"github.com/penstock/penstock/internal/template"
)

// Sink produces to Kafka topics.
type Sink struct {
	cfg   Config
	log   *slog.Logger
	topic *template.Template
	gate  gate.Gate
	pool  *pool
}

var _ driver.InOrderSink = (*Sink)(nil)

// Open checks the configuration. Brokers need not be up: the first Send connects,
// and Sends fail as Unavailable until that succeeds.
func Open(cfg Config, log *slog.Logger) (*Sink, error) {
	cfg.SetDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	a, err := cfg.address()
	if err != nil {
		return nil, err
	}
	if _, err := cfg.TLS.Load(); err != nil {
		return nil, err // a wrong file name is found now rather than at night
	}
	topic, err := template.Parse(cfg.Topic)
	if err != nil {
		return nil, err
	}
	log = cfg.TLS.Warned(log)
	if (cfg.SASL == saslPlain || cfg.SASL == saslOAuth) && !a.tls {
		log.Warn("sasl is " + cfg.SASL + " and the URL is not kafkas://: the password or token crosses the network as it is")
	}
	s := &Sink{cfg: cfg, log: log, topic: topic}
	login, err := s.cfg.login()
	if err != nil {
		return nil, err
	}
	s.pool = newPool(&s.cfg, login, log)
	return s, nil
}

// KeepsOrder returns true: see fly.
func (*Sink) KeepsOrder() bool { return true }

// Send produces the messages and waits until all in-sync replicas have each one.
//
// Unavailable: no broker can be reached or lets the user in, or a partition has
// no leader or too few replicas for longer than delivery_timeout. Permanent: the
// message is too large or breaks another rule of its topic. Unclassified: the topic
// does not exist, or the user may not write to it.
func (s *Sink) Send(ctx context.Context, msgs []penstock.Message) []error {
	if len(msgs) == 0 {
		return nil
	}
	pass := s.gate.Enter(nil)
	if pass == nil {
		return driver.SendError(msgs, closed())
	}
	defer pass.Leave()
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.DeliveryTimeout, errTime)
	defer cancel()

	p, err := s.pool.get(ctx)
	if err != nil {
		return driver.SendError(msgs, s.unreachable(ctx, err))
	}
	defer s.pool.put(p)
	if err := p.reach(ctx); err != nil {
		return driver.SendError(msgs, s.unreachable(ctx, err))
	}
	d := &delivery{sink: s, producer: p, msgs: msgs}
	d.encode()
	d.run(ctx)
	return d.errs
}

// Close waits for running Sends until ctx ends. Those that run longer end with an
// Unavailable error.
func (s *Sink) Close(ctx context.Context) error {
	return s.gate.CloseSink(ctx, "Kafka", func() { s.pool.stop(ctx) })
}
