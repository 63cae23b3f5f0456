package webhook

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/redact"
)

// StatusError is an answer that does not deliver the message.
type StatusError struct {
	Status int
	// RedirectTo is the host that a 3xx answer redirects to, if it names one.
	RedirectTo string
	// Text is the beginning of the answer's body: at most 200 bytes in one line,
	// without secrets. Empty if the body is not text.
	Text string
}

func (e *StatusError) Error() string {
	s := fmt.Sprintf("the endpoint answered %d %s", e.Status, http.StatusText(e.Status))
	if e.Status/100 == 3 {
		s += ", a redirect"
		if e.RedirectTo != "" {
			s += " to " + e.RedirectTo
		}
		s += ", which is not followed"
	}
	if e.Text != "" {
		s += ": " + strconv.Quote(e.Text)
	}
	return s
}

// verdict classifies an answer for the relay.
func (s *Sink) verdict(target *url.URL, res *http.Response, body []byte) error {
	if delivered(res.StatusCode) {
		return nil
	}
	answer := &StatusError{Status: res.StatusCode, Text: s.excerpt(res.Header.Get("Content-Type"), body)}
	var err error = answer
	switch status := res.StatusCode; {
	case status == http.StatusProxyAuthRequired && s.cfg.Proxy != "":
		return penstock.Unavailable(penstock.WithHint(err, "check user and password of the proxy"))
	case s.retry[status] || status < 300 || status >= 500:
		now := time.Now()
		after, ok := retryAfter(res.Header.Get("Retry-After"), now)
		after = min(after, s.cfg.MaxRetryAfter)
		switch {
		case ok && status == http.StatusTooManyRequests:
			if s.endpoint.fixed == nil { // else its caller holds all of it
				s.holds.add(target, now.Add(after), now)
			}
			return s.held(err, now.Add(after), now)
		case ok:
			return penstock.RetryAfter(err, after)
		}
		return err
	case status < 400:
		if to, err := url.Parse(res.Header.Get("Location")); err == nil {
			answer.RedirectTo = oneLine(to.Host, maxExcerpt)
		}
		err = penstock.WithHint(err, "write the endpoint's own address into the url")
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		err = penstock.WithHint(err, "check the Authorization header and the secrets of the sink")
	case status == http.StatusNotFound || status == http.StatusGone || status == http.StatusMethodNotAllowed:
		err = penstock.WithHint(err, "check url and method of the sink")
	case status == http.StatusRequestEntityTooLarge:
		err = penstock.WithHint(err, "raise the endpoint's limit, or set claim_check, which sends a reference")
	}
	return penstock.Permanent(err)
}

// retryAfter reads a Retry-After header: seconds or a date (RFC 9110, 10.2.3). It ignores a time
// that has passed.
func retryAfter(value string, now time.Time) (time.Duration, bool) {
	value = strings.TrimSpace(value)
	if value == "" {
		return 0, false
	}
	if digits := strings.Trim(value, "0123456789"); digits == "" {
		seconds, err := strconv.ParseInt(value, 10, 32)
		if err != nil {
			seconds = 1 << 31 // more digits than an endpoint means
		}
		return time.Duration(seconds) * time.Second, seconds > 0
	}
	at, err := http.ParseTime(value)
	if err != nil || !at.After(now) {
		return 0, false
	}
	return at.Sub(now), true
}

// How much of a body is kept: enough to find secrets in front of the excerpt.
const (
	keptBody   = 4 << 10
	maxExcerpt = 200
)

var buffers = sync.Pool{New: func() any { return new([keptBody]byte) }}

// readBody reads an answer's body to its end, at most maxAnswerBody, and returns
// the beginning if the answer is not 2xx. A longer body is cut off with its
// connection. The error is the reason why the body ended early.
func readBody(res *http.Response) (text []byte, err error) {
	defer func() { _ = res.Body.Close() }()
	if res.Body == http.NoBody || res.StatusCode == http.StatusSwitchingProtocols {
		return nil, nil // after 101 the connection has no HTTP, and no timeout applies to it
	}
	buf := buffers.Get().(*[keptBody]byte)
	defer buffers.Put(buf)
	for total, kept := 0, 0; total < maxAnswerBody; {
		n, err := res.Body.Read(buf[kept:])
		total += n
		if !delivered(res.StatusCode) {
			if kept += n; kept == keptBody || err != nil {
				if text == nil {
					text = append(make([]byte, 0, kept), buf[:kept]...)
				}
				kept = 0
			}
		}
		if err == io.EOF {
			return text, nil
		}
		if err != nil {
			return text, err
		}
	}
	return text, nil
}

// excerpt is the beginning of a text in a form that a log can have.
func (s *Sink) excerpt(mediaType string, body []byte) string {
	if !readable(mediaType) {
		return ""
	}
	text := string(body)
	for _, secret := range s.hidden {
		text = strings.ReplaceAll(text, secret, redact.Masked)
	}
	return oneLine(text, maxExcerpt)
}

func readable(mediaType string) bool {
	mediaType, _, _ = strings.Cut(strings.ToLower(mediaType), ";")
	mediaType = strings.TrimSpace(mediaType)
	return mediaType == "" || strings.HasPrefix(mediaType, "text/") || strings.HasSuffix(mediaType, "json") || strings.HasSuffix(mediaType, "xml")
}

// oneLine turns unprintable characters into spaces, joins spaces, and cuts the text to limit
// bytes.
func oneLine(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + "…"
	}
	return text
}
