package nats

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock/penstock"
)

// Header names. They win over headers of the same name in the message.
const (
	HeaderID        = "Nats-Msg-Id"
	HeaderKey       = "Penstock-Key"
	HeaderTopic     = "Penstock-Topic"
	HeaderCreatedAt = "Penstock-Created-At"
	HeaderAttempt   = "Penstock-Attempt"
)

// envelope builds the headers of one message after another in the same map: PublishMsg has written
// them when it returns. Each name's value is in a slice of length one, made once. Not for
// concurrent use.
type envelope struct {
	header                             nats.Header
	id, key, topic, createdAt, attempt []string
	own                                []string // values of the message's own headers
	ownNames                           []string
	stamped                            time.Time // the value of createdAt
}

func newEnvelope() *envelope {
	values := make([]string, 5)
	e := &envelope{
		id: values[0:1:1], key: values[1:2:2], topic: values[2:3:3], createdAt: values[3:4:4], attempt: values[4:5:5],
	}
	e.header = nats.Header{HeaderID: e.id, HeaderTopic: e.topic, HeaderCreatedAt: e.createdAt}
	return e
}

// fill replaces the envelope's headers by those of m. The error is Permanent: NATS headers are
// lines of text, and values that would change in transit are refused.
func (e *envelope) fill(m *penstock.Message) error {
	for _, name := range e.ownNames {
		delete(e.header, name)
	}
	e.ownNames, e.own = e.ownNames[:0], e.own[:0]
	for name, value := range m.Headers {
		if reserved(name) {
			continue
		}
		if err := checkHeader(name, value); err != nil {
			return err
		}
		e.own = append(e.own, value)
		e.ownNames = append(e.ownNames, name)
		e.header[name] = e.own[len(e.own)-1 : len(e.own) : len(e.own)]
	}
	if err := checkValue("the id", m.ID); err != nil {
		return err
	}
	if err := checkValue("the key", m.Key); err != nil {
		return err
	}
	if err := checkValue("the topic", m.Topic); err != nil {
		return err
	}
	e.id[0], e.topic[0] = m.ID, m.Topic
	if e.createdAt[0] == "" || !m.CreatedAt.Equal(e.stamped) { // one transaction, one time
		e.stamped = m.CreatedAt
		e.createdAt[0] = m.CreatedAt.UTC().Format(time.RFC3339Nano)
	}
	if e.key[0] = m.Key; m.Key == "" {
		delete(e.header, HeaderKey)
	} else {
		e.header[HeaderKey] = e.key
	}
	if m.Attempt > 1 {
		e.attempt[0] = strconv.Itoa(m.Attempt)
		e.header[HeaderAttempt] = e.attempt
	} else {
		delete(e.header, HeaderAttempt)
	}
	return nil
}

func reserved(name string) bool {
	switch name {
	case HeaderID, HeaderKey, HeaderTopic, HeaderCreatedAt, HeaderAttempt:
		return true
	}
	return false
}

// forbiddenInName are the characters that the client library, like HTTP, refuses.
const forbiddenInName = `"()/,:;<=>?@[\]{}`

func checkHeader(name, value string) error {
	for i := 0; i < len(name); i++ {
		if c := name[i]; c <= ' ' || c > '~' || strings.IndexByte(forbiddenInName, c) >= 0 {
			return penstock.Permanent(penstock.WithHint(fmt.Errorf("header %q cannot travel over NATS", name),
				"name headers with ASCII letters, digits and dashes"))
		}
	}
	// A batch is acknowledged as a whole or not at all, so a message that must be confirmed alone
	// cannot be part of one.
	if strings.HasPrefix(name, "Nats-Batch-") {
		return penstock.Permanent(penstock.WithHint(fmt.Errorf("header %q makes the message part of a JetStream batch", name),
			"publish without it: every message is confirmed alone"))
	}
	return checkValue("header "+name, value)
}

func checkValue(what, value string) error {
	if value == "" {
		return nil
	}
	if strings.ContainsAny(value, "\r\n") || space(value[0]) || space(value[len(value)-1]) {
		return penstock.Permanent(penstock.WithHint(fmt.Errorf("%s %q cannot travel over NATS unchanged", what, value),
			"NATS headers hold one line without spaces around it; encode the value"))
	}
	return nil
}

func space(c byte) bool { return c == ' ' || c == '\t' }
