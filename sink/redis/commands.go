package redis

import (
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/attributes"
)

// commands has the arguments of a Send's commands. They point at the messages, or at texts and times that are kept
// here: a value in an interface would be an allocation each, some fifteen a message.
type commands struct {
	args  []any
	texts []string
	times []time.Time
}

// clear forgets the messages, and keeps the memory for the next Send.
func (c *commands) clear() {
	clear(c.args)
	clear(c.texts)
	c.args, c.texts, c.times = c.args[:0], c.texts[:0], c.times[:0]
}

// text is an argument. A slice that grows leaves the older texts where they are.
func (c *commands) text(s string) *string {
	c.texts = append(c.texts, s)
	return &c.texts[len(c.texts)-1]
}

// add is XADD with these options and the fields that attributes.Of has, and the payload.
func (c *commands) add(m *penstock.Message, stream string, options []any) []any {
	first := len(c.args)
	c.times = append(c.times, m.CreatedAt.UTC())
	args := append(append(c.args, "XADD", c.text(stream)), options...)
	args = append(args, "*", attributes.ID, &m.ID, attributes.CreatedAt, &c.times[len(c.times)-1])
	if m.Topic != "" {
		args = append(args, attributes.Topic, &m.Topic)
	}
	if m.Key != "" {
		args = append(args, attributes.Key, &m.Key)
	}
	if m.Attempt > 1 {
		args = append(args, attributes.Attempt, &m.Attempt)
	}
	for name, value := range m.Headers {
		if !attributes.IsOwn(name) {
			args = append(args, c.text(name), c.text(value))
		}
	}
	c.args = append(args, fieldPayload, (*bytesArgument)(&m.Payload))
	return c.args[first:len(c.args):len(c.args)]
}

// bytesArgument points at bytes, for the client library.
type bytesArgument []byte

// MarshalBinary returns the bytes.
func (b *bytesArgument) MarshalBinary() ([]byte, error) { return *b, nil }
