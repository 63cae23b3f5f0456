package tables

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
	"unsafe"
)

// invalidHeaders is the header that carries a text which is not a JSON object. A constraint that keeps such texts out can be switched off, and a message
// must not hold up its outbox because of one.
const invalidHeaders = "penstock-invalid-headers"

// HeadersText is headers as JSON, nil without any.
func HeadersText(headers map[string]string) *string {
	if len(headers) == 0 {
		return nil
	}
	text, _ := json.Marshal(headers) // of strings: cannot fail
	s := string(text)
	return &s
}

// Headers reads a JSON object of headers. A producer may write it by hand. The result may share text's memory, which must not change.
func Headers(text []byte) map[string]string {
	if len(text) == 0 {
		return nil
	}
	s := unsafe.String(&text[0], len(text))
	h, err := decodeHeaders(s)
	if err != nil {
		return map[string]string{invalidHeaders: strings.ToValidUTF8(s, "\uFFFD")}
	}
	return h
}

// decodeHeaders takes numbers and booleans as their text, nested values as their JSON, and null as absent. Of two headers of one name the last one
// counts.
func decodeHeaders(s string) (map[string]string, error) {
	if h, ok := decodePlain(s); ok {
		return h, nil
	}
	return decodeJSON(s)
}

// decodePlain reads the headers that Publish writes, an object of strings without escapes, and makes no copies. It leaves all other texts to decodeJSON.
func decodePlain(s string) (_ map[string]string, ok bool) {
	if len(s) < 2 || s[0] != '{' || s[len(s)-1] != '}' || !utf8.ValidString(s) {
		return nil, false
	}
	rest := s[1 : len(s)-1]
	if rest == "" {
		return nil, true
	}
	h := make(map[string]string, 2)
	for {
		name, after, ok := plainString(rest)
		if !ok || after == "" || after[0] != ':' {
			return nil, false
		}
		value, after, ok := plainString(strings.TrimPrefix(after[1:], " "))
		if !ok {
			return nil, false
		}
		h[name] = value
		if after == "" {
			return h, true
		}
		if after[0] != ',' {
			return nil, false
		}
		rest = strings.TrimPrefix(after[1:], " ")
	}
}

// plainString cuts a quoted string without escapes off the front.
func plainString(s string) (text, rest string, ok bool) {
	if s == "" || s[0] != '"' {
		return "", "", false
	}
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return s[1:i], s[i+1:], true
		case c == '\\' || c < 0x20:
			return "", "", false
		}
	}
	return "", "", false
}

func decodeJSON(s string) (map[string]string, error) {
	d := json.NewDecoder(strings.NewReader(s))
	var fields map[string]json.RawMessage
	if err := d.Decode(&fields); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the object")
	}
	if fields == nil {
		return nil, errors.New("null is not an object")
	}
	var h map[string]string
	for name, raw := range fields {
		value, present, err := headerValue(raw)
		if err != nil {
			return nil, fmt.Errorf("header %q: %w", name, err)
		}
		if !present {
			continue
		}
		if h == nil {
			h = make(map[string]string, len(fields))
		}
		h[name] = value
	}
	return h, nil
}

func headerValue(raw json.RawMessage) (value string, present bool, err error) {
	switch raw[0] {
	case '"':
		err = json.Unmarshal(raw, &value)
		return value, true, err
	case 'n':
		return "", false, nil
	case '{', '[':
		var compact bytes.Buffer
		if err := json.Compact(&compact, raw); err != nil {
			return "", false, err
		}
		return strings.ToValidUTF8(compact.String(), "\uFFFD"), true, nil
	}
	return string(raw), true, nil
}
