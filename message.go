package penstock

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of a message that a producer publishes. They hold for every store, so that a
// message accepted by one is accepted by all.
const (
	MaxPayloadBytes = 64 << 20 // 64 MiB
	MaxKeyBytes     = 1 << 10  // 1 KiB
	MaxTopicBytes   = 1 << 10  // 1 KiB
	MaxIDBytes      = 256
	MaxHeaderBytes  = 64 << 10 // all names and values of one message together
)

// Message is published by a business transaction and received by a sink.
//
// A producer sets Key, Topic, Headers, Payload and, if it has one, ID; the
// store sets the rest.
type Message struct {
	// ID is stable for the life of the message and unique across outboxes. Every
	// delivery of the message carries the same ID, so consumers deduplicate by
	// it. If it is empty on publish, the store derives one.
	ID string
	// Seq is the position in the outbox. Gaps mean nothing.
	Seq int64
	// Key sets the order: messages with the same key reach the sink one after
	// another, in the order in which their transactions could have seen each
	// other. Messages with an empty key have no order.
	Key string
	// Topic is the subject of the message; sinks route by it.
	Topic string
	// Headers travel with the message (traceparent among them). Nil when there
	// are none.
	Headers map[string]string
	// Payload is opaque: any bytes, up to MaxPayloadBytes.
	Payload []byte
	// CreatedAt is the time of the database's clock when the message was written.
	CreatedAt time.Time
	// Attempt is 1 on the first delivery.
	Attempt int
	// FailedSince is when the sink first refused the message, or zero if it never did.
	FailedSince time.Time
}

// Size estimates how many bytes the message takes in memory. The relay limits
// the sum for the messages that it has in flight.
func (m *Message) Size() int {
	n := 160 + len(m.ID) + len(m.Key) + len(m.Topic) + len(m.Payload)
	for k, v := range m.Headers {
		n += 32 + len(k) + len(v)
	}
	return n
}

// Validate returns a *FieldError for the first field that a database or broker
// could not carry. Every store calls it before it writes.
func (m *Message) Validate() error {
	if len(m.Payload) > MaxPayloadBytes {
		return &FieldError{Field: "payload", Problem: fmt.Sprintf("is %d bytes, more than the limit of %d", len(m.Payload), MaxPayloadBytes),
			Hint: "store the content elsewhere and publish a reference to it"}
	}
	if err := ValidateText("id", m.ID, MaxIDBytes); err != nil {
		return err
	}
	if i := strings.IndexFunc(m.ID, func(r rune) bool { return r < 0x20 || r == 0x7f }); i >= 0 {
		return &FieldError{Field: "id", Problem: fmt.Sprintf("has a control character at byte %d", i), Hint: "use printable characters: the id travels in protocol headers"}
	}
	if err := ValidateText("key", m.Key, MaxKeyBytes); err != nil {
		return err
	}
	if err := ValidateText("topic", m.Topic, MaxTopicBytes); err != nil {
		return err
	}
	total := 0
	for k, v := range m.Headers {
		if k == "" {
			return &FieldError{Field: "headers", Problem: "has a header with an empty name", Hint: "name every header"}
		}
		if err := inHeader(ValidateText("", k, MaxHeaderBytes), k, " (name)"); err != nil {
			return err
		}
		if err := inHeader(ValidateText("", v, MaxHeaderBytes), k, ""); err != nil {
			return err
		}
		total += len(k) + len(v)
	}
	if total > MaxHeaderBytes {
		return &FieldError{Field: "headers", Problem: fmt.Sprintf("are %d bytes together, more than the limit of %d", total, MaxHeaderBytes), Hint: "move large values into the payload"}
	}
	return nil
}

// inHeader names the field of an error. It is called only for an error: building the name of each valid header would cost more
// than the check.
func inHeader(err error, name, what string) error {
	if bad, is := err.(*FieldError); is {
		bad.Field = fmt.Sprintf("headers[%q]%s", name, what)
	}
	return err
}

// ValidateText returns a *FieldError for a text that no store accepts: longer than limit bytes, not UTF-8, or with a NUL.
func ValidateText(field, s string, limit int) error {
	if len(s) > limit {
		return &FieldError{Field: field, Problem: fmt.Sprintf("is %d bytes, more than the limit of %d", len(s), limit), Hint: "shorten it"}
	}
	if i := strings.IndexByte(s, 0); i >= 0 {
		return &FieldError{Field: field, Problem: fmt.Sprintf("has a NUL at byte %d", i), Hint: "text cannot hold NUL; put bytes into the payload or encode them"}
	}
	if !utf8.ValidString(s) {
		return &FieldError{Field: field, Problem: "is not valid UTF-8", Hint: "put bytes into the payload or encode them"}
	}
	return nil
}
