package webhook

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock"
)

// Header names, in the form in which net/http keeps them.
const (
	HeaderIdempotencyKey = "Idempotency-Key"
	HeaderWebhookID      = "Webhook-Id"
	HeaderTimestamp      = "Webhook-Timestamp"
	HeaderSignature      = "Webhook-Signature"
	HeaderKey            = "Penstock-Key"
	HeaderTopic          = "Penstock-Topic"
	HeaderCreatedAt      = "Penstock-Created-At"
	HeaderAttempt        = "Penstock-Attempt"

	contentType = "Content-Type"
	userAgent   = "Penstock"
)

// reserved are headers that no message can set: Penstock's own, those that
// frame the request or belong to the connection (RFC 9110, 7.6.1), and
// credentials. A message that has one is sent without it.
var reserved = map[string]bool{
	HeaderIdempotencyKey: true, "X-Idempotency-Key": true,
	HeaderWebhookID: true, HeaderTimestamp: true, HeaderSignature: true,
	HeaderKey: true, HeaderTopic: true, HeaderCreatedAt: true, HeaderAttempt: true,

	"Host": true, "Content-Length": true, "Transfer-Encoding": true, "Trailer": true, "Expect": true,
	"Connection": true, "Keep-Alive": true, "Te": true, "Upgrade": true, "Http2-Settings": true,
	"Proxy-Connection": true, "Proxy-Authenticate": true, "Proxy-Authorization": true,

	"Authorization": true, "Cookie": true,
}

// How many headers Penstock adds itself, at most.
const (
	plainHeaders  = 6
	signedHeaders = 3
)

// headers builds the header of one request. The error is Permanent: HTTP headers are lines of
// text, and values that would change in transit are refused.
func (s *Sink) headers(m *penstock.Message, now time.Time) (http.Header, error) {
	n := plainHeaders + len(m.Headers)
	if s.signer != nil {
		n += signedHeaders
	}
	h := make(http.Header, n+len(s.static))
	values := make([]string, 0, n) // one allocation for all
	set := func(name, value string) {
		values = append(values, value)
		h[name] = values[len(values)-1 : len(values) : len(values)]
	}
	for name, value := range m.Headers {
		if err := checkName(name); err != nil {
			return nil, err
		}
		canonical := http.CanonicalHeaderKey(name)
		if reserved[canonical] {
			continue
		}
		if err := checkValue("header "+name, value); err != nil {
			return nil, err
		}
		if _, twice := h[canonical]; twice {
			return nil, unsendable("publish one of them", "two headers of the message are both %s to HTTP", canonical)
		}
		set(canonical, value)
	}
	for _, own := range [...]struct{ what, name, value string }{
		{"the id", HeaderIdempotencyKey, m.ID}, {"the topic", HeaderTopic, m.Topic}, {"the key", HeaderKey, m.Key},
	} {
		if own.value == "" {
			continue
		}
		if err := checkValue(own.what, own.value); err != nil {
			return nil, err
		}
		set(own.name, own.value)
	}
	set(HeaderCreatedAt, m.CreatedAt.UTC().Format(time.RFC3339Nano))
	if m.Attempt > 1 {
		set(HeaderAttempt, strconv.Itoa(m.Attempt))
	}
	if _, ok := h[contentType]; !ok {
		set(contentType, cmp.Or(s.cfg.ContentType, mediaType(m.Payload)))
	}
	if s.signer != nil {
		timestamp := strconv.FormatInt(now.Unix(), 10)
		set(HeaderWebhookID, m.ID)
		set(HeaderTimestamp, timestamp)
		set(HeaderSignature, s.signer.sign(m.ID, timestamp, m.Payload))
	}
	for name, value := range s.static {
		h[name] = value
	}
	return h, nil
}

// mediaType recognizes JSON objects and arrays. Endpoints refuse JSON that is
// application/octet-stream. A lone number or word might as well be text, and gets no type by chance.
func mediaType(payload []byte) string {
	if start := bytes.TrimLeft(payload, " \t\r\n"); len(start) > 0 && (start[0] == '{' || start[0] == '[') && json.Valid(payload) {
		return "application/json"
	}
	return "application/octet-stream"
}

// checkName accepts a token of RFC 9110.
func checkName(name string) error {
	for i := 0; i < len(name); i++ {
		if c := name[i]; c <= ' ' || c > '~' || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return unsendable("name headers with ASCII letters, digits and dashes", "header %q cannot travel over HTTP", name)
		}
	}
	if name == "" {
		return unsendable("name every header", "a header has no name")
	}
	return nil
}

// checkValue accepts one line that arrives unchanged. UTF-8 beyond ASCII does; spaces at either
// end are removed in transit.
func checkValue(what, value string) error {
	for i := 0; i < len(value); i++ {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return unsendable("HTTP headers hold one line of text; encode the value", "%s has the control character %#04x in it", what, c)
		}
	}
	if value != "" && (space(value[0]) || space(value[len(value)-1])) {
		return unsendable("HTTP takes them off; encode the value", "%s begins or ends with a space", what)
	}
	return nil
}

func space(c byte) bool { return c == ' ' || c == '\t' }

func unsendable(hint, format string, args ...any) error {
	return penstock.Permanent(penstock.WithHint(fmt.Errorf(format, args...), "%s", hint))
}
