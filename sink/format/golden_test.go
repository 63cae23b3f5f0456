package format_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/docblock"
	"github.com/penstock/penstock/sink/format"
	"github.com/penstock/penstock/sink/kafka"
	"github.com/penstock/penstock/sink/webhook"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden are messages and configurations; the expected output is in testdata.
var golden = []struct {
	name   string
	config format.Config
	change func(*penstock.Message)
}{
	{"json", format.Config{}, func(*penstock.Message) {}},
	{"no-key", format.Config{}, func(m *penstock.Message) { m.Key, m.Headers = "", nil }},
	{"no-data", format.Config{}, func(m *penstock.Message) { m.Payload = nil }},
	{"text", format.Config{}, func(m *penstock.Message) {
		m.Headers["content-type"], m.Payload = "text/plain; charset=utf-8", []byte("Ærø\n")
	}},
	{"bytes", format.Config{DataContentType: "application/octet-stream"}, func(m *penstock.Message) { m.Payload = []byte{0, 0xff, '"', '\n'} }},
	{suffixed, format.Config{}, func(m *penstock.Message) { m.Headers["Content-Type"] = "application/vnd.order+JSON; v=1" }},
	{"json-string", format.Config{}, func(m *penstock.Message) { m.Payload = []byte(` "I'm just a string" `) }},
	{"escapes", format.Config{Subject: `{key} "\`, Type: "größe.{topic}"}, func(m *penstock.Message) { m.Key = `<a&b> 😀` }},
	{"everything", format.Config{
		Source: "https://shop.example.com/{header.region}", Type: "com.example.{topic}.v1", Subject: "{topic}/{key}",
		DataSchema: "https://shop.example.com/schemas/{topic}.json", Sequence: true,
		Extensions: map[string]string{"tenant": "{header.tenant}", "missing": "{header.missing}", "partitionkey": format.Omit},
	}, func(m *penstock.Message) { m.Headers["region"], m.Headers["tenant"] = "eu-1", "Ærø & søn" }},
}

// suffixed is an event that the SDK does not read: of the types that the JSON event format calls
// JSON, it knows only application/json and text/json (v2.16).
const suffixed = "json-suffix"

// The structured event, byte for byte, and as the SDK reads it.
func TestGolden(t *testing.T) {
	for _, g := range golden {
		t.Run(g.name, func(t *testing.T) {
			g.config.Kind, g.config.Mode = format.CloudEvents, format.Structured
			m := order()
			g.change(&m)
			got := send(t, g.config, kafka.Driver.Binding, m)
			if got.Headers["content-type"] != "application/cloudevents+json" {
				t.Errorf("headers %v declare no structured event", got.Headers)
			}
			file := filepath.Join("testdata", g.name+".json")
			if *update {
				check(t, os.WriteFile(file, append(got.Payload, '\n'), 0o644))
			}
			want, err := os.ReadFile(file)
			check(t, err)
			if string(got.Payload)+"\n" != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got.Payload, want)
			}
			if g.name == suffixed {
				return
			}
			var e event.Event
			check(t, e.UnmarshalJSON(got.Payload))
			check(t, e.Validate())
			if e.ID() != m.ID || !e.Time().Equal(m.CreatedAt) || strings.TrimSpace(string(m.Payload)) != strings.TrimSpace(string(e.Data())) {
				t.Errorf("the SDK reads %v", e)
			}
		})
	}
}

// docs/reference/formats.md shows the message and, broken into lines, the result; it abbreviates the traceparent.
func TestPage(t *testing.T) {
	shown := strings.NewReplacer("\n ", "", "\n", "", "00-4bf9…-01", traceparent).Replace(docblock.Of(t, "docs/reference/formats.md", "json")[0])
	cfg := format.Config{Kind: format.CloudEvents, Mode: format.Structured, Source: "/penstock/orders"}
	if got := send(t, cfg, kafka.Driver.Binding, order()); string(got.Payload) != shown {
		t.Errorf("got\n%s\nand the page has\n%s", got.Payload, shown)
	}
	m := order()
	described := fmt.Sprintf("id %s, key %s, topic %s, created %s UTC\nheaders traceparent: 00-4bf9…-01, note: %s\npayload %s\n",
		m.ID, m.Key, m.Topic, m.CreatedAt.UTC().Format("2006-01-02 15:04:05.000000"), m.Headers["note"], m.Payload)
	if text := docblock.Of(t, "docs/reference/formats.md", "text")[0]; text != described {
		t.Errorf("the message is\n%s\nand the page has\n%s", described, text)
	}
}

// The same event in both modes, and as the SDK itself would write it.
func TestModesAgree(t *testing.T) {
	for _, g := range golden {
		if g.name == suffixed {
			continue
		}
		g.config.Kind, g.config.Mode = format.CloudEvents, format.Structured
		m := order()
		g.change(&m)
		var structured, again event.Event
		check(t, structured.UnmarshalJSON(send(t, g.config, kafka.Driver.Binding, m).Payload))
		text, err := structured.MarshalJSON()
		check(t, err)
		check(t, again.UnmarshalJSON(text))

		g.config.Mode = format.Binary
		got := send(t, g.config, kafka.Driver.Binding, m)
		binary := fromHeaders(t, got.Headers, "ce_", "content-type", got.Payload)
		for mode, e := range map[string]event.Event{"binary": binary, "the SDK's": again} {
			if e.Context.String() != structured.Context.String() || strings.TrimSpace(string(e.Data())) != strings.TrimSpace(string(structured.Data())) {
				t.Errorf("%s: %s\n%v\nstructured\n%v", g.name, mode, e, structured)
			}
		}
	}
}

// In binary mode the payload is not even copied, and the caller's message is unchanged.
func TestTheMessageStays(t *testing.T) {
	for _, mode := range []string{format.Binary, format.Structured} {
		m := order()
		headers, payload := maps.Clone(m.Headers), string(m.Payload)
		got := send(t, format.Config{Kind: format.CloudEvents, Mode: mode}, webhook.Driver.Binding, m)
		if !maps.Equal(m.Headers, headers) || string(m.Payload) != payload {
			t.Errorf("%s: the message became %v %s", mode, m.Headers, m.Payload)
		}
		if same := &got.Payload[0] == &m.Payload[0]; same != (mode == format.Binary) {
			t.Errorf("%s: the payload is the caller's: %v", mode, same)
		}
	}
}
