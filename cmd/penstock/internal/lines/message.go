package lines

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/penstock/penstock"
)

// messageLine is a message as a line of JSON.
type messageLine struct {
	ID      string            `json:"id"`
	Key     string            `json:"key"`
	Topic   string            `json:"topic"`
	Headers map[string]string `json:"headers"`
	PayloadFields
	// Fields that a store sets. Publishing ignores them.
	Seq       json.RawMessage `json:"seq"`
	CreatedAt json.RawMessage `json:"created_at"`
	Attempt   json.RawMessage `json:"attempt"`
}

var (
	messageWords = Words{Item: "message", Verb: "publish", Past: "published", Doing: "publishing", Sample: `{"topic":"t","payload":"p"}`}
	// Messages are the lines that penstock publish reads and the stdout sink writes.
	Messages = Kind[penstock.Message]{Words: &messageWords, Parse: ParseMessage, Size: (*penstock.Message).Size}
)

// ParseMessage reads one of them.
func ParseMessage(line []byte) (penstock.Message, error) {
	var l messageLine
	if err := messageWords.Decode(line, &l); err != nil {
		return penstock.Message{}, err
	}
	payload, err := l.Bytes()
	if err != nil {
		return penstock.Message{}, err
	}
	m := penstock.Message{ID: l.ID, Key: l.Key, Topic: l.Topic, Headers: l.Headers, Payload: payload}
	return m, m.Validate()
}

// ParseMessages reads the lines of text, up to a number of messages. An *Error names a bad one.
func ParseMessages(text []byte, most int) (msgs []penstock.Message, err error) {
	number := 0
	for line := range bytes.Lines(text) {
		if number++; len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if len(msgs) == most {
			return nil, &TooManyError{most}
		}
		m, err := ParseMessage(line)
		if err != nil {
			return nil, &Error{number, err}
		}
		msgs = append(msgs, m)
	}
	return msgs, nil
}

// TooManyError is about more messages than the limit.
type TooManyError struct{ Most int }

func (e *TooManyError) Error() string { return fmt.Sprintf("there are more than %d messages", e.Most) }
