package kafka

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/template"
)

// Sink produces to Kafka topics. It is not a penstock.InOrderSink: DESIGN.md
// tells why.
type Sink struct {
	cfg   Config
	log   *slog.Logger
	topic *template.Template
	gate  gate

	shared slot // for all Sends
	lonely slot // for finding out which record spoils a batch (isolate.go)
	alone  chan struct{}
}

var _ penstock.Sink = (*Sink)(nil)

// Open checks the configuration. It does not need brokers to be there: the first
// Send connects, and Sends fail as Unavailable until that succeeds.
func Open(cfg Config, log *slog.Logger) (*Sink, error) {
	cfg.SetDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	a, err := cfg.address()
	if err != nil {
		return nil, err
	}
	if _, err := cfg.TLS.config(); err != nil {
		return nil, err // a wrong file name is found now rather than at night
	}
	topic, err := template.Parse(cfg.Topic)
	if err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if cfg.TLS.DangerouslySkipCertificateCheck {
		log.Warn("tls.dangerously_skip_certificate_check is set: anyone on the network can pose as the broker")
	}
	if cfg.SASL == saslPlain && !a.tls {
		log.Warn("sasl is plain and the URL is not kafkas://: the password crosses the network as it is")
	}
	return &Sink{cfg: cfg, log: log, topic: topic, alone: make(chan struct{}, 1)}, nil
}

// Send produces the messages and waits until all in-sync replicas have each one.
//
// Unavailable: no broker can be reached or lets the user in, or a partition has
// no leader or too few replicas for longer than delivery_timeout. Permanent: the
// message is too large or breaks another rule of its topic. Unmarked: the topic
// does not exist, or the user may not write to it.
func (s *Sink) Send(ctx context.Context, msgs []penstock.Message) []error {
	if len(msgs) == 0 {
		return nil
	}
	if !s.gate.enter() {
		return penstock.SendError(msgs, closed())
	}
	defer s.gate.leave()
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.DeliveryTimeout, errTime)
	defer cancel()

	p, err := s.shared.get(&s.cfg, s.log)
	if err != nil {
		return penstock.SendError(msgs, penstock.Unavailable(err))
	}
	if err := p.reach(ctx); err != nil {
		return penstock.SendError(msgs, s.unreachable(ctx, err))
	}
	out := verdicts{n: len(msgs)}
	f := s.encode(msgs, &out)
	p.fly(ctx, f)
	if f.failures == nil {
		return out.errs
	}
	var suspects []int
	for i := range f.records {
		switch err := f.error(i); {
		case err == nil:
		case spoilsBatch(err):
			suspects = append(suspects, i)
		default:
			out.set(f.messages[i], s.verdict(ctx, p, &f.records[i], err))
		}
	}
	if len(suspects) > 0 {
		s.isolate(ctx, f.only(suspects), &out)
	}
	return out.errs
}

// encode makes records of the messages; those that cannot be one get their
// verdict.
func (s *Sink) encode(msgs []penstock.Message, out *verdicts) *flight {
	f := newFlight(len(msgs))
	e := newEncoder(msgs, s.cfg.Timestamp == timestampCreated)
	f.records = f.records[:0]
	for i := range msgs {
		topic, err := s.topic.Execute(&msgs[i])
		if err != nil {
			out.set(i, penstock.WithHint(err, "set the header when publishing, or change topic"))
			continue
		}
		if err := checkTopic(topic); err != nil {
			out.set(i, err)
			continue
		}
		f.records = f.records[:len(f.records)+1]
		e.record(&f.records[len(f.records)-1], &msgs[i], topic)
		f.messages = append(f.messages, i)
	}
	return f
}

// verdicts is Send's answer in the making: nil as long as nothing failed.
type verdicts struct {
	errs []error
	n    int
}

func (v *verdicts) set(i int, err error) {
	if v.errs == nil {
		v.errs = make([]error, v.n)
	}
	v.errs[i] = err
}

// Close waits for running Sends until ctx ends; those that run longer then end
// with an Unavailable error.
func (s *Sink) Close(ctx context.Context) error {
	idle, first := s.gate.close()
	if !first {
		return nil
	}
	var err error
	select {
	case <-idle:
	case <-ctx.Done():
		err = fmt.Errorf("close Kafka sink: messages were not confirmed in time and will be sent again: %w", context.Cause(ctx))
	}
	s.shared.stop(ctx, penstock.ErrClosed)
	s.lonely.stop(ctx, penstock.ErrClosed)
	return err
}
