package amazon

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/attributes"
)

// Entry is a message as a batch has it.
type Entry struct {
	ID         string // within its batch
	Body       string
	Attributes map[string]string
	Group      string // of a FIFO queue or topic; empty for others
	Dedup      string

	index int // of the message
	bytes int
}

// attributeEnvelope means that the body is an envelope: 1.
const attributeEnvelope = "penstock-envelope"

// envelope is the body of a message that does not fit into text and ten attributes. It is complete.
type envelope struct {
	ID            string            `json:"id"`
	Key           string            `json:"key,omitempty"`
	Topic         string            `json:"topic,omitempty"`
	CreatedAt     string            `json:"created_at"`
	Attempt       int               `json:"attempt,omitempty"`
	Headers       map[string]string `json:"headers,omitempty"`
	Payload       *string           `json:"payload,omitempty"`
	PayloadBase64 []byte            `json:"payload_base64,omitempty"`
}

func (s *Sender) entry(m *penstock.Message, fifo bool) (Entry, error) {
	e := Entry{Attributes: make(map[string]string, maxAttributes)}
	plain := !s.set.Envelope && len(m.Payload) > 0 && isText(string(m.Payload))
	for name, value := range attributes.Of(m) {
		own := attributes.IsOwn(name)
		switch {
		case name == attributeEnvelope || !plain && !own:
		case !s.isValue(value) || !own && (value == "" || !attributeName(name) || len(e.Attributes) == maxAttributes):
			plain = false
		default:
			e.Attributes[name] = value
		}
	}
	if plain {
		e.Body = string(m.Payload)
	} else {
		maps.DeleteFunc(e.Attributes, func(name, _ string) bool { return !attributes.IsOwn(name) }) // those that fitted
		e.Attributes[attributeEnvelope] = "1"
		body := envelope{ID: m.ID, Key: m.Key, Topic: m.Topic, CreatedAt: e.Attributes[attributes.CreatedAt], Headers: m.Headers}
		if m.Attempt > 1 {
			body.Attempt = m.Attempt
		}
		if isText(string(m.Payload)) {
			text := string(m.Payload)
			body.Payload = &text
		} else {
			body.PayloadBase64 = m.Payload
		}
		encoded, err := json.Marshal(body)
		if err != nil {
			return e, penstock.Permanent(err)
		}
		// JSON allows these two as they are, and SQS does not.
		e.Body = strings.NewReplacer("\uFFFE", `\ufffe`, "\uFFFF", `\uffff`).Replace(string(encoded))
	}
	if fifo {
		e.Dedup = token(m.ID)
		if e.Group = token(m.Key); m.Key == "" {
			e.Group = e.Dedup // no order, so no message waits for another
		}
	}
	e.bytes = len(e.Body)
	for name, value := range e.Attributes {
		e.bytes += len(name) + len(value) + len("String")
	}
	if e.bytes > s.set.MaxMessageBytes {
		return e, penstock.Permanent(penstock.WithHint(fmt.Errorf("the message is %d bytes with its attributes, more than max_message_bytes (%d)", e.bytes, s.set.MaxMessageBytes),
			"raise it if the queue or topic takes more, at most %d, or set claim_check, which sends a reference", MaxBytes))
	}
	return e, nil
}

// isText reports whether all of s are characters that XML 1.0 allows: SQS takes no others.
func isText(s string) bool {
	for i, r := range s {
		switch {
		case r == '\t' || r == '\n' || r == '\r' || r >= 0x20 && r < 0xFFFE || r >= 0x10000:
			if r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD") {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// isValue reports whether a text can be an attribute's value. SNS takes one with a tab, and then a subscription with a filter policy may drop the
// message silently (https://github.com/aws/aws-sdk-java-v2/issues/5828). There a value must be a JSON string, which a line break is not either.
func (s *Sender) isValue(text string) bool {
	return isText(text) && (s.service != "SNS" || !strings.ContainsAny(text, "\t\n\r"))
}

// attributeName: letters, digits, underscores, hyphens and single dots within, not AWS's own.
func attributeName(s string) bool {
	lower := strings.ToLower(s)
	if len(s) > 256 || strings.HasPrefix(lower, "aws.") || strings.HasPrefix(lower, "amazon.") || strings.HasPrefix(s, ".") || strings.HasSuffix(s, ".") || strings.Contains(s, "..") {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool { return !named(r) && r != '.' }) < 0
}

func named(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-'
}

// token is s as the id of a group or for deduplication: up to 128 printable characters of ASCII. Any other
// is replaced with its hash, which is the same each time.
func token(s string) string {
	if s != "" && len(s) <= 128 && strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0 {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return "sha256-" + hex.EncodeToString(sum[:])
}

// Received is a message as a consumer reads it from a body and its attributes.
type Received struct {
	ID, Key, Topic string
	CreatedAt      time.Time
	Headers        map[string]string
	Payload        []byte
}

// Read undoes the sink's encoding.
func Read(body string, from map[string]string) (r Received, err error) {
	e := envelope{
		ID: from[attributes.ID], Key: from[attributes.Key], Topic: from[attributes.Topic], CreatedAt: from[attributes.CreatedAt],
		Headers: from, Payload: &body,
	}
	if from[attributeEnvelope] == "1" {
		e = envelope{}
		if err := json.Unmarshal([]byte(body), &e); err != nil {
			return r, err
		}
	}
	r = Received{ID: e.ID, Key: e.Key, Topic: e.Topic, Headers: e.Headers, Payload: e.PayloadBase64}
	if e.Payload != nil {
		r.Payload = []byte(*e.Payload)
	}
	r.CreatedAt, err = time.Parse(time.RFC3339Nano, e.CreatedAt)
	return r, err
}
