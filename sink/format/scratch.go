package format

import (
	"time"

	"github.com/penstock/penstock"
)

// scratch is the memory of one Send, which the next one reuses. A sink uses messages and headers
// only until its Send returns (see driver.Sink). Payloads are not reused: an HTTP client may still
// be reading one for a request that was given up, and must not find the bytes of another message
// there.
type scratch struct {
	wire    []penstock.Message
	headers []map[string]string // of wire, and spare ones behind

	// Messages of one transaction have one time, and most have one content type.
	time      time.Time
	timeText  string
	mediaType mediaType

	json []byte // of an event up to its data
}

// The largest scratch that is kept; a larger one was for an unusual message.
const (
	keptMessages = 4096
	keptHeaders  = 64
	keptJSON     = 64 << 10
)

// nextHeaders is an empty map for the message after those in wire.
func (s *scratch) nextHeaders() map[string]string {
	if n := len(s.wire); n < len(s.headers) {
		return s.headers[n]
	}
	h := make(map[string]string, 16)
	s.headers = append(s.headers, h)
	return h
}

// release drops everything that belongs to messages.
func (s *scratch) release() {
	for i := range s.wire {
		if h := s.headers[i]; len(h) > keptHeaders {
			s.headers[i] = make(map[string]string, 16)
		} else {
			clear(h)
		}
	}
	clear(s.wire)
	s.wire = s.wire[:0]
	if cap(s.wire) > keptMessages || cap(s.json) > keptJSON {
		*s = scratch{}
	}
}

// timestamp is t as CloudEvents writes it.
func (s *scratch) timestamp(t time.Time) string {
	if s.timeText == "" || !t.Equal(s.time) {
		s.time, s.timeText = t, t.UTC().Format(time.RFC3339Nano)
	}
	return s.timeText
}

// setContentType makes mediaType that of text.
func (s *scratch) setContentType(text string) error {
	if text == s.mediaType.given {
		return nil
	}
	t, err := parseMediaType(text)
	if err == nil {
		s.mediaType = t
	}
	return err
}
