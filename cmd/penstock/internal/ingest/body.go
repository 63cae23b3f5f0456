package ingest

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"regexp"
	"strings"

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
