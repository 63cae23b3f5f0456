package amqp1

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/penstock/penstock/internal/attributes"
	"github.com/penstock/penstock/internal/readback"
)

// silence is after which time without a message a queue counts as empty.
const silence = 5 * time.Second

// readBack is Driver.ReadBack. It reads a queue of the run's own, which a broker such as Artemis makes when it is named, and
// deletes when it is empty and has no consumer.
func readBack(sinkURL, _, name string) (readback.Broker, error) {
	c, err := ParseURL(sinkURL)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(c.Address, "/") {
		return nil, errors.New("the consumer needs a broker that makes queues when they are named, such as Artemis: for RabbitMQ use amqp://")
	}
	to, err := readback.WithQuery(sinkURL, map[string]string{"address": name, "capability": "queue"})
	if err != nil {
		return nil, err
	}
	l := &line{cfg: &c}
	var from *amqp.Receiver
	connect := func(ctx context.Context) error {
		if from != nil {
			return nil
		}
		l.Close()
		l = &line{cfg: &c}
		if err := l.connect(ctx); err != nil {
			return err
		}
		session, err := l.conn.NewSession(ctx, nil)
		if err == nil {
			from, err = session.NewReceiver(ctx, name, &amqp.ReceiverOptions{Credit: 500, SourceCapabilities: []string{"queue"}, SourceDurability: amqp.DurabilityUnsettledState})
		}
		return err
	}
	return readback.NewPulled(readback.Pulled{
		URL:   to,
		Make:  connect,
		Leave: func() error { l.Close(); return nil },
		Pull: func(ctx context.Context, got func(readback.Arrival)) (empty bool, err error) {
			if err := connect(ctx); err != nil {
				return false, err
			}
			waiting, cancel := context.WithTimeout(ctx, silence)
			defer cancel()
			m, err := from.Receive(waiting, nil)
			if waiting.Err() != nil {
				return true, nil
			}
			for ; err == nil && m != nil; m = from.Prefetched() {
				key, _ := m.ApplicationProperties[attributes.Key].(string)
				id, _ := m.Properties.MessageID.(string)
				got(readback.Arrival{ID: id, Key: key, Payload: m.GetData()})
				err = from.AcceptMessage(ctx, m)
			}
			if err != nil {
				from = nil
			}
			return false, err
		},
	}), nil
}
