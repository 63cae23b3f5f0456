package nats

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock/penstock"
)

// silence is a missing answer: the server said at once that no stream listens to the subject (after
// is 0), or no answer came for a while.
type silence struct{ after time.Duration }

func (e *silence) Error() string {
	if e.after == 0 {
		return "no stream listens to the subject"
	}
	return fmt.Sprintf("no acknowledgement within %v", e.after)
}

var errNoStream = &silence{}

// Error codes of JetStream that say more than "not now". The client library
// has no names for most of them.
const (
	codeAccountResources    = 10002
	codeInsufficient        = 10023
	codeMemoryResources     = 10028
	codeStorageResources    = 10047
	codeMessageTooLarge     = 10054
	codeStoreFailed         = 10077
	codeHeaderTooLarge      = 10097
	codeStreamSealed        = 10109
	codeDuplicateInProgress = 10158
	codeTooManyRequests     = 10167
)

// Delays after which to retry a message that JetStream would not accept just now.
const (
	pauseBusy = 100 * time.Millisecond
	pauseFull = time.Second
	// A server of a cluster believes that a refused id is in flight, for as long as the stream's
	// duplicate window.
	pauseInProcess = time.Second
)

// RefusedError is JetStream's own answer to a message that it did not store.
type RefusedError struct {
	Stream      string // empty if the answer names none
	Code        int    // HTTP-like
	ErrCode     int    // JetStream's own
	Description string
}

func (e *RefusedError) Error() string {
	if e.Stream == "" {
		return fmt.Sprintf("JetStream refused the message: %s (error %d)", e.Description, e.ErrCode)
	}
	return fmt.Sprintf("JetStream stream %s refused the message: %s (error %d)", e.Stream, e.Description, e.ErrCode)
}

// streams remembers whether more than one stream has answered.
type streams struct {
	first   atomic.Pointer[string]
	several atomic.Bool
}

func (s *streams) saw(name []byte) {
	if s.several.Load() {
		return
	}
	first := s.first.Load()
	if first == nil {
		only := string(name)
		if s.first.CompareAndSwap(nil, &only) {
			return
		}
		first = s.first.Load()
	}
	if *first != string(name) {
		s.several.Store(true)
	}
}

// plain recognizes the usual answers and returns the stream's name, nil for others:
//
//	{"stream":"ORDERS","seq":42}
//	{"stream":"ORDERS","seq":42,"duplicate": true}
//
// byte for byte as the server writes them, so that they need no parsing.
func plain(data []byte) (stream []byte) {
	rest, ok := bytes.CutPrefix(data, []byte(`{"stream":"`))
	name := bytes.IndexByte(rest, '"')
	if !ok || name < 1 || bytes.ContainsFunc(rest[:name], func(r rune) bool { return r < ' ' || r == '\\' }) {
		return nil
	}
	stream = rest[:name]
	if rest, ok = bytes.CutPrefix(rest[name:], []byte(`","seq":`)); !ok {
		return nil
	}
	digits := 0
	for digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '9' {
		digits++
	}
	if digits == 0 || digits > 19 || rest[0] == '0' {
		return nil
	}
	if tail := string(rest[digits:]); tail != "}" && tail != `,"duplicate": true}` {
		return nil
	}
	return stream
}

// verdict reads an acknowledgement: nil if the stream holds the message, newly
// or from an earlier attempt (a duplicate).
func verdict(m *nats.Msg, seen *streams) error {
	if stream := plain(m.Data); stream != nil {
		seen.saw(stream)
		return nil
	}
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return errNoStream
	}
	var answer struct {
		Error *struct {
			Code        int    `json:"code"`
			ErrCode     int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
		Stream string `json:"stream"`
		Seq    uint64 `json:"seq"`
	}
	err := json.Unmarshal(m.Data, &answer)
	switch {
	case err == nil && answer.Error != nil:
		e := answer.Error
		if answer.Stream != "" {
			seen.saw([]byte(answer.Stream))
		}
		return classify(&RefusedError{Stream: answer.Stream, Code: e.Code, ErrCode: e.ErrCode, Description: e.Description}, seen.several.Load())
	case err == nil && answer.Stream != "" && answer.Seq > 0:
		seen.saw([]byte(answer.Stream))
		return nil
	}
	return penstock.WithHint(errors.New("a service that is not a JetStream stream answered the message"),
		"look for a service that replies on the message's subject, or change the subject")
}

// classify gives JetStream's error an error class. If there are several streams, a full one is
// only a part of the sink.
func classify(e *RefusedError, several bool) error {
	switch e.ErrCode {
	case codeMessageTooLarge:
		return penstock.Permanent(penstock.WithHint(e, "raise max_msg_size of the stream, or set claim_check, which sends a reference"))
	case codeHeaderTooLarge:
		return penstock.Permanent(penstock.WithHint(e, "move large headers and keys into the payload"))
	case codeTooManyRequests:
		return penstock.RetryAfter(penstock.WithHint(e, "lower max_pending if this lasts"), pauseBusy)
	case codeDuplicateInProgress:
		return penstock.RetryAfter(penstock.Unavailable(e), pauseInProcess)
	case codeStoreFailed:
		if e.Description == "message too large" {
			return penstock.Permanent(penstock.WithHint(e, "set claim_check, which sends a reference: file storage takes 32 MiB"))
		}
		full := penstock.Unavailable(penstock.WithHint(e, "raise max_msgs or max_bytes of the stream, purge it, or let it discard old messages"))
		if several || strings.Contains(e.Description, "per subject") {
			return penstock.RetryAfter(full, pauseFull)
		}
		return full
	case codeStreamSealed:
		return penstock.WithHint(e, "a sealed stream takes nothing more; bind another one to the subject")
	case codeAccountResources, codeInsufficient, codeMemoryResources, codeStorageResources:
		return penstock.Unavailable(penstock.WithHint(e, "give JetStream more storage, or purge streams"))
	}
	if e.Code == 503 {
		return penstock.Unavailable(e)
	}
	return e
}
