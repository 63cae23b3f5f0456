package pubsub

import (
	"fmt"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/attributes"
)

// Limits of the service: https://docs.cloud.google.com/pubsub/quotas#resource_limits.
const (
	maxRequestBytes    = 10_000_000
	maxRequestMessages = 1000
	maxAttributes      = 100
	maxNameBytes       = 256
	maxValueBytes      = 1024
)

// encode is the message as the service takes it, and its bytes in a request.
func encode(m *penstock.Message, topic string) (*pubsubpb.PubsubMessage, int, error) {
	a := make(map[string]string, len(m.Headers)+5)
	for name, value := range attributes.Of(m) {
		if len(name) > maxNameBytes || len(value) > maxValueBytes {
			return nil, 0, refused("the header %.40q has a name of %d bytes and a value of %d: an attribute has at most %d and %d", name, len(name), len(value), maxNameBytes, maxValueBytes)
		}
		a[name] = value
	}
	if len(a) > maxAttributes {
		return nil, 0, refused("the message has %d attributes with Penstock's own, and a message has at most %d", len(a), maxAttributes)
	}
	p := &pubsubpb.PubsubMessage{Data: m.Payload, Attributes: a, OrderingKey: m.Key}
	bytes := protowire.SizeBytes(proto.Size(p)) + 1
	if total := bytes + emptyRequest(topic); total > maxRequestBytes {
		return nil, 0, penstock.Permanent(penstock.WithHint(fmt.Errorf("the message is %d bytes with its attributes, and a request has at most %d", total, maxRequestBytes),
			"set claim_check, which sends a reference"))
	}
	return p, bytes, nil
}

// emptyRequest is the bytes of a request without messages.
func emptyRequest(topic string) int { return protowire.SizeBytes(len(topic)) + 1 }

func refused(format string, args ...any) error {
	return penstock.Permanent(penstock.WithHint(fmt.Errorf(format, args...), "publish such values in the payload"))
}
