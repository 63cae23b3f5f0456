package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/penstock/penstock"
)

// deliver sends one message as soon as there is a slot for it, and returns the result.
func (s *Sink) deliver(ctx context.Context, m *penstock.Message) error {
	if ctx.Err() == nil {
		select {
		case s.slots <- struct{}{}:
			defer func() { <-s.slots }()
			return s.exchange(ctx, m)
		case <-ctx.Done():
		}
	}
	return interrupted(ctx)
}

// exchange makes the request and reads the answer.
func (s *Sink) exchange(ctx context.Context, m *penstock.Message) error {
	began := time.Now()
	target, err := s.endpoint.url(m)
	if err != nil {
		return err
	}
	if until := s.holds.of(target, began); !until.IsZero() {
		return s.held(&StatusError{Status: http.StatusTooManyRequests}, until, began)
	}
	header, err := s.headers(m, began)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	body := lend(m.Payload, s.transport.CloseIdleConnections)
	defer body.release()
	req := s.request.WithContext(limited)
	req.URL, req.Header = target, header
	req.Body, req.GetBody, req.ContentLength = body.open(), body.reopen, int64(len(m.Payload))

	res, err := s.transport.RoundTrip(req)
	if err != nil {
		return s.unanswered(ctx, m, began, err)
	}
	text, err := readBody(res)
	if err != nil && delivered(res.StatusCode) {
		// Many servers send a status before their handler has finished.
		return s.unanswered(ctx, m, began, fmt.Errorf("the answer %d broke off: %w", res.StatusCode, err))
	}
	s.silence.broken(m.ID, began)
	return s.verdict(target, res, text)
}

// unanswered translates a missing or incomplete answer.
func (s *Sink) unanswered(ctx context.Context, m *penstock.Message, began time.Time, err error) error {
	if ctx.Err() != nil {
		return interrupted(ctx)
	}
	if err.Error() == headerTooLarge {
		return unsendable("publish fewer or shorter headers, or raise the limit of the endpoint", "the message's headers are larger than the endpoint takes")
	}
	host := s.endpoint.base.Host
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no complete answer within %v: %w", s.cfg.Timeout, err)
	}
	if hint := cannotConnect(err); hint != "" {
		return penstock.Unavailable(penstock.WithHint(fmt.Errorf("cannot connect to %s: %w", host, err), "%s", hint))
	}
	err = penstock.WithHint(fmt.Errorf("no answer from %s: %w", host, err), "look into the endpoint's log for the message's Idempotency-Key")
	if s.silence.about(m.ID, began) {
		return err
	}
	return penstock.Unavailable(err)
}

// headerTooLarge is the library's error if a request's headers exceed the limit that an HTTP/2
// server announced. It has no other form.
const headerTooLarge = "http2: request header list larger than peer's advertised limit"

// cannotConnect recognizes failures before the first byte of a request, and returns the next step, or
// returns "". All requests go to the same host, so these are never about a message.
func cannotConnect(err error) (hint string) {
	var address *AddressError
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	var notTLS tls.RecordHeaderError
	var op *net.OpError
	switch {
	case errors.As(err, &address):
		return allowHint
	case errors.As(err, &dns):
		return "check the host in the url and the resolver of this machine"
	case errors.As(err, &certificate):
		return "set tls.ca_file to the authority that signed the endpoint's certificate, or tls.server_name to a name in it"
	case errors.As(err, &notTLS):
		return "the endpoint does not speak TLS on this port: check the url"
	case !errors.As(err, &op):
		return ""
	}
	switch op.Op {
	case "dial", "socks connect":
		return "check that the endpoint runs and the url is right"
	case "proxyconnect":
		return "check that the proxy runs and lets this user through"
	case "local error", "remote error": // TLS alerts
		return "check tls.cert_file, and that the endpoint speaks TLS 1.2 or later"
	}
	return ""
}

// interrupted is the error of a message without an answer when ctx ended.
func interrupted(ctx context.Context) error {
	return penstock.Unavailable(fmt.Errorf("webhook sink: no answer yet: %w", context.Cause(ctx)))
}

func delivered(status int) bool { return status >= 200 && status < 300 }
