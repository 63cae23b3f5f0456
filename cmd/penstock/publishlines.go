package main

import (
	"encoding/json"
	"errors"

	"github.com/penstock/penstock"
)

// messageLine is a message as a line of JSON.
type messageLine struct {
	ID      string            `json:"id"`
	Key     string            `json:"key"`
	Topic   string            `json:"topic"`
	Headers map[string]string `json:"headers"`
	payloadFields
	// What a store sets, and publishing therefore passes over.
	Seq       json.RawMessage `json:"seq"`
	CreatedAt json.RawMessage `json:"created_at"`
	Attempt   json.RawMessage `json:"attempt"`
}

var (
	messageWords = lineWords{item: "message", verb: "publish", past: "published", doing: "publishing", sample: `{"topic":"t","payload":"p"}`}
	messageLines = lineKind[penstock.Message]{&messageWords, parseLine, (*penstock.Message).Size}
)

func parseLine(line []byte) (penstock.Message, error) {
	var l messageLine
	if err := messageWords.decode(line, &l); err != nil {
		return penstock.Message{}, err
	}
	payload, err := l.bytes()
	if err != nil {
		return penstock.Message{}, err
	}
	m := penstock.Message{ID: l.ID, Key: l.Key, Topic: l.Topic, Headers: l.Headers, Payload: payload}
	return m, m.Validate()
}

// payloadFields are the two ways in which a line has a payload.
type payloadFields struct {
	Payload       json.RawMessage `json:"payload"`
	PayloadBase64 []byte          `json:"payload_base64"`
}

// bytes returns the payload: a JSON string as the text it means, any other value
// as it is written.
func (p *payloadFields) bytes() ([]byte, error) {
	switch {
	case p.Payload != nil && p.PayloadBase64 != nil:
		return nil, errors.New("has both payload and payload_base64: give one")
	case p.Payload == nil:
		return p.PayloadBase64, nil
	case p.Payload[0] != '"':
		return p.Payload, nil
	}
	var text string
	if err := json.Unmarshal(p.Payload, &text); err != nil {
		return nil, err
	}
	return []byte(text), nil
}
