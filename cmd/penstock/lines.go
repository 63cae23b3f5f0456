package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/penstock/penstock"
)

// maxLineBytes holds the largest payload as base64 and, in JSON, some room for
// escapes.
const maxLineBytes = 2 * penstock.MaxPayloadBytes

// maxBatchBytes ends a batch early, so that large messages do not pile up.
const maxBatchBytes = 32 << 20

// lines reads messages from JSON lines.
type lines struct {
	in     *bufio.Reader
	number int
}

func newLines(r io.Reader) *lines { return &lines{in: bufio.NewReaderSize(r, 256<<10)} }

// lineBatch is messages to be published together, and the lines they stood in.
type lineBatch struct {
	messages    []penstock.Message
	first, last int
}

// batch reads up to n messages, all there are if n is 0. With a nil error there
// may be more. An error about a line names it; the messages before it in the
// batch are not returned.
func (l *lines) batch(n int) (lineBatch, error) {
	b := lineBatch{first: l.number + 1}
	for size := 0; n == 0 || (len(b.messages) < n && size < maxBatchBytes); {
		line, err := l.next()
		if errors.Is(err, context.Canceled) {
			return lineBatch{first: b.first}, err
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return lineBatch{first: b.first}, usage(fmt.Errorf("line %d: %w", l.number, err))
		}
		if len(bytes.TrimSpace(line)) > 0 {
			m, bad := parseLine(line)
			if bad != nil {
				return lineBatch{first: b.first}, usage(fmt.Errorf("line %d: %w", l.number, bad))
			}
			size += m.Size()
			b.messages = append(b.messages, m)
			b.last = l.number
		}
		if err != nil {
			return b, io.EOF
		}
	}
	return b, nil
}

// next returns a line that is the caller's to keep.
func (l *lines) next() ([]byte, error) {
	l.number++
	var line []byte
	for {
		part, err := l.in.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxLineBytes {
			return nil, fmt.Errorf("is longer than %d bytes: store the content elsewhere and publish a reference to it", maxLineBytes)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// messageLine is a message as a line of JSON.
type messageLine struct {
	ID            string            `json:"id"`
	Key           string            `json:"key"`
	Topic         string            `json:"topic"`
	Headers       map[string]string `json:"headers"`
	Payload       json.RawMessage   `json:"payload"`
	PayloadBase64 []byte            `json:"payload_base64"`
	// What a store sets, and publishing therefore passes over.
	Seq       json.RawMessage `json:"seq"`
	CreatedAt json.RawMessage `json:"created_at"`
	Attempt   json.RawMessage `json:"attempt"`
}

func parseLine(line []byte) (penstock.Message, error) {
	if !utf8.Valid(line) {
		// The decoder would silently put U+FFFD in the place of bad bytes.
		return penstock.Message{}, errors.New("is not valid UTF-8: give bytes as payload_base64")
	}
	var l messageLine
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&l); err != nil {
		return penstock.Message{}, lineError(err)
	}
	if decoder.InputOffset() < int64(len(bytes.TrimRight(line, " \t\r\n"))) {
		return penstock.Message{}, errors.New("has more than one JSON value: write one object per line")
	}
	if err := noFieldTwice(line); err != nil {
		return penstock.Message{}, err
	}
	if l.Payload != nil && l.PayloadBase64 != nil {
		return penstock.Message{}, errors.New("has both payload and payload_base64: give one")
	}
	m := penstock.Message{ID: l.ID, Key: l.Key, Topic: l.Topic, Headers: l.Headers, Payload: l.PayloadBase64}
	if l.Payload != nil {
		m.Payload = l.Payload
		if l.Payload[0] == '"' {
			var text string
			if err := json.Unmarshal(l.Payload, &text); err != nil {
				return penstock.Message{}, lineError(err)
			}
			m.Payload = []byte(text)
		}
	}
	return m, m.Validate()
}

// noFieldTwice refuses what encoding/json takes the last of, in a line that is
// known to be an object. Names differ when they differ in more than case, as
// they do for the decoder; those of headers are exact.
func noFieldTwice(line []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(line))
	var fields []string
	headers := map[string]bool{}
	if _, err := decoder.Token(); err != nil { // {
		return err
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return err
		}
		field := name.(string)
		if slices.ContainsFunc(fields, func(f string) bool { return strings.EqualFold(f, field) }) {
			return fmt.Errorf("has %s twice: give it once", strings.ToLower(field))
		}
		fields = append(fields, field)
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return err
		}
		if !strings.EqualFold(field, "headers") || value[0] != '{' {
			continue
		}
		inside := json.NewDecoder(bytes.NewReader(value))
		inside.Token() // {
		for inside.More() {
			token, _ := inside.Token() // all are texts, or the line would not have been decoded
			name := token.(string)
			if headers[name] {
				return fmt.Errorf("has the header %q twice: give it once", name)
			}
			headers[name] = true
			inside.Token() // its value
		}
	}
	return nil
}

// lineError says in JSON's words, rather than Go's, what is wrong.
func lineError(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if wrong.Field == "" {
			return fmt.Errorf("is a JSON %s: write an object such as {\"topic\":\"t\",\"payload\":\"p\"}", wrong.Value)
		}
		return fmt.Errorf("%s cannot be a %s: see penstock publish --help for what it takes", wrong.Field, wrong.Value)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("ends within the JSON object: one object per line")
	}
	return fmt.Errorf("is no message: %w", err)
}
