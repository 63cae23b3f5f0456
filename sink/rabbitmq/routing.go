package rabbitmq

import (
	"fmt"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/attributes"
)

// headerContentType is the one header of a message that does not become a
// header: it is the property content_type.
const headerContentType = "content-type"

// maxShortString is AMQP's limit for names: ids, routing keys, header names.
const maxShortString = 255

// routingKey is where the message goes, or why it can never go anywhere over a
// connection with frames of that size.
//
// Everything that could make a frame invalid is checked here: the broker would
// answer that by closing the whole connection.
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
		case name == headerContentType && len(value) > maxShortString:
			return "", tooLong("the header content-type", len(value), "publish with a media type such as application/json")
		case name == "CC" || name == "BCC":
			return "", penstock.Permanent(penstock.WithHint(fmt.Errorf("the header %s is RabbitMQ's own and not text", name), "give it another name"))
		}
	}
	if size > frame {
		return "", tooLong("the headers together", size, "move large values into the payload; AMQP carries all headers in one frame")
	}
	return key, nil
}

// headerRoom is more than the properties and the added headers can take.
const headerRoom = 1<<10 + penstock.MaxKeyBytes + penstock.MaxTopicBytes

func tooLong(what string, bytes int, hint string) error {
	return penstock.Permanent(penstock.WithHint(fmt.Errorf("%s is %d bytes long, too long for RabbitMQ", what, bytes), "%s", hint))
}

// added reports whether the sink sets the header itself. The id is a property.
func added(name string) bool { return name != attributes.ID && attributes.IsOwn(name) }
