package lines

import (
	"io"
	"strings"
	"testing"

	"github.com/penstock/penstock"
)

func TestParseLine(t *testing.T) {
	for _, tc := range []struct {
		line, payload string
	}{
		{`{"payload":"text"}`, "text"},
		{`{"payload":"a \"quoted\" \u00e9"}`, "a \"quoted\" é"},
		{`{"payload":{"total": 10}}`, `{"total": 10}`},
		{`{"payload":[1,2]}`, "[1,2]"},
		{`{"payload":12.50}`, "12.50"},
		{`{"payload":""}`, ""},
		{`{"payload":{"a":1,"a":2},"headers":null}`, `{"a":1,"a":2}`}, // a payload is the producer's
		{`{"headers":{"a":"1","A":"2","b":null},"payload":"two headers"}`, "two headers"},
		{`{}`, ""},
		{`{"payload_base64":"AP8="}`, "\x00\xff"},
		{`  {"topic":"t","seq":7,"created_at":"x","attempt":2}  ` + "\r\n", ""},
	} {
		m, err := ParseMessage([]byte(tc.line))
		if err != nil || string(m.Payload) != tc.payload {
			t.Errorf("%s: payload %q, %v; want %q", tc.line, m.Payload, err, tc.payload)
		}
	}
	m, err := ParseMessage([]byte(`{"id":"i","key":"k","topic":"t","headers":{"a":"b"},"payload":"p"}`))
	if err != nil || m.ID != "i" || m.Key != "k" || m.Topic != "t" || m.Headers["a"] != "b" {
		t.Errorf("got %+v, %v", m, err)
	}
}

func TestParseLineRefuses(t *testing.T) {
	for _, tc := range []struct{ line, want string }{
		{`{"topik":"t"}`, `unknown field "topik"`},
		{`{"topic":1}`, "topic cannot be a number"},
		{`{"headers":{"a":1}}`, "headers"},
		{`{"payload":"a","payload_base64":"YQ=="}`, "has both payload and payload_base64"},
		{`{"payload_base64":"%"}`, "is not a message: illegal base64"},
		{`{"key":"a","topic":"t","key":"a"}`, "has key twice"},
		{`{"key":"a","KEY":"b"}`, "has key twice"},
		{`{"payload":{"a":1},"payload":{"a":2}}`, "has payload twice"},
		{`{"headers":{"a":"1"},"headers":{"b":"1"}}`, "has headers twice"},
		{`{"headers":{"a":"1","b":"2","a":"3"}}`, `has the header "a" twice`},
		{`{"topic":"a"`, "ends within the JSON object"},
		{`{} {}`, "more than one JSON value"},
		{`[]`, "is a JSON array"},
		{`"text"`, "is a JSON string"},
		{" null\n", "is a JSON null"},
		{`nonsense`, "is not a message"},
		{"{\"topic\":\"\xff\"}", "is not valid UTF-8"},
		{`{"key":"a\u0000"}`, "key has a NUL at byte 1"},
		{`{"topic":"` + strings.Repeat("x", penstock.MaxTopicBytes+1) + `"}`, "topic is 1025 bytes"},
	} {
		if _, err := ParseMessage([]byte(tc.line)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%.60s: error is %v, want %q in it", tc.line, err, tc.want)
		}
	}
}

func TestLinesThatAreTooLong(t *testing.T) {
	endless := io.MultiReader(strings.NewReader("{\"payload\":\""), zeros{})
	if _, err := NewReader(endless, &Messages).Batch(1); err == nil || !strings.Contains(err.Error(), "line 1: is longer than") {
		t.Errorf("error is %v", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}
