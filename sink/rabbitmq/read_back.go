package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/readback"
	"github.com/penstock/penstock/internal/sinkurl"
)

// endType is the message type that ends a reading.
const endType = "penstock.end"

// reader reads a durable classic queue, bound to a topic exchange of the run's own. After a lost
// connection it continues where it was acknowledged.
type reader struct {
	servers []string // URLs without the sink's parameters, of each host one
	sinkURL string
	name    string // of the exchange and the queue

	mu   sync.Mutex
	conn *amqp.Connection // for all but reading
}

// readBack is Driver.ReadBack.
func readBack(sinkURL, _, name string) (readback.Broker, error) {
	server, _, _ := strings.Cut(sinkURL, "?")
	routed, err := readback.WithQuery(sinkURL, map[string]string{"exchange": name, "routing_key": "{topic}"})
	if err != nil {
		return nil, err
	}
	return &reader{servers: sinkurl.PerHost(server), sinkURL: routed, name: name}, nil
}

func (r *reader) SinkURL() string { return r.sinkURL }

func (r *reader) Open(ctx context.Context, _ driver.Sink) error {
	return r.withChannel(ctx, func(ch *amqp.Channel) error {
		if err := ch.ExchangeDeclare(r.name, amqp.ExchangeTopic, true, false, false, false, nil); err != nil {
			return err
		}
		if _, err := ch.QueueDeclare(r.name, true, false, false, false, nil); err != nil {
			return err
		}
		return ch.QueueBind(r.name, "#", r.name, false, nil)
	})
}

func (r *reader) Read(ctx context.Context, got func(readback.Arrival)) error {
	_, err := backoff.Retry(ctx, func() (struct{}, error) { return struct{}{}, r.readOnce(ctx, got) },
		backoff.WithBackOff(&backoff.ExponentialBackOff{InitialInterval: 50 * time.Millisecond, Multiplier: 2, MaxInterval: time.Second}),
		backoff.WithMaxElapsedTime(0))
	return err
}

const (
	readAhead    = 1000
	readAckEvery = readAhead / 4
)

// readOnce reads until the end marker or until the connection is lost.
func (r *reader) readOnce(ctx context.Context, got func(readback.Arrival)) error {
	conn, err := r.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Qos(readAhead, 0, false); err != nil {
		return err
	}
	deliveries, err := ch.Consume(r.name, "", false, true, false, false, nil)
	if err != nil {
		return err
	}
	for unacked := 0; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case d, ok := <-deliveries:
			if !ok {
				return errors.New("the consumer's connection to RabbitMQ was lost")
			}
			if d.Type == endType {
				return d.Ack(true)
			}
			key, _ := d.Headers["penstock-key"].(string)
			got(readback.Arrival{ID: d.MessageId, Key: key, Payload: d.Body})
			if unacked++; unacked >= readAckEvery {
				if err := d.Ack(true); err != nil {
					return err
				}
				unacked = 0
			}
		}
	}
}

func (r *reader) Finish(ctx context.Context) error {
	return r.withChannel(ctx, func(ch *amqp.Channel) error {
		if err := ch.Confirm(false); err != nil {
			return err
		}
		// To the queue itself: the default exchange routes by the queue's name.
		confirm, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", r.name, true, false,
			amqp.Publishing{Type: endType, DeliveryMode: amqp.Persistent})
		if err != nil {
			return err
		}
		if acked, err := confirm.WaitContext(ctx); err != nil || !acked {
			return errors.Join(errors.New("RabbitMQ did not confirm the end marker"), err)
		}
		return nil
	})
}

func (r *reader) Remove(ctx context.Context) error {
	return r.withChannel(ctx, func(ch *amqp.Channel) error {
		if _, err := ch.QueueDelete(r.name, false, false, false); err != nil {
			return err
		}
		return ch.ExchangeDelete(r.name, false, false)
	})
}

func (r *reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn == nil || r.conn.IsClosed() {
		return nil
	}
	return r.conn.Close()
}

// dial connects to the first host that answers.
func (r *reader) dial() (conn *amqp.Connection, err error) {
	for _, server := range r.servers {
		conn, err = amqp.DialConfig(server, amqp.Config{
			Heartbeat: 10 * time.Second, Dial: amqp.DefaultDial(5 * time.Second),
			Properties: amqp.Table{"connection_name": "penstock: consumer"},
		})
		if err == nil {
			return conn, nil
		}
	}
	return nil, penstock.Unavailable(penstock.WithHint(fmt.Errorf("the consumer cannot connect to RabbitMQ: %w", err),
		"check that the broker is up and that --sink has its host, user, password and virtual host"))
}

// withChannel runs fn on a separate channel, because RabbitMQ closes a channel on which something
// failed.
func (r *reader) withChannel(ctx context.Context, fn func(*amqp.Channel) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.conn == nil || r.conn.IsClosed() {
		conn, err := r.dial()
		if err != nil {
			return err
		}
		r.conn = conn
	}
	ch, err := r.conn.Channel()
	if err != nil {
		return err
	}
	defer ch.Close()
	if err := fn(ch); err != nil {
		return fmt.Errorf("RabbitMQ, queue %s: %w", r.name, err)
	}
	return nil
}
