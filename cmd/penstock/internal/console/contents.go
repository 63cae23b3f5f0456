package console

import (
	"bytes"
	"encoding/json"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Contents are a producer's data, as far as they may be shown.
type Contents struct {
	Headers       map[string]string `json:"headers,omitempty"`
	PayloadBytes  int64             `json:"payload_bytes"`
	Payload       *string           `json:"payload,omitempty"`
	PayloadBase64 []byte            `json:"payload_base64,omitempty"`
}

// Text is for pages.
func (d Contents) Text() string { return *d.Payload }

// mostShown is how much of a payload an answer has: a page of large ones would be too much for a
// reader.
const mostShown = 64 << 10

const redacted = "[redacted]"

// contents are headers and payload in the form in which they may be shown.
func (c *Console) contents(headers map[string]string, payload []byte) (d Contents) {
	d.Headers, d.PayloadBytes = headers, int64(len(payload))
	for name := range d.Headers {
		if c.hides(name) {
			d.Headers[name] = redacted
		}
	}
	payload = c.shownOf(payload)
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

// shownOf is text without the hidden members. If a payload is not one JSON value, members cannot be found: it is hidden if it contains
// such a name.
func (c *Console) shownOf(text []byte) []byte {
	if len(c.o.Redact) == 0 || len(text) == 0 {
		return text
	}
	var member any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // as they were written
	if utf8.Valid(text) && decoder.Decode(&member) == nil {
		if _, err := decoder.Token(); err == io.EOF {
			if shown, hid := c.redact(member); hid {
				text, _ = json.Marshal(shown)
			}
			return text
		}
	}
	small := bytes.ToLower(unescaped(text))
	if slices.ContainsFunc(c.o.Redact, func(hidden string) bool { return bytes.Contains(small, bytes.ToLower([]byte(hidden))) }) {
		return []byte(redacted)
	}
	return text
}

func (c *Console) hides(name string) bool {
	return slices.ContainsFunc(c.o.Redact, func(hidden string) bool { return strings.EqualFold(hidden, name) })
}

// redact hides values, also in texts that may be JSON themselves, and reports whether there were any.
func (c *Console) redact(member any) (shown any, hid bool) {
	switch v := member.(type) {
	case map[string]any:
		for name := range v {
			one, hides := any(redacted), true
			if !c.hides(name) {
				one, hides = c.redact(v[name])
			}
			v[name], hid = one, hid || hides
		}
	case []any:
		for i := range v {
			one, hides := c.redact(v[i])
			v[i], hid = one, hid || hides
		}
	case string:
		if text := string(c.shownOf([]byte(v))); text != v {
			return text, true
		}
	}
	return member, hid
}

var escaped = regexp.MustCompile(`\\+u[0-9a-fA-F]{4}`)

// unescaped decodes characters that JSON may write as \u0077, to find a name in text that is not JSON as a
// whole.
func unescaped(text []byte) []byte {
	return escaped.ReplaceAllFunc(text, func(code []byte) []byte {
		n, _ := strconv.ParseUint(string(code[len(code)-4:]), 16, 32)
		return []byte(string(rune(n)))
	})
}
