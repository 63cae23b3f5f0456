package format_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/sink/format"
	"github.com/penstock/penstock/sink/kafka"
	"github.com/penstock/penstock/sink/nats"
)

// A message that cannot be a valid event is refused permanently, and the error names the field to
// change.
func TestRefused(t *testing.T) {
	type message = penstock.Message
	for _, c := range []struct {
		name   string
		config format.Config
		change func(*message)
		want   []string
	}{
		{"no topic", format.Config{}, func(m *message) { m.Topic = "" }, []string{"the attribute type is empty", `"{topic}"`, "format.type"}},
		{"no id", format.Config{}, func(m *message) { m.ID = "" }, []string{"the attribute id is empty"}},
		{"header of type missing", format.Config{Type: "{header.event}"}, func(*message) {}, []string{`no header "event"`}},
		{"header of source missing", format.Config{Source: "/{header.region}"}, func(*message) {}, []string{`no header "region"`}},
		{"source", format.Config{Source: "/{key}"}, func(m *message) { m.Key = "a b" }, []string{"source is not a URI reference", "format.source"}},
		{"dataschema", format.Config{DataSchema: "{key}"}, func(*message) {}, []string{"dataschema is not an absolute URI"}},
		{"line break in key", format.Config{}, func(m *message) { m.Key = "a\nb" }, []string{"subject has a control character", "format.subject"}},
		{"C1 control", format.Config{}, func(m *message) { m.Key = "a\u0085b" }, []string{"control character"}},
		{"noncharacter", format.Config{}, func(m *message) { m.Key = "a\U0001FFFEb" }, []string{"not a character"}},
		{"not UTF-8", format.Config{}, func(m *message) { m.Topic = "a\xffb" }, []string{"type is not valid UTF-8"}},
		{"extension", format.Config{Subject: format.Omit}, func(m *message) { m.Key = "a\tb" }, []string{"partitionkey has a control", "format.extensions.partitionkey"}},
		{"year", format.Config{}, func(m *message) { m.CreatedAt = time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC) }, []string{"time is in the year 10000"}},
		{"content type", format.Config{}, func(m *message) { m.Headers["Content-Type"] = "json please" }, []string{"content-type", "not a media type"}},
		{"passes for an attribute", format.Config{}, func(m *message) { m.Headers["CE_tenant"] = "x" }, []string{`"CE_tenant" would pass for an attribute`, "format.extensions"}},
	} {
		for _, mode := range []string{format.Binary, format.Structured} {
			c.config.Kind, c.config.Mode = format.CloudEvents, mode
			m := order()
			c.change(&m)
			err := refusal(t, c.config, kafka.Driver.Binding, m).Error()
			for _, want := range c.want {
				if !strings.Contains(err, want) {
					t.Errorf("%s, %s: %s\nwant %s", c.name, mode, err, want)
				}
			}
		}
	}
}

// A payload that is declared as JSON and is not becomes a dead letter. The error has the fix, and
// nothing of the payload.
func TestNotJSON(t *testing.T) {
	for payload, where := range map[string]string{
		`{"secret": tru}`:        "at byte 15 of 15",
		"secret":                 "at byte 1 of 6",
		`{"a":1} secret`:         "at byte 9 of 14",
		`{"secret"`:              "at byte 9 of 9",
		"\ufeff{}":               "at byte 1 of 5",
		"\"secret\xff\"":         "it is not UTF-8",
		" ":                      "at byte 1 of 1",
		"{\"secret\":\"a\nb\"}":  "byte",
		"\x00\x01\x02secret\x03": "at byte 1 of",
	} {
		m := order()
		m.Payload = []byte(payload)
		err := refusal(t, structured, nats.Driver.Binding, m).Error()
		for _, want := range []string{where, "application/json", "content-type", "format.datacontenttype", "mode: binary"} {
			if !strings.Contains(err, want) {
				t.Errorf("%q: %s\nwant %s", payload, err, want)
			}
		}
		if strings.Contains(err, "secret") {
			t.Errorf("the payload shows: %s", err)
		}

		// Both fixes in the error work.
		m.Headers["content-type"] = "application/octet-stream"
		send(t, structured, nats.Driver.Binding, m)
		delete(m.Headers, "content-type")
		send(t, format.Config{Kind: format.CloudEvents}, nats.Driver.Binding, m)
	}
}

// The message's own headers travel with the event, except those that are attributes.
func TestOwnHeaders(t *testing.T) {
	m := order()
	m.Headers["ce_id"], m.Headers["Ce_Type"], m.Headers["ce-tenant"] = "forged", "forged", "fine on Kafka"
	m.Headers["content-type"], m.Headers["Content-Type"] = "text/a", "text/b" // the one in lower case counts
	got := send(t, format.Config{Kind: format.CloudEvents}, kafka.Driver.Binding, m).Headers
	for range 50 { // maps have no order
		if again := send(t, format.Config{Kind: format.CloudEvents}, kafka.Driver.Binding, m).Headers; !maps.Equal(again, got) {
			t.Fatalf("once %v, then %v", got, again)
		}
	}
	for name, want := range map[string]string{
		"ce_id": m.ID, "Ce_Type": "", "ce_type": m.Topic, "ce-tenant": "fine on Kafka", "note": "by hand", "traceparent": traceparent,
		"content-type": "text/a", "Content-Type": "",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
}

func TestDebezium(t *testing.T) {
	m := order()
	m.Headers["id"], m.Headers["type"] = "forged", "OrderPlaced"
	cfg := format.Config{Kind: format.Debezium, Headers: map[string]string{"eventType": "{header.type}", "aggregate": "{topic}/{key}", "missing": "{header.missing}"}}
	got := send(t, cfg, kafka.Driver.Binding, m)
	want := map[string]string{
		"id": m.ID, "eventType": "OrderPlaced", "aggregate": "orders.placed/order-4711",
		"type": "OrderPlaced", "note": "by hand", "traceparent": traceparent,
	}
	if len(got.Headers) != len(want) {
		t.Errorf("headers %v", got.Headers)
	}
	for name, v := range want {
		if got.Headers[name] != v {
			t.Errorf("%s is %q, want %q", name, got.Headers[name], v)
		}
	}
	if &got.Payload[0] != &m.Payload[0] || got.Key != m.Key || got.Topic != m.Topic {
		t.Errorf("payload, key or topic became %+v", got)
	}
	m.ID = ""
	refusal(t, cfg, kafka.Driver.Binding, m)
}
