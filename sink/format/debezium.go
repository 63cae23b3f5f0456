package format

import (
	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/template"
)

// debeziumID is the header in which EventRouter puts the event's id; consumers
// deduplicate by it.
const debeziumID = "id"

// debezium makes records as consumers of Debezium's outbox EventRouter know them: the header id,
// configured headers, and the payload unchanged. The record's key is the message's, and the sink
// chooses the topic.
// https://debezium.io/documentation/reference/stable/transformations/outbox-event-router.html
type debezium struct {
	headers []debeziumHeader
}

type debeziumHeader struct {
	name  string
	value *template.Template
}

func newDebezium(cfg Config) (*debezium, error) {
	d := &debezium{}
	for name, text := range cfg.Headers {
		t, err := template.Parse(text)
		if err != nil {
			return nil, err
		}
		d.headers = append(d.headers, debeziumHeader{name, t})
	}
	return d, nil
}

func (d *debezium) encode(m *penstock.Message, headers map[string]string, _ *scratch) ([]byte, error) {
	if m.ID == "" {
		return nil, errNoID
	}
	for name, value := range m.Headers {
		headers[name] = value
	}
	for _, h := range d.headers {
		if value, ok := h.value.Optional(m); ok {
			headers[h.name] = value
		}
	}
	headers[debeziumID] = m.ID
	return m.Payload, nil
}
