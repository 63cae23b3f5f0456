// Package amqp1 sends messages to brokers that speak AMQP 1.0: Azure Service Bus, Apache ActiveMQ Artemis,
// RabbitMQ 4.
//
//	message          AMQP 1.0
//	ID               message-id
//	Topic            address (by the template address), subject
//	Key              group-id (the session of Service Bus), application property penstock-key
//	CreatedAt        creation-time, application property penstock-created-at: RFC 3339, nanoseconds, UTC
//	Attempt          application property penstock-attempt, from the second on
//	Headers          application properties of the same name; content-type is the property content-type
//	Payload          body, one data section
//
// Messages are durable. A message counts as delivered when the broker has accepted it.
package amqp1

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/attributes"
	"github.com/penstock/penstock/internal/descriptor"
	"github.com/penstock/penstock/internal/gate"
	"github.com/penstock/penstock/internal/lines"
	"github.com/penstock/penstock/internal/template"
)

// Driver describes this sink for the list in internal/drivers.
var Driver = descriptor.Sink[Config]{
	Name: "amqp1", Usage: "amqp1://HOST", Schemes: []string{"amqp1", "amqps1"},
	Parse: ParseURL, Open: descriptor.Opens(Open),
	// https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/amqp-protocol-binding.md
	Binding: descriptor.Headers("amqp1", "cloudEvents_", "cloudEvents:"),
	Reach:   descriptor.Reaches(Open, (*Sink).reach), ReadBack: readBack,
}

// Sink sends messages to addresses of a broker. It is safe for concurrent use. It is not a
// driver.InOrderSink: the broker may refuse a message and accept those behind it.
type Sink struct {
	cfg     Config
	address *template.Template
	gate    gate.Gate
	pool    lines.Pool[*line]
}

var _ driver.Sink = (*Sink)(nil)

// Open checks the configuration. The broker need not be up: Sends connect, and fail as Unavailable until
// that succeeds.
func Open(cfg Config, log *slog.Logger) (*Sink, error) {
	cfg.SetDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("amqp1 sink: %w", err)
	}
	if _, err := cfg.TLS.Load(); err != nil {
		return nil, fmt.Errorf("amqp1 sink: %w", err)
	}
	cfg.TLS.Warned(log)
	address, err := template.Parse(cfg.Address)
	return &Sink{cfg: cfg, address: address}, err
}

// Send sends the messages one behind the other, and then waits for the answers.
//
// Unavailable: the broker cannot be reached, refuses the login, does not answer in time or has no room.
// Permanent: the message is larger than the broker accepts. Unclassified: there is no such address,
// the user may not send to it, or the broker had nowhere to route the message.
func (s *Sink) Send(ctx context.Context, msgs []penstock.Message) []error {
	return s.gate.Send(ctx, msgs, errClosed, func(ctx context.Context, errs []error) {
		ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
		defer cancel()
		s.pool.Use(ctx, s.newLine, func(l *line) (broken bool) {
			s.send(ctx, l, msgs, errs)
			return l.conn == nil || l.conn.Err() != nil
		})
	})
}

func (s *Sink) send(ctx context.Context, l *line, msgs []penstock.Message, errs []error) {
	if err := l.connect(ctx); err != nil {
		copy(errs, driver.SendError(msgs, s.unreachable(ctx, err)))
		return
	}
	receipts, addresses := make([]amqp.SendReceipt, len(msgs)), make([]string, len(msgs))
	for i := range msgs {
		addresses[i], errs[i] = s.addressOf(&msgs[i])
		if errs[i] != nil {
			continue
		}
		sender, err := l.to(ctx, addresses[i])
		if err == nil {
			receipts[i], err = sender.SendWithReceipt(ctx, encode(&msgs[i]), nil)
		}
		if err != nil {
			errs[i] = s.verdict(ctx, l, addresses[i], err)
		}
	}
	for i := range msgs {
		if errs[i] == nil {
			state, err := receipts[i].Wait(ctx)
			if errs[i] = s.judge(addresses[i], state); err != nil {
				errs[i] = s.verdict(ctx, l, addresses[i], err)
			}
		}
	}
}

// addressOf fills the template.
func (s *Sink) addressOf(m *penstock.Message) (string, error) {
	escape := func(_, value string) (string, error) { return value, nil }
	if strings.HasPrefix(s.cfg.Address, "/") {
		escape = func(_, value string) (string, error) { return url.PathEscape(value), nil }
	}
	address, err := s.address.Escape(m, escape)
	if err == nil && address == "" {
		err = penstock.Permanent(penstock.WithHint(errors.New("the address is empty"), "publish with a topic, or change the template address"))
	}
	return address, err
}

func encode(m *penstock.Message) *amqp.Message {
	own := make(map[string]any, len(m.Headers)+3)
	p := &amqp.MessageProperties{MessageID: m.ID, CreationTime: &m.CreatedAt}
	for name, value := range m.Headers {
		switch name {
		case attributes.Key, attributes.Attempt:
		case descriptor.ContentType:
			p.ContentType = &value
		default:
			own[name] = value
		}
	}
	own[attributes.CreatedAt] = m.CreatedAt.UTC().Format(time.RFC3339Nano)
	if m.Topic != "" {
		p.Subject = &m.Topic
	}
	if m.Key != "" {
		p.GroupID, own[attributes.Key] = &m.Key, m.Key
	}
	if m.Attempt > 1 {
		own[attributes.Attempt] = int64(m.Attempt)
	}
	return &amqp.Message{Header: &amqp.MessageHeader{Durable: true}, Properties: p, ApplicationProperties: own, Data: [][]byte{m.Payload}}
}

// Close waits for running Sends until ctx ends. Those that run longer end with an Unavailable error.
func (s *Sink) Close(ctx context.Context) error {
	return s.gate.CloseSink(ctx, "AMQP 1.0", s.pool.Close)
}

func (s *Sink) newLine() *line { return &line{cfg: &s.cfg, links: map[string]*link{}} }

// reach connects, logs in, and asks for the address, if it is always the same.
func (s *Sink) reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	l := s.newLine()
	defer l.Close()
	if err := l.connect(ctx); err != nil {
		return s.unreachable(ctx, err)
	}
	if address, err := s.addressOf(&penstock.Message{}); err == nil && s.address.Fixed() {
		if _, err := l.to(ctx, address); err != nil {
			return s.verdict(ctx, l, address, err)
		}
	}
	return nil
}
