package nats

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock/penstock"
)

// silence is no answer: the server said at once that nobody listens to the
// subject (after is 0), or nothing came for a while.
type silence struct{ after time.Duration }

func (e *silence) Error() string {
	if e.after == 0 {
		return "nobody listens to the subject"
	}
	return fmt.Sprintf("no acknowledgement within %v", e.after)
}

var errNobody = &silence{}

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

// Delays after which a message that JetStream would not take just now is worth
// another attempt.
const (
	pauseBusy = 100 * time.Millisecond
	pauseFull = time.Second
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

// plain recognizes the usual answers,
//
//	{"stream":"ORDERS","seq":42}
//	{"stream":"ORDERS","seq":42,"duplicate": true}
//
// byte for byte as the server writes them, so that they need no parsing.
func plain(data []byte) bool {
	rest, ok := bytes.CutPrefix(data, []byte(`{"stream":"`))
	name := bytes.IndexByte(rest, '"')
	if !ok || name < 1 || bytes.ContainsFunc(rest[:name], func(r rune) bool { return r < ' ' || r == '\\' }) {
		return false
	}
	if rest, ok = bytes.CutPrefix(rest[name:], []byte(`","seq":`)); !ok {
		return false
	}
	digits := 0
	for digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '9' {
		digits++
	}
	if digits == 0 || digits > 19 || rest[0] == '0' {
		return false
	}
	tail := string(rest[digits:])
	return tail == "}" || tail == `,"duplicate": true}`
}

// verdict reads an acknowledgement: nil if the stream holds the message, newly
// or from an earlier attempt (a duplicate).
func verdict(m *nats.Msg) error {
	if plain(m.Data) {
		return nil
	}
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return errNobody
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
		return classify(&RefusedError{Stream: answer.Stream, Code: e.Code, ErrCode: e.ErrCode, Description: e.Description})
	case err == nil && answer.Stream != "" && answer.Seq > 0:
		return nil
	}
	return penstock.WithHint(errors.New("what answered the message is no JetStream stream"),
		"look for a service that replies on the message's subject, or change the subject")
}

// classify marks what JetStream said for the relay.
func classify(e *RefusedError) error {
	switch e.ErrCode {
	case codeMessageTooLarge:
		return penstock.Permanent(penstock.WithHint(e, "raise max_msg_size of the stream, or publish a reference to the content"))
	case codeHeaderTooLarge:
		return penstock.Permanent(penstock.WithHint(e, "move what is large from headers and key into the payload"))
	case codeTooManyRequests:
		return penstock.RetryAfter(penstock.WithHint(e, "lower max_pending if this lasts"), pauseBusy)
	case codeDuplicateInProgress:
		return penstock.RetryAfter(e, pauseBusy)
	case codeStoreFailed:
		if e.Description == "message too large" {
			return penstock.Permanent(penstock.WithHint(e, "publish a reference to the content: file storage takes 32 MiB"))
		}
		return penstock.RetryAfter(penstock.WithHint(e, "raise max_msgs or max_bytes of the stream, purge it, or let it discard old messages"), pauseFull)
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
