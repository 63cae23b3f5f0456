package rabbitmq

import (
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/penstock/penstock"
)

// Headers that the sink adds. It adds as few as it can: what a property or the
// routing key says already is not repeated, because RabbitMQ pays for each byte
// of properties and dearly for those beyond the 64th (see DESIGN.md).
const (
	headerKey       = "penstock-key"        // if the message has a key
	headerTopic     = "penstock-topic"      // if the routing key is not the topic
	headerAttempt   = "penstock-attempt"    // from the second attempt on
	headerCreatedAt = "penstock-created-at" // if asked for: RFC 3339 with fractions
)

// maxShortString is AMQP's limit for names: ids, routing keys, header names.
const maxShortString = 255

// routingKey is where the message goes, or why it can never go anywhere over a
// connection with frames of that size.
//
// The library checks lengths when half of the frames are written already, and
// then the whole connection is lost, so all of it is checked here.
func (s *Sink) routingKey(m *penstock.Message, frame int) (string, error) {
	key, err := s.key.Execute(m)
	if err != nil {
		return "", penstock.WithHint(err, "set the header when publishing, or change routing_key")
	}
	switch {
	case len(key) > maxShortString:
		return "", tooLong("the routing key", len(key), "shorten the topic, or change routing_key")
	case len(m.ID) > maxShortString:
		return "", tooLong("the message id", len(m.ID), "publish with a shorter id")
	case len(m.Headers) == 0:
		return key, nil
	}
	size := headerRoom
	for name, value := range m.Headers {
		size += len(name) + len(value) + 6
		switch {
		case len(name) > maxShortString:
			return "", tooLong("the name of a header", len(name), "shorten it")
		case name == "CC" || name == "BCC":
			return "", penstock.Permanent(penstock.WithHint(fmt.Errorf("the header %s is RabbitMQ's own and not text", name), "give it another name"))
		}
	}
	if size > frame {
		return "", tooLong("the headers together", size, "move what is large into the payload; AMQP carries all headers in one frame")
	}
	return key, nil
}

// headerRoom is more than the properties and the added headers can take.
const headerRoom = 1<<10 + penstock.MaxKeyBytes + penstock.MaxTopicBytes

func tooLong(what string, bytes int, hint string) error {
	return penstock.Permanent(penstock.WithHint(fmt.Errorf("%s is %d bytes long, too long for RabbitMQ", what, bytes), "%s", hint))
}

// publishing is the message in AMQP's terms. headers is scratch, overwritten by
// the next call.
func (s *Sink) publishing(m *penstock.Message, key string, headers amqp.Table) amqp.Publishing {
	clear(headers)
	for name, value := range m.Headers {
		headers[name] = value
	}
	if m.Key != "" {
		headers[headerKey] = m.Key
	}
	if m.Topic != key {
		headers[headerTopic] = m.Topic
	}
	if m.Attempt > 1 {
		headers[headerAttempt] = int32(m.Attempt)
	}
	if s.cfg.CreatedAtHeader {
		headers[headerCreatedAt] = m.CreatedAt.UTC().Format(time.RFC3339Nano)
	}
	return amqp.Publishing{
		MessageId:    m.ID,
		DeliveryMode: amqp.Persistent,
		Timestamp:    m.CreatedAt,
		Headers:      headers,
		Body:         m.Payload,
	}
}
