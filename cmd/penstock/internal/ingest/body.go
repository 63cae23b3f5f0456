package ingest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/cmd/penstock/internal/lines"
)

// mediaTypeError is about a body whose media type is not supported.
type mediaTypeError struct{ text string }

func (e *mediaTypeError) Error() string { return e.text }

var errRead = errors.New("the request could not be read")

// read returns the messages of a request.
func (s *Server) read(r *http.Request) ([]penstock.Message, error) {
	given := r.Header.Get("Content-Type")
	kind, _, _ := mime.ParseMediaType(given)
	binary := r.Header.Get("Ce-Specversion") != ""
	if encoded := r.Header.Get("Content-Encoding"); encoded != "" && encoded != "identity" {
		return nil, &mediaTypeError{fmt.Sprintf("the Content-Encoding is %q: send the body as it is", encoded)}
	}
	switch kind {
	case "application/json", ndjson, "application/jsonl", structured, batched:
	default:
		if !binary {
			return nil, &mediaTypeError{fmt.Sprintf("the Content-Type is %q: send application/json, application/x-ndjson, application/cloudevents+json, application/cloudevents-batch+json, or an event in binary mode (ce-specversion)", given)}
		}
	}
	body, err := readAll(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRead, err)
	}
	if len(body) > 64<<10 {
		s.parsing <- struct{}{}
		defer func() { <-s.parsing }()
	}
	var msgs []penstock.Message
	switch {
	case binary && kind != structured && kind != batched:
		msgs, err = one(binaryEvent(r.Header, body))
	case kind == structured:
		msgs, err = one(structuredEvent(body))
	case kind == batched:
		msgs, err = batchedEvents(body)
	case kind == "application/json":
		msgs, err = one(lines.ParseMessage(body))
	default:
		msgs, err = lines.ParseMessages(body, maxMessages)
	}
	if err != nil {
		return nil, err
	}
	trace(r.Header, msgs)
	return msgs, nil
}

func one(m penstock.Message, err error) ([]penstock.Message, error) {
	if err != nil {
		return nil, &lines.Error{Line: 1, Err: err}
	}
	return []penstock.Message{m}, nil
}

// readAll allocates for the bytes that have come, not for the announced length.
func readAll(r *http.Request) ([]byte, error) {
	body := bytes.NewBuffer(make([]byte, 0, bytes.MinRead+min(max(r.ContentLength, 0), 32<<10)))
	_, err := body.ReadFrom(r.Body) // the part of a request that was cut off is an error
	return body.Bytes(), err
}

// trace makes messages continue the trace of the request, unless they have their own. An invalid context is not
// carried, nor is a state that is longer than others must accept: each message would have it.
func trace(h http.Header, msgs []penstock.Message) {
	parent, state := h.Get("Traceparent"), strings.Join(h.Values("Tracestate"), ",")
	if !traceparent.MatchString(parent) {
		return
	}
	for i := range msgs {
		m := &msgs[i]
		if m.Headers["traceparent"] != "" {
			continue
		}
		if m.Headers == nil {
			m.Headers = map[string]string{}
		}
		m.Headers["traceparent"] = parent
		if tracestate.MatchString(state) {
			m.Headers["tracestate"] = state
		}
	}
}

// maxMessages is the limit for a request. messageRoom is about how many bytes each message takes besides its content: the
// shortest has three.
const (
	maxMessages = 10_000
	messageRoom = 512
)

const (
	ndjson     = "application/x-ndjson"
	structured = "application/cloudevents+json"
	batched    = "application/cloudevents-batch+json"
)

// The format of W3C's Trace Context, in this version and later ones.
var (
	traceparent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]{0,64})?$`)
	tracestate  = regexp.MustCompile(`^[ -~\t]{1,512}$`)
)

// A CloudEvent becomes the message from which package sink/format makes that event again. Its id is the event's, its topic the type,
// and its key the partitionkey or else the subject. Every other attribute is a header of that name.

// eventOf makes a message from an event's attributes.
func eventOf(attributes map[string]string, data []byte) (m penstock.Message, err error) {
	if v := attributes["specversion"]; v != "1.0" {
		return m, fmt.Errorf("is an event of specversion %q: send 1.0", v)
	}
	for _, required := range []string{"id", "source", "type"} {
		if attributes[required] == "" {
			return m, fmt.Errorf("is an event without %s", required)
		}
	}
	m = penstock.Message{ID: attributes["id"], Topic: attributes["type"], Key: attributes["partitionkey"], Payload: data, Headers: map[string]string{}}
	if m.Key == "" {
		m.Key = attributes["subject"]
	}
	for name, value := range attributes {
		switch name {
		case "specversion", "id", "type", "partitionkey":
		case "subject":
			if value != m.Key {
				m.Headers[name] = value
			}
		case "datacontenttype":
			m.Headers["content-type"] = value
		default:
			m.Headers[name] = value
		}
	}
	return m, m.Validate()
}

// binaryEvent reads the attributes from headers.
func binaryEvent(h http.Header, body []byte) (penstock.Message, error) {
	attributes := map[string]string{}
	for name, values := range h {
		attribute, is := strings.CutPrefix(strings.ToLower(name), "ce-")
		if !is {
			continue
		}
		value, err := url.PathUnescape(values[0])
		if err != nil || len(values) > 1 || !utf8.ValidString(value) {
			return penstock.Message{}, fmt.Errorf("the header %s is %q: give it once, percent-encoded UTF-8", name, values)
		}
		attributes[attribute] = value
	}
	if kind := h.Get("Content-Type"); kind != "" {
		attributes["datacontenttype"] = kind
	}
	return eventOf(attributes, body)
}

// structuredEvent reads one JSON object.
func structuredEvent(text []byte) (m penstock.Message, err error) {
	if !utf8.Valid(text) {
		return m, errors.New("is not valid UTF-8")
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return m, fmt.Errorf("is not an event: %w", err)
	}
	if err := lines.Plain(text); err != nil && fields != nil {
		return m, err
	}
	attributes, data := map[string]string{}, []byte(nil)
	for name, value := range fields {
		switch {
		case name == "data" || name == "data_base64" || string(value) == "null":
		case value[0] == '"':
			var text string
			if err := json.Unmarshal(value, &text); err != nil {
				return m, err
			}
			attributes[name] = text
		case value[0] == '{' || value[0] == '[':
			return m, fmt.Errorf("the attribute %s is a JSON object or array", name)
		default:
			attributes[name] = string(value) // a number, true or false, in canonical form
		}
	}
	if value, is := fields["data_base64"]; is {
		if fields["data"] != nil {
			return m, errors.New("has both data and data_base64: give one")
		}
		if err := json.Unmarshal(value, &data); err != nil {
			return m, fmt.Errorf("data_base64: %w", err)
		}
	} else if data, err = dataOf(fields["data"], attributes["datacontenttype"]); err != nil {
		return m, err
	}
	return eventOf(attributes, data)
}

// dataOf is a JSON value as it is written, or the value of a text that is not JSON.
func dataOf(value json.RawMessage, contentType string) ([]byte, error) {
	kind, _, _ := mime.ParseMediaType(contentType)
	if len(value) == 0 || value[0] != '"' || contentType == "" || strings.HasSuffix(kind, "/json") || strings.HasSuffix(kind, "+json") {
		return value, nil
	}
	var text string
	err := json.Unmarshal(value, &text)
	return []byte(text), err
}

// batchedEvents read a JSON array of events.
func batchedEvents(text []byte) (msgs []penstock.Message, err error) {
	all := json.NewDecoder(bytes.NewReader(text))
	bad := func(err error) ([]penstock.Message, error) {
		return nil, fmt.Errorf("%w: it is not an array of events: %w", errRead, err)
	}
	if begin, err := all.Token(); err != nil || begin != json.Delim('[') {
		return bad(cmp.Or(err, errors.New("it begins otherwise")))
	}
	for all.More() {
		if len(msgs) == maxMessages {
			return nil, &lines.TooManyError{Most: maxMessages}
		}
		var event json.RawMessage
		if err := all.Decode(&event); err != nil {
			return bad(err)
		}
		m, err := structuredEvent(event)
		if err != nil {
			return nil, &lines.Error{Line: len(msgs) + 1, Err: err}
		}
		msgs = append(msgs, m)
	}
	if _, err := all.Token(); err != nil {
		return bad(err)
	}
	if _, err := all.Token(); err != io.EOF {
		return bad(cmp.Or(err, errors.New("more follows it")))
	}
	return msgs, nil
}
