package cli

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

// maxBatchBytes ends a batch early, so that large items do not pile up.
const maxBatchBytes = 32 << 20

// LineWords are for errors about lines.
type LineWords struct {
	Item   string // message
	Verb   string // publish
	Past   string // published
	Doing  string // publishing
	Sample string // a line that can be used
}

// LineKind is what the lines of an input are.
type LineKind[T any] struct {
	*LineWords
	Parse func(line []byte) (T, error)
	Size  func(*T) int // bytes in memory, about
}

// lines reads items from JSON lines.
type lines[T any] struct {
	kind   *LineKind[T]
	in     *bufio.Reader
	number int
}

func NewLines[T any](r io.Reader, kind *LineKind[T]) *lines[T] {
	return &lines[T]{kind: kind, in: bufio.NewReaderSize(r, 256<<10)}
}

// lineBatch is items that belong into one transaction, and the lines they stood
// in.
type lineBatch[T any] struct {
	items       []T
	first, last int
}

// Batch reads up to n items, all there are if n is 0. With a nil error there
// may be more. An error about a line names it; the items before it in the batch
// are not returned.
func (l *lines[T]) Batch(n int) (lineBatch[T], error) {
	b := lineBatch[T]{first: l.number + 1}
	for size := 0; n == 0 || (len(b.items) < n && size < maxBatchBytes); {
		line, err := l.next()
		if errors.Is(err, context.Canceled) {
			return lineBatch[T]{first: b.first}, err
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return lineBatch[T]{first: b.first}, Usage(fmt.Errorf("line %d: %w", l.number, err))
		}
		if len(bytes.TrimSpace(line)) > 0 {
			item, bad := l.kind.Parse(line)
			if bad != nil {
				return lineBatch[T]{first: b.first}, Usage(fmt.Errorf("line %d: %w", l.number, bad))
			}
			size += l.kind.Size(&item)
			b.items = append(b.items, item)
			b.last = l.number
		}
		if err != nil {
			return b, io.EOF
		}
	}
	return b, nil
}

// next returns a line that is the caller's to keep.
func (l *lines[T]) next() ([]byte, error) {
	l.number++
	var line []byte
	for {
		part, err := l.in.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxLineBytes {
			return nil, fmt.Errorf("is longer than %d bytes: store the content elsewhere and %s a reference to it", maxLineBytes, l.kind.Verb)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// Decode reads one object into what fields points to, and nothing that the
// struct has no field for.
func (w *LineWords) Decode(line []byte, fields any) error {
	if !utf8.Valid(line) {
		// The decoder would silently put U+FFFD in the place of bad bytes.
		return errors.New("is not valid UTF-8: give bytes as payload_base64")
	}
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(fields); err != nil {
		return w.problem(err)
	}
	if decoder.InputOffset() < int64(len(bytes.TrimRight(line, " \t\r\n"))) {
		return errors.New("has more than one JSON value: write one object per line")
	}
	return noFieldTwice(line)
}

// problem says in JSON's words, rather than Go's, what is wrong.
func (w *LineWords) problem(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if wrong.Field == "" {
			return fmt.Errorf("is a JSON %s: write an object such as %s", wrong.Value, w.Sample)
		}
		return fmt.Errorf("%s cannot be a %s: see penstock %s --help for what it takes", wrong.Field, wrong.Value, w.Verb)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("ends within the JSON object: one object per line")
	}
	return fmt.Errorf("is no %s: %w", w.Item, err)
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

// CarryLines hands the items of in to send, each batch of up to size lines as
// one transaction, and returns how many were sent.
func CarryLines[T any](ctx context.Context, in io.Reader, kind *LineKind[T], size int, a *App, insist bool, send func([]T) error) (sent int64, err error) {
	progress := a.NewProgress(insist)
	defer progress.Clear()
	input := NewLines(UntilDone(ctx, in), kind)
	for {
		batch, err := input.Batch(size)
		if errors.Is(err, context.Canceled) {
			fmt.Fprintln(a.Stderr, "penstock:", kind.progressMade(sent, batch.first))
			return sent, err
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return sent, fmt.Errorf("%w; %s", err, kind.progressMade(sent, batch.first))
		}
		if len(batch.items) > 0 {
			if err := send(batch.items); err != nil {
				return sent, fmt.Errorf("%s lines %d to %d: %w; %s", kind.Doing, batch.first, batch.last, err, kind.progressMade(sent, batch.first))
			}
			sent += int64(len(batch.items))
			progress.Show(fmt.Sprintf("%s %s", Plural(sent, kind.Item), kind.Past))
		}
		if err != nil {
			return sent, nil // the end of the input
		}
	}
}

// progressMade tells what a repeated run must not repeat.
func (w *LineWords) progressMade(sent int64, from int) string {
	if sent == 0 {
		return "nothing was " + w.Past
	}
	return fmt.Sprintf("%s %s, nothing from line %d on: repeat with tail -n +%d", Plural(sent, w.Item), w.Past, from, from)
}

// ReadHeaders reads name=value from each flag; nil without any.
func ReadHeaders(flags []string) (map[string]string, error) {
	if len(flags) == 0 {
		return nil, nil
	}
	headers := make(map[string]string, len(flags))
	for _, header := range flags {
		name, value, ok := strings.Cut(header, "=")
		if !ok {
			return nil, Usage(fmt.Errorf("--header %q has no =: write name=value", header))
		}
		if _, twice := headers[name]; twice {
			return nil, Usage(fmt.Errorf("--header %s is given twice: a header has one value", Visible(name)))
		}
		headers[name] = value
	}
	return headers, nil
}

// PayloadFields are the two ways in which a line has a payload.
type PayloadFields struct {
	Payload       json.RawMessage `json:"payload"`
	PayloadBase64 []byte          `json:"payload_base64"`
}

// Bytes returns the payload: a JSON string as the text it means, any other value
// as it is written.
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
