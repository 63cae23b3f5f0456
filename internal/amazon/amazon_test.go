package amazon

import (
	"maps"
	"strings"
	"testing"

	"github.com/penstock/penstock"
)

// Which messages are in an envelope, and that each is read back as it was.
func TestForms(t *testing.T) {
	many := map[string]string{}
	for _, name := range strings.Split("a b c d e f g", " ") {
		many[name] = "x"
	}
	o := &Options{MaxMessageBytes: MaxBytes}
	for _, c := range []struct {
		name     string
		m        penstock.Message
		envelope bool
	}{
		{"text", penstock.Message{ID: "i", Key: "k", Topic: "t", Payload: []byte("{}"), Headers: map[string]string{"note": "by hand"}}, false},
		{"no payload", penstock.Message{ID: "i"}, true},
		{"bytes", penstock.Message{ID: "i", Payload: []byte("\xff\x00")}, true},
		{"a control character", penstock.Message{ID: "i", Payload: []byte("a\x01")}, true},
		{"U+FFFE", penstock.Message{ID: "i", Payload: []byte("a\uFFFEb\uFFFF"), Key: "\uFFFE"}, true},
		{"U+FFFD is text", penstock.Message{ID: "i", Payload: []byte("a\uFFFD")}, false},
		{"a key that is not text", penstock.Message{ID: "i", Payload: []byte("x"), Key: "\x01"}, true},
		{"an empty header", penstock.Message{ID: "i", Payload: []byte("x"), Headers: map[string]string{"a": ""}}, true},
		{"a header's name", penstock.Message{ID: "i", Payload: []byte("x"), Headers: map[string]string{"a b": "c"}}, true},
		{"a name of AWS", penstock.Message{ID: "i", Payload: []byte("x"), Headers: map[string]string{"AWS.x": "c"}}, true},
		{"too many headers", penstock.Message{ID: "i", Key: "k", Topic: "t", Payload: []byte("x"), Headers: many}, true},
	} {
		e, err := o.entry(&c.m, false)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := e.Attributes[attributeEnvelope] == "1"; got != c.envelope || len(e.Attributes) > 10 || e.Body == "" || !isText(e.Body) {
			t.Errorf("%s: envelope %v, %d attributes, body %q", c.name, got, len(e.Attributes), e.Body)
		}
		r, err := Read(e.Body, e.Attributes)
		if err != nil || r.ID != c.m.ID || r.Key != c.m.Key || r.Topic != c.m.Topic || string(r.Payload) != string(c.m.Payload) {
			t.Errorf("%s: read as %+v, %v", c.name, r, err)
		}
		for name, value := range maps.All(c.m.Headers) {
			if got, ok := r.Headers[name]; !ok || got != value {
				t.Errorf("%s: header %q is %q", c.name, name, got)
			}
		}
	}
	o.Envelope = true
	if e, err := o.entry(&penstock.Message{ID: "i", Payload: []byte("x")}, false); err != nil || e.Attributes[attributeEnvelope] != "1" {
		t.Errorf("envelope: true: %+v, %v", e, err)
	}
}

// Groups and ids of deduplication are what FIFO queues take, different for different keys, and the same each time.
func TestFIFO(t *testing.T) {
	o := &Options{MaxMessageBytes: MaxBytes}
	seen := map[string]string{}
	for _, key := range []string{"", "order-4711", "a b", "ключ", strings.Repeat("x", 128), strings.Repeat("x", 129), strings.Repeat("x", 130), "a\nb"} {
		e, err := o.entry(&penstock.Message{ID: "the id", Key: key, Payload: []byte("x")}, true)
		again, _ := o.entry(&penstock.Message{ID: "the id", Key: key, Payload: []byte("x")}, true)
		if err != nil || e.Group != again.Group || e.Dedup != again.Dedup || e.Group == "" || len(e.Group) > 128 || strings.ContainsAny(e.Group, " \n") || seen[e.Group] != "" {
			t.Errorf("key %q: group %q, deduplication %q, %v", key, e.Group, e.Dedup, err)
		}
		seen[e.Group] = "by " + key
	}
	if e, _ := o.entry(&penstock.Message{ID: "id-1", Key: "order-4711", Payload: []byte("x")}, true); e.Group != "order-4711" || e.Dedup != "id-1" {
		t.Errorf("%+v", e)
	}
}
