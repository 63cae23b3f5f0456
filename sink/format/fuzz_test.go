package format_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/sink/format"
	"github.com/penstock/penstock/sink/kafka"
	"github.com/penstock/penstock/sink/nats"
)

// Any message is either refused permanently, or arrives as an event that is valid for the SDK and
// has the same meaning in both modes.
func FuzzCloudEvents(f *testing.F) {
	f.Add("id-1", "key", "orders.placed", "content-type", "text/plain", []byte("x"), int64(1))
	f.Add("1/2", "", "t", "traceparent", traceparent, []byte(`{"a":1}`), int64(0))
	f.Add("\u0085", "\"\\\x7f%", "größe", "ce_id", "x", []byte("\xff"), int64(-1))
	f.Add("i", "k", " ", "Content-Type", "Application/JSON; charset=\"utf-8\"", []byte("null"), int64(1<<60))
	f.Add("i", "k", "t", "ce-x", "\ufffe", []byte(" "), int64(7))
	f.Fuzz(func(t *testing.T, id, key, topic, name, value string, payload []byte, seconds int64) {
		m := penstock.Message{
			ID: id, Key: key, Topic: topic, Headers: map[string]string{name: value}, Payload: payload,
			CreatedAt: time.Unix(seconds%1e11, 0), Attempt: 1, Seq: seconds,
		}
		if m.Validate() != nil {
			t.Skip("no producer can publish it")
		}
		cfg := format.Config{Kind: format.CloudEvents, Sequence: true, Extensions: map[string]string{"own": "{header.x}"}}
		for _, b := range []format.Binding{kafka.Driver.Binding, nats.Driver.Binding} {
			cfg.Mode = format.Structured
			text, refusedStructured := attempt(t, cfg, b, m)
			cfg.Mode = format.Binary
			headers, refused := attempt(t, cfg, b, m)
			notJSON := refusedStructured != nil && strings.Contains(refusedStructured.Error(), "not the JSON")
			if (refused != nil) != (refusedStructured != nil) && !notJSON {
				t.Fatalf("binary: %v, structured: %v", refused, refusedStructured)
			}
			if refused != nil {
				continue
			}
			prefix, contentType := "ce_", "content-type"
			if b.Name == "nats" {
				prefix, contentType = "ce-", ""
			}
			binary := fromHeaders(t, headers.Headers, prefix, contentType, headers.Payload)
			if b.Name == "nats" {
				unescape(t, &binary)
				unescapeContentType(t, &binary)
			}
			if !bytes.Equal(binary.Data(), payload) || binary.ID() != trim(id) || binary.Type() != trim(topic) || binary.Subject() != trim(key) {
				t.Fatalf("binary: %v", binary)
			}
			if refusedStructured != nil || strings.Contains(binary.DataContentType(), "+json") {
				continue // the SDK cannot read it, see suffixed
			}
			var e event.Event
			if err := e.UnmarshalJSON(text.Payload); err != nil {
				t.Fatalf("%s: %v", text.Payload, err)
			}
			e.SetID(e.ID()) // trims
			e.SetType(e.Type())
			e.SetSubject(e.Subject())
			if e.Context.String() != binary.Context.String() || !bytes.Equal(bytes.TrimSpace(e.Data()), bytes.TrimSpace(payload)) && len(payload) > 0 {
				t.Fatalf("structured: %v\nbinary: %v", e, binary)
			}
		}
	})
}

// trim does the same as the SDK to values that are set, though not to those that it reads from JSON.
func trim(s string) string { return strings.TrimSpace(s) }

// attempt sends m, which may be refused permanently.
func attempt(t *testing.T, cfg format.Config, b format.Binding, m penstock.Message) (penstock.Message, error) {
	t.Helper()
	r := &recorder{}
	errs := wrap(t, r, cfg, b).Send(t.Context(), []penstock.Message{m})
	if errs == nil {
		return r.got[0], nil
	}
	if !penstock.IsPermanent(errs[0]) || len(r.got) > 0 {
		t.Fatalf("%v, and %d sent", errs[0], len(r.got))
	}
	return penstock.Message{}, errs[0]
}
