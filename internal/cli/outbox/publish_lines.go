package outbox

import (
	"encoding/json"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/cli"
)

// messageLine is a message as a line of JSON.
type messageLine struct {
	ID      string            `json:"id"`
	Key     string            `json:"key"`
	Topic   string            `json:"topic"`
	Headers map[string]string `json:"headers"`
	cli.PayloadFields
	// What a store sets, and publishing therefore passes over.
	Seq       json.RawMessage `json:"seq"`
	CreatedAt json.RawMessage `json:"created_at"`
	Attempt   json.RawMessage `json:"attempt"`
}

var (
	messageWords = cli.LineWords{Item: "message", Verb: "publish", Past: "published", Doing: "publishing", Sample: `{"topic":"t","payload":"p"}`}
	messageLines = cli.LineKind[penstock.Message]{LineWords: &messageWords, Parse: parseLine, Size: (*penstock.Message).Size}
)

func parseLine(line []byte) (penstock.Message, error) {
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
