package format_test

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/cloudevents/sdk-go/v2/types"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/sink/discard"
	"github.com/penstock/penstock/sink/format"
	"github.com/penstock/penstock/sink/kafka"
	"github.com/penstock/penstock/sink/nats"
	"github.com/penstock/penstock/sink/rabbitmq"
	"github.com/penstock/penstock/sink/stdout"
	"github.com/penstock/penstock/sink/webhook"
)

// event reads an arrival as the SDK does: HTTP by its binding, and JSON by its format. For the
// other protocols it reads the attributes in headers by their prefix, because the SDK's bindings
// need clients of other versions or protocols.
func (a arrival) event(t *testing.T, b *broker) event.Event {
	t.Helper()
	var e event.Event
	switch {
	case b.binding.Name == "webhook":
		r := &http.Request{Header: http.Header{"Content-Type": {a.contentType}}, Body: io.NopCloser(bytes.NewReader(a.payload))}
		for name, value := range a.headers {
			r.Header.Set(name, value)
		}
		read, err := cehttp.NewEventFromHTTPRequest(r)
		check(t, err)
		e = *read
	case strings.HasPrefix(a.contentType, "application/cloudevents"):
		check(t, e.UnmarshalJSON(a.payload))
	case b.binding.Name == "nats":
		e = fromHeaders(t, a.headers, b.prefix, "", a.payload)
	default:
		headers := map[string]string{"": a.contentType}
		for name, value := range a.headers {
			headers[name] = value
		}
		e = fromHeaders(t, headers, b.prefix, "", a.payload)
	}
	if b.percent && !strings.HasPrefix(a.contentType, "application/cloudevents") {
		unescape(t, &e)
		if b.binding.Name == "nats" {
			unescapeContentType(t, &e)
		}
	}
	check(t, e.Validate())
	return e
}

// unescape decodes as the HTTP binding requires of readers; the SDK leaves that to them.
func unescape(t *testing.T, e *event.Event) {
	t.Helper()
	plain := func(s string) string {
		if !isPrintable(s) {
			t.Errorf("%q is not printable ASCII", s)
		}
		s, err := url.PathUnescape(s)
		check(t, err)
		return s
	}
	e.SetID(plain(e.ID()))
	e.SetType(plain(e.Type()))
	if e.Subject() != "" {
		e.SetSubject(plain(e.Subject()))
	}
	for name, value := range e.Extensions() {
		e.SetExtension(name, plain(value.(string)))
	}
}

// unescapeContentType is for NATS, where the content type is an attribute like the others.
func unescapeContentType(t *testing.T, e *event.Event) {
	t.Helper()
	plain, err := url.PathUnescape(e.DataContentType())
	check(t, err)
	e.SetDataContentType(plain)
}

func isPrintable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' })
}

// To the SDK and to the vendors' clients, a sink's output is the event of the message.
func TestOnTheWire(t *testing.T) {
	special := order()
	special.ID, special.Key, special.Topic = "1f/18", `ключ "100 %" 😀`, "orders.cancelled"
	special.Headers = map[string]string{"content-type": "application/octet-stream; for=testing", "tenant": "Ærø & søn", "note": "by hand"}
	special.Payload = []byte("\x00\xff\r\n")
	bare := penstock.Message{ID: "1f/19", Topic: "orders.placed", CreatedAt: special.CreatedAt, Attempt: 1}
	msgs := []penstock.Message{order(), special, bare}

	for name, start := range brokers {
		for _, mode := range []string{format.Binary, format.Structured} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				b := start(t)
				cfg := format.Config{
					Kind: format.CloudEvents, Mode: mode, Source: "https://shop.example.com/orders", Type: "com.example.{topic}", Sequence: true,
					Extensions: map[string]string{"tenant": "{header.tenant}"},
				}
				s := wrap(t, b.open(t, slog.New(slog.DiscardHandler)), cfg, b.binding)
				defer func() { check(t, s.Close(patient(t))) }()
				for _, m := range msgs { // one by one, to keep topics from mixing
					if errs := s.Send(patient(t), []penstock.Message{m}); errs != nil {
						t.Fatal(errs)
					}
					got := b.take(t, 1)
					if len(got) != 1 {
						t.Fatalf("%d messages arrived", len(got))
					}
					wantEvent(t, got[0].event(t, b), m)
					if note := got[0].headers["note"] + got[0].headers["Note"]; note != m.Headers["note"] {
						t.Errorf("the header note is %q", note)
					}
					if declared := strings.HasPrefix(got[0].contentType, "application/cloudevents+json"); declared != (mode == format.Structured) {
						t.Errorf("content type %q", got[0].contentType)
					}
				}
			})
		}
	}
}

func wantEvent(t *testing.T, e event.Event, m penstock.Message) {
	t.Helper()
	want := event.New()
	want.SetID(m.ID)
	want.SetSource("https://shop.example.com/orders")
	want.SetType("com.example." + m.Topic)
	want.SetTime(m.CreatedAt)
	want.SetDataContentType("application/json")
	if ct := m.Headers["content-type"]; ct != "" {
		want.SetDataContentType(ct)
	}
	if m.Key != "" {
		want.SetSubject(m.Key)
		want.SetExtension("partitionkey", m.Key)
	}
	if m.Seq > 0 {
		want.SetExtension("sequence", "0000000000000000017")
	}
	for _, name := range []string{"traceparent", "tenant"} {
		if v := m.Headers[name]; v != "" {
			want.SetExtension(name, v)
		}
	}
	if e.Context.String() != want.Context.String() {
		t.Errorf("arrived\n%v\nwant\n%v", e.Context, want.Context)
	}
	if !bytes.Equal(e.Data(), m.Payload) {
		t.Errorf("data %q, want %q", e.Data(), m.Payload)
	}
}

// Every prefix that consumers of RabbitMQ know.
func TestPrefixes(t *testing.T) {
	for _, prefix := range []string{"", "cloudEvents_", "cloudEvents:", "ce-"} {
		got := send(t, format.Config{Kind: format.CloudEvents, Prefix: prefix}, rabbitmq.Driver.Binding, order())
		if prefix == "" {
			prefix = "cloudEvents_"
		}
		e := fromHeaders(t, got.Headers, prefix, "content-type", got.Payload)
		if e.ID() != order().ID || got.Headers[prefix+"id"] != order().ID {
			t.Errorf("%s: headers %v", prefix, got.Headers)
		}
	}
}

// Every attribute under the names of its binding, in canonical form.
func TestHeaderNames(t *testing.T) {
	m := order()
	for _, c := range []struct {
		binding             format.Binding
		prefix, contentType string
	}{
		{rabbitmq.Driver.Binding, "cloudEvents_", "content-type"}, {kafka.Driver.Binding, "ce_", "content-type"}, {webhook.Driver.Binding, "ce-", "content-type"},
		{nats.Driver.Binding, "ce-", "ce-datacontenttype"}, {stdout.Driver.Binding, "ce-", "content-type"}, {discard.Driver.Binding, "ce-", "content-type"},
	} {
		binding, prefix := c.binding, c.prefix
		want := map[string]string{
			prefix + "specversion": "1.0", prefix + "id": m.ID, prefix + "source": "/penstock", prefix + "type": m.Topic, prefix + "subject": m.Key,
			prefix + "time": types.FormatTime(m.CreatedAt), prefix + "partitionkey": m.Key, prefix + "traceparent": traceparent,
			c.contentType: "application/json", "traceparent": traceparent, "note": "by hand",
		}
		got := send(t, format.Config{Kind: format.CloudEvents}, binding, m).Headers
		if len(got) != len(want) {
			t.Errorf("%s: headers %v, want %v", binding.Name, got, want)
		}
		for name, value := range want {
			if got[name] != value {
				t.Errorf("%s: %s is %q, want %q", binding.Name, name, got[name], value)
			}
		}
		declares := "content-type"
		if binding.Name == "nats" {
			declares = "Content-Type"
		}
		if got := send(t, structured, binding, m).Headers; len(got) != 3 || got[declares] != "application/cloudevents+json" {
			t.Errorf("%s: structured, headers %v", binding.Name, got)
		}
	}
}
