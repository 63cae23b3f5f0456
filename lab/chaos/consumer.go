package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// arrival is a message as a broker handed it out.
type arrival struct {
	ID      string // what consumers know duplicates by
	Key     string
	Topic   string
	Trace   string // a header
	Payload message
	At      time.Time
}

// queueName is RabbitMQ's exchange and its durable queue.
const queueName = "chaos"

// endType marks the last message of the run.
const endType = "chaos.end"

// rabbitConsumer reads the queue all the while, acknowledging in order. It goes
// to the broker directly: what the network does to it says nothing about relays.
// After the broker was killed some arrivals come again; they are duplicates that
// the kill explains.
type rabbitConsumer struct {
	url       string
	chronicle *chronicle

	read     atomic.Int64
	mu       sync.Mutex
	arrivals []arrival
}

// declare makes the exchange and the queue. Everything that is not poisoned is bound.
func (c *rabbitConsumer) declare() error {
	return c.withChannel(func(ch *amqp.Channel) error {
		if err := ch.ExchangeDeclare(queueName, amqp.ExchangeTopic, true, false, false, false, nil); err != nil {
			return err
		}
		if _, err := ch.QueueDeclare(queueName, true, false, false, false, nil); err != nil {
			return err
		}
		for _, topic := range []string{"shop.order.#", "shop.audit.#", topicNeverNATS, topicLaterNATS, topicLaterRabbit} {
			if err := ch.QueueBind(queueName, topic, queueName, false, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// route gives a topic a way to the queue, or takes it away.
func (c *rabbitConsumer) route(topic string, there bool) error {
	return c.withChannel(func(ch *amqp.Channel) error {
		if there {
			return ch.QueueBind(queueName, topic, queueName, false, nil)
		}
		return ch.QueueUnbind(queueName, topic, queueName, nil)
	})
}

// finish puts the end marker behind everything that was confirmed.
func (c *rabbitConsumer) finish(ctx context.Context) error {
	return c.withChannel(func(ch *amqp.Channel) error {
		if err := ch.Confirm(false); err != nil {
			return err
		}
		confirm, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", queueName, true, false, amqp.Publishing{Type: endType, DeliveryMode: amqp.Persistent})
		if err != nil {
			return err
		}
		if acked, err := confirm.WaitContext(ctx); err != nil || !acked {
			return errors.Join(errors.New("RabbitMQ did not confirm the end marker"), err)
		}
		return nil
	})
}

func (c *rabbitConsumer) withChannel(fn func(*amqp.Channel) error) error {
	conn, err := amqp.DialConfig(c.url, amqp.Config{Dial: amqp.DefaultDial(3 * time.Second)})
	if err != nil {
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	return fn(ch)
}

// run reads until the end marker, connecting anew as often as it takes.
func (c *rabbitConsumer) run(ctx context.Context) error {
	for before := int64(0); ; {
		done, err := c.readOnce(ctx)
		if done || ctx.Err() != nil {
			return ctx.Err()
		}
		if _, broken := errors.AsType[*contentError](err); broken {
			return err
		}
		if read := c.read.Load(); read != before {
			// Messages that were read and not acknowledged will be handed out again.
			c.chronicle.note("consumer_lost", "rabbitmq", subscriptions(routeNames("rabbitmq")...), time.Now(), time.Now())
			before = read
		}
		sleep(ctx, 200*time.Millisecond)
	}
}

func (c *rabbitConsumer) readOnce(ctx context.Context) (done bool, err error) {
	err = c.withChannel(func(ch *amqp.Channel) error {
		if err := ch.Qos(200, 0, false); err != nil {
			return err
		}
		deliveries, err := ch.Consume(queueName, "", false, true, false, false, nil)
		if err != nil {
			return err
		}
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case d, open := <-deliveries:
				if !open {
					return errors.New("the consumer's connection was lost")
				}
				if d.Type == endType {
					done = true
					return d.Ack(true)
				}
				a, err := rabbitArrival(&d)
				if err != nil {
					return err
				}
				c.mu.Lock()
				c.arrivals = append(c.arrivals, a)
				c.mu.Unlock()
				c.read.Add(1)
				if err := d.Ack(false); err != nil {
					return err
				}
			}
		}
	})
	return done, err
}

func rabbitArrival(d *amqp.Delivery) (arrival, error) {
	key, _ := d.Headers["penstock-key"].(string)
	trace, _ := d.Headers["trace"].(string)
	return newArrival(d.MessageId, key, d.RoutingKey, trace, d.Body, time.Now())
}

// contentError: what a broker handed out is nothing that a producer wrote.
type contentError struct{ err error }

func (e *contentError) Error() string { return e.err.Error() }

func newArrival(id, key, topic, trace string, payload []byte, at time.Time) (arrival, error) {
	a := arrival{ID: id, Key: key, Topic: topic, Trace: trace, At: at}
	if err := json.Unmarshal(payload, &a.Payload); err != nil {
		return a, &contentError{fmt.Errorf("the payload of message %q cannot be read: %w", id, err)}
	}
	return a, nil
}
