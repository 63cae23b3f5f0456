package amazon

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
)

// Which messages are in an envelope, and that each is read back as it was.
func TestForms(t *testing.T) {
	many := map[string]string{}
	for _, name := range strings.Split("a b c d e f g", " ") {
		many[name] = "x"
	}
	o := &Sender{set: &Settings{MaxMessageBytes: MaxBytes}}
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
	// With a line break in a header, SNS would drop the message where a subscription has a filter policy. SQS takes it.
	for service, want := range map[string]bool{"SNS": true, "SQS": false} {
		o := &Sender{service: service, set: &Settings{MaxMessageBytes: MaxBytes}}
		for _, m := range []penstock.Message{{Key: "a\tb"}, {Headers: map[string]string{"note": "two\nlines"}}} {
			m.ID, m.Payload = "i", []byte("x")
			e, err := o.entry(&m, false)
			r, readErr := Read(e.Body, e.Attributes)
			if got := e.Attributes[attributeEnvelope] == "1"; err != nil || readErr != nil || got != want || r.Key != m.Key || r.Headers["note"] != m.Headers["note"] {
				t.Errorf("%s: %+v is %+v, %v", service, m, e, err)
			}
		}
	}
	o.set.Envelope = true
	if e, err := o.entry(&penstock.Message{ID: "i", Payload: []byte("x")}, false); err != nil || e.Attributes[attributeEnvelope] != "1" {
		t.Errorf("envelope: true: %+v, %v", e, err)
	}
}

// Groups and ids of deduplication are valid for FIFO queues, different for different keys, and the same each time.
func TestFIFO(t *testing.T) {
	o := &Sender{set: &Settings{MaxMessageBytes: MaxBytes}}
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

// Each message of a batch has the answer for its own entry, whatever else the service says. Without one it is not confirmed.
func TestAnswersOfABatch(t *testing.T) {
	refused := func(id string) Failure { return Failure{ID: id, Code: "InvalidMessageContents", SenderFault: true} }
	for _, c := range []struct {
		name   string
		taken  []string
		failed []Failure
		want   string // of each message: ok, away or bad
	}{
		{"all", []string{"2", "0", "1"}, nil, "ok ok ok"},
		{"one refused", []string{"0", "2"}, []Failure{refused("1")}, "ok bad ok"},
		{"nothing is said", nil, nil, "away away away"},
		{"one twice", []string{"0", "0", "1"}, nil, "ok ok away"},
		{"one of another batch", []string{"0", "1", "7"}, []Failure{refused("-1"), refused("x")}, "ok ok away"},
		{"both taken and refused", []string{"0", "1", "2"}, []Failure{refused("0")}, "bad ok ok"},
	} {
		s, err := NewSender("SQS", "https://sqs/1/orders", &Settings{MaxMessageBytes: MaxBytes, Concurrency: 1, Timeout: time.Minute}, func() {}, func(context.Context, string, []Entry) ([]string, []Failure, error) { return c.taken, c.failed, nil })
		if err != nil {
			t.Fatal(err)
		}
		errs := s.Send(t.Context(), []penstock.Message{{ID: "a", Payload: []byte("a")}, {ID: "b", Payload: []byte("b")}, {ID: "c", Payload: []byte("c")}})
		var got []string
		for i := range 3 {
			switch {
			case errs == nil || errs[i] == nil:
				got = append(got, "ok")
			case penstock.IsUnavailable(errs[i]):
				got = append(got, "away")
			case penstock.IsPermanent(errs[i]):
				got = append(got, "bad")
			default:
				got = append(got, fmt.Sprint(errs[i]))
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, want %s", c.name, got, c.want)
		}
	}
}
