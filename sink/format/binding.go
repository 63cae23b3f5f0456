package format

import (
	"fmt"
	"slices"
	"strings"

	"github.com/penstock/penstock"
)

// Binding names the protocol that carries the messages, as the configuration
// names the sink.
type Binding string

// The bindings.
const (
	RabbitMQ Binding = "rabbitmq"
	NATS     Binding = "nats"
	Kafka    Binding = "kafka"
	Webhook  Binding = "webhook"
	Stdout   Binding = "stdout"
	Discard  Binding = "discard"
)

// contentTypeHeader is the header by which sinks learn what they have to
// declare in the way of their protocol: AMQP's property, HTTP's field, Kafka's
// header of that name.
const contentTypeHeader = "content-type"

// rules is what the CloudEvents specification says about one protocol.
type rules struct {
	// prefixes of attribute names that consumers of the protocol know, the one
	// to use by default first. Headers of the message must not begin with any.
	prefixes []string
	// dataContentType is the header of the attribute datacontenttype in binary
	// mode, where the payload is the data.
	dataContentType string
	// structured is the header that declares structured mode.
	structured string
	// percent: header values are ASCII, with the rest percent-encoded.
	percent bool
}

// rules follows the protocol bindings of version 1.0.2:
// https://github.com/cloudevents/spec/tree/v1.0.2/cloudevents/bindings.
// False for sinks that take messages as they are only.
func (b Binding) rules() (r rules, ok bool) {
	common := rules{prefixes: []string{"ce-"}, dataContentType: contentTypeHeader, structured: contentTypeHeader}
	switch b {
	case Stdout, Discard: // no protocols of the specification; they do as HTTP does, without its encoding
	case Webhook:
		common.percent = true
	case NATS:
		// NATS has no content type of its own; the binding keeps the attribute
		// among the others and declares structured mode by a header as in HTTP.
		common.dataContentType, common.structured = "ce-datacontenttype", "Content-Type"
		common.percent = true
	case Kafka:
		common.prefixes = []string{"ce_"}
	case RabbitMQ:
		// There is no binding for AMQP 0-9-1. The one for AMQP 1.0 fits: RabbitMQ
		// turns headers and content_type into application-properties and
		// content-type for consumers that speak 1.0. It allows two separators and
		// prefers the underscore, as does Spring AMQP; Knative's draft of a RabbitMQ
		// binding has ce-.
		common.prefixes = []string{"cloudEvents_", "cloudEvents:", "ce-"}
	default:
		return rules{}, false
	}
	return common, true
}

// prefix is the one to use: chosen, or by default the first.
func (r rules) prefix(chosen string, b Binding) (string, error) {
	if chosen == "" {
		return r.prefixes[0], nil
	}
	if !slices.Contains(r.prefixes, chosen) {
		return "", &penstock.FieldError{
			Field: "prefix", Problem: fmt.Sprintf("is %q, which consumers of %s do not know", chosen, b),
			Hint: "leave it out, or write " + strings.Join(r.prefixes, " or "),
		}
	}
	return chosen, nil
}

// reserved reports whether a header of that name would pass for an attribute.
func (r rules) reserved(name string) bool {
	for _, p := range r.prefixes {
		if len(name) >= len(p) && strings.EqualFold(name[:len(p)], p) {
			return true
		}
	}
	return false
}
