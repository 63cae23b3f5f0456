package amazon

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/penstock/penstock"
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

// Names of attributes. They win over headers of the same name in the message.
const (
	AttributeID        = "penstock-id"
	AttributeKey       = "penstock-key"
	AttributeTopic     = "penstock-topic"
	AttributeCreatedAt = "penstock-created-at"
	AttributeAttempt   = "penstock-attempt"
	AttributeEnvelope  = "penstock-envelope" // 1: the body is an envelope
)

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

type pairs [][2]string

func (p pairs) has(name string) bool {
	return slices.ContainsFunc(p, func(pair [2]string) bool { return pair[0] == name })
}

func (o *Options) entry(m *penstock.Message, fifo bool) (Entry, error) {
	e := Entry{Attributes: make(map[string]string, maxAttributes)}
	created := m.CreatedAt.UTC().Format(time.RFC3339Nano)
	own := pairs{{AttributeID, m.ID}, {AttributeKey, m.Key}, {AttributeTopic, m.Topic}, {AttributeCreatedAt, created}}
	if m.Attempt > 1 {
		own = append(own, [2]string{AttributeAttempt, strconv.Itoa(m.Attempt)})
	}
	plain := !o.Envelope && len(m.Payload) > 0 && isText(string(m.Payload))
	for _, a := range own {
		switch {
		case a[1] == "":
		case isText(a[1]):
			e.Attributes[a[0]] = a[1]
		default:
			plain = false
		}
	}
	if plain {
		plain = e.addHeaders(m.Headers)
	}
	if plain {
		e.Body = string(m.Payload)
	} else {
		for name := range m.Headers { // those that fitted
			if !own.has(name) {
				delete(e.Attributes, name)
			}
		}
		e.Attributes[AttributeEnvelope] = "1"
		body := envelope{ID: m.ID, Key: m.Key, Topic: m.Topic, CreatedAt: created, Headers: m.Headers}
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
		// JSON allows these two as they are, and the services do not.
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
	if e.bytes > o.MaxMessageBytes {
		return e, penstock.Permanent(penstock.WithHint(fmt.Errorf("the message is %d bytes with its attributes, more than max_message_bytes (%d)", e.bytes, o.MaxMessageBytes),
			"raise it if the queue or topic takes more, at most %d, or publish a reference to the content", MaxBytes))
	}
	return e, nil
}

// addHeaders reports whether all of them are attributes now.
func (e *Entry) addHeaders(headers map[string]string) bool {
	for name, value := range headers {
		switch name {
		case AttributeID, AttributeKey, AttributeTopic, AttributeCreatedAt, AttributeAttempt, AttributeEnvelope:
			continue
		}
		if value == "" || !isText(value) || !attributeName(name) || len(e.Attributes) == maxAttributes {
			return false
		}
		e.Attributes[name] = value
	}
	return true
}

// isText reports whether all of s are characters that XML 1.0 allows: no others are taken.
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

// Read undoes what the sink has done.
func Read(body string, attributes map[string]string) (r Received, err error) {
	e := envelope{
		ID: attributes[AttributeID], Key: attributes[AttributeKey], Topic: attributes[AttributeTopic], CreatedAt: attributes[AttributeCreatedAt],
		Headers: attributes, Payload: &body,
	}
	if attributes[AttributeEnvelope] == "1" {
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
