// Package lines reads messages and jobs from JSON lines of files, stdin and HTTP requests.
package lines

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/penstock/penstock"
)

// maxLineBytes holds the largest payload as base64 and, as JSON, some room for escapes.
const maxLineBytes = 2 * penstock.MaxPayloadBytes

// maxBatchBytes ends a batch early, to limit the memory of large items.
const maxBatchBytes = 32 << 20

// Words are for errors about lines.
type Words struct {
	Item   string // message
	Verb   string // publish
	Past   string // published
	Doing  string // publishing
	Sample string // a line that can be used
}

// Kind describes the lines of an input.
type Kind[T any] struct {
	*Words
	Parse func(line []byte) (T, error)
	Size  func(*T) int // bytes in memory, approximately
}

// Reader reads items from JSON lines.
type Reader[T any] struct {
	// KeepBad returns bad lines separately from the others, instead of ending the reading.
	KeepBad bool

	kind   *Kind[T]
	in     *bufio.Reader
	number int
}

// NewReader reads r.
func NewReader[T any](r io.Reader, kind *Kind[T]) *Reader[T] {
	return &Reader[T]{kind: kind, in: bufio.NewReaderSize(r, 256<<10)}
}

// Batch has items that belong into one transaction, and their lines.
type Batch[T any] struct {
	Items   []T
	Numbers []int    // of the items' lines
	Lines   [][]byte // these lines, with KeepBad
	Bad     []Bad
	First   int
	Last    int
}

// Bad is a line that was refused.
type Bad struct {
	Error
	Text []byte
}

// Error is about one line.
type Error struct {
	Line int
	Err  error
}

func (e *Error) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

func (e *Error) Unwrap() error { return e.Err }

// Batch reads up to n items, or all items if n is 0. If the error is nil, there may be more. An
// *Error names a bad line; the items before it in the batch are not returned.
func (l *Reader[T]) Batch(n int) (Batch[T], error) {
	b := Batch[T]{First: l.number + 1}
	for size := 0; n == 0 || (len(b.Items)+len(b.Bad) < n && size < maxBatchBytes); {
		line, bad, err := l.next()
		if err != nil && !errors.Is(err, io.EOF) {
			if !errors.Is(err, context.Canceled) {
				err = &Error{l.number, err}
			}
			return Batch[T]{First: b.First}, err
		}
		if len(bytes.TrimSpace(line)) > 0 {
			var item T
			if bad == nil {
				item, bad = l.kind.Parse(line)
			}
			switch {
			case bad == nil:
				size += l.kind.Size(&item)
				b.Items, b.Numbers, b.Last = append(b.Items, item), append(b.Numbers, l.number), l.number
				if l.KeepBad {
					b.Lines = append(b.Lines, line)
				}
			case !l.KeepBad:
				return Batch[T]{First: b.First}, &Error{l.number, bad}
			default:
				size += len(line)
				b.Bad, b.Last = append(b.Bad, Bad{Error{l.number, bad}, line}), l.number
			}
		}
		if err != nil {
			return b, io.EOF
		}
	}
	return b, nil
}

// next returns a line that the caller may keep, or the beginning of one that is too long.
func (l *Reader[T]) next() (line []byte, bad, err error) {
	l.number++
	for {
		part, err := l.in.ReadSlice('\n')
		if bad == nil {
			line = append(line, part...)
		}
		if len(line) > maxLineBytes && bad == nil {
			bad = fmt.Errorf("is longer than %d bytes: store the content elsewhere and %s a reference to it", maxLineBytes, l.kind.Verb)
			if !l.KeepBad {
				return line, bad, nil
			}
			line = line[:1<<10]
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, bad, err
		}
	}
}

// Decode reads one object into the struct to which fields points, and refuses fields that the
// struct lacks.
func (w *Words) Decode(line []byte, fields any) error {
	if !utf8.Valid(line) {
		// The decoder would silently replace bad bytes by U+FFFD.
		return errors.New("is not valid UTF-8: give bytes as payload_base64")
	}
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(fields); err != nil {
		return w.problem(err)
	}
	if bytes.HasPrefix(bytes.TrimLeft(line, " \t\r\n"), []byte("null")) { // which the decoder takes for an empty object
		return fmt.Errorf("is a JSON null: write an object such as %s", w.Sample)
	}
	if decoder.InputOffset() < int64(len(bytes.TrimRight(line, " \t\r\n"))) {
		return errors.New("has more than one JSON value: write one object per line")
	}
	return Plain(line)
}

// problem describes an error in terms of JSON, rather than Go.
func (w *Words) problem(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if wrong.Field == "" {
			return fmt.Errorf("is a JSON %s: write an object such as %s", wrong.Value, w.Sample)
		}
		return fmt.Errorf("%s cannot be a %s: see penstock %s --help for the allowed values", wrong.Field, wrong.Value, w.Verb)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("ends within the JSON object: one object per line")
	}
	return fmt.Errorf("is not a %s: %w", w.Item, err)
}

// Plain refuses text that encoding/json would change, in a line that is known to be an object.
// encoding/json takes the last of duplicate fields, and writes U+FFFD for half a surrogate pair.
// Names are compared without case, as the decoder does; those of headers are exact.
func Plain(line []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(line))
	fields, headers := map[string]bool{}, map[string]bool{}
	if _, err := decoder.Token(); err != nil { // {
		return err
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return err
		}
		field := name.(string)
		folded := strings.ToLower(strings.ToUpper(field)) // as strings.EqualFold compares
		if fields[folded] {
			return fmt.Errorf("has %s twice: give it once", folded)
		}
		fields[folded] = true
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return err
		}
		isHeaders := strings.EqualFold(field, "headers") && value[0] == '{'
		if (isHeaders || value[0] == '"') && halfCharacter(value) {
			return fmt.Errorf("%s has an unpaired surrogate, which is not valid Unicode: give bytes as payload_base64", strings.ToLower(field))
		}
		if !isHeaders {
			continue
		}
		inside := json.NewDecoder(bytes.NewReader(value))
		inside.Token() // {
		for inside.More() {
			token, _ := inside.Token() // all are texts; otherwise the line would not have been decoded
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

// halfCharacter finds half of a surrogate pair in JSON's escapes.
func halfCharacter(text []byte) bool {
	high := false
	for {
		i := bytes.IndexByte(text, '\\')
		if i != 0 && high {
			return true
		}
		if i < 0 {
			return false
		}
		unit, err := uint64(0), error(nil)
		if text = text[i+1:]; text[0] == 'u' {
			unit, err = strconv.ParseUint(string(text[1:5]), 16, 16)
			text = text[4:]
		}
		text = text[1:]
		low := unit>>10 == 0xdc00>>10
		if err != nil || low != high {
			return true
		}
		high = unit>>10 == 0xd800>>10
	}
}

// PayloadFields are the two forms of a line's payload.
type PayloadFields struct {
	Payload       json.RawMessage `json:"payload"`
	PayloadBase64 []byte          `json:"payload_base64"`
}

// Bytes returns the payload: the text of a JSON string, or any other value as it is written.
func (p *PayloadFields) Bytes() ([]byte, error) {
	switch {
	case p.Payload != nil && p.PayloadBase64 != nil:
		return nil, errors.New("has both payload and payload_base64: give one")
	case p.Payload == nil:
		return p.PayloadBase64, nil
	case p.Payload[0] != '"':
		return p.Payload, nil
	}
	var text string
	if err := json.Unmarshal(p.Payload, &text); err != nil {
		return nil, err
	}
	return []byte(text), nil
}

// messageLine is a message as a line of JSON.
type messageLine struct {
	ID      string            `json:"id"`
	Key     string            `json:"key"`
	Topic   string            `json:"topic"`
	Headers map[string]string `json:"headers"`
	PayloadFields
	// Fields that a store sets. Publishing ignores them.
	Seq       json.RawMessage `json:"seq"`
	CreatedAt json.RawMessage `json:"created_at"`
	Attempt   json.RawMessage `json:"attempt"`
}

var (
	messageWords = Words{Item: "message", Verb: "publish", Past: "published", Doing: "publishing", Sample: `{"topic":"t","payload":"p"}`}
	// Messages are the lines that penstock publish reads and the stdout sink writes.
	Messages = Kind[penstock.Message]{Words: &messageWords, Parse: ParseMessage, Size: (*penstock.Message).Size}
)

// ParseMessage reads one of them.
func ParseMessage(line []byte) (penstock.Message, error) {
	var l messageLine
	if err := messageWords.Decode(line, &l); err != nil {
		return penstock.Message{}, err
	}
	payload, err := l.Bytes()
	if err != nil {
		return penstock.Message{}, err
	}
	m := penstock.Message{ID: l.ID, Key: l.Key, Topic: l.Topic, Headers: l.Headers, Payload: payload}
	return m, m.Validate()
}

// ParseMessages reads the lines of text, up to a number of messages. An *Error names a bad one.
func ParseMessages(text []byte, most int) (msgs []penstock.Message, err error) {
	number := 0
	for line := range bytes.Lines(text) {
		if number++; len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if len(msgs) == most {
			return nil, &TooManyError{most}
		}
		m, err := ParseMessage(line)
		if err != nil {
			return nil, &Error{number, err}
		}
		msgs = append(msgs, m)
	}
	return msgs, nil
}

// TooManyError is about more messages than the limit.
type TooManyError struct{ Most int }

func (e *TooManyError) Error() string { return fmt.Sprintf("there are more than %d messages", e.Most) }
