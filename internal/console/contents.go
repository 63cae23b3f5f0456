package console

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

// Contents are what producers gave, as far as they are shown.
type Contents struct {
	Headers       map[string]string `json:"headers,omitempty"`
	PayloadBytes  int64             `json:"payload_bytes"`
	Payload       *string           `json:"payload,omitempty"`
	PayloadBase64 []byte            `json:"payload_base64,omitempty"`
}

// Text is for pages.
func (d Contents) Text() string { return *d.Payload }

// mostShown of a payload are in an answer: a page of large ones would be too much for whoever looks.
const mostShown = 64 << 10

const redacted = "[redacted]"

// contents are headers and payload as they may be shown.
func (c *Console) contents(headers map[string]string, payload []byte) (d Contents) {
	d.Headers, d.PayloadBytes = headers, int64(len(payload))
	for name := range d.Headers {
		if c.hides(name) {
			d.Headers[name] = redacted
		}
	}
	var member any
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.UseNumber() // as they were written
	if len(c.o.Redact) > 0 && utf8.Valid(payload) && decoder.Decode(&member) == nil && !decoder.More() {
		payload, _ = json.Marshal(c.redact(member))
	}
	payload = payload[:min(len(payload), mostShown)]
	for cut := 0; cut < utf8.UTFMax && d.PayloadBytes > mostShown && !utf8.Valid(payload); cut++ { // not within a character
		payload = payload[:len(payload)-1]
	}
	if text := string(payload); utf8.ValidString(text) {
		d.Payload = &text
	} else {
		d.PayloadBase64 = payload
	}
	return d
}

func (c *Console) hides(name string) bool {
	return slices.ContainsFunc(c.o.Redact, func(hidden string) bool { return strings.EqualFold(hidden, name) })
}

func (c *Console) redact(member any) any {
	switch v := member.(type) {
	case map[string]any:
		for name := range v {
			if c.hides(name) {
				v[name] = redacted
			} else {
				v[name] = c.redact(v[name])
			}
		}
	case []any:
		for i := range v {
			v[i] = c.redact(v[i])
		}
	}
	return member
}
