package webhook

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/gate"
)

// Sink sends messages to an HTTP endpoint. It is safe for concurrent use.
//
// It keeps the order of a key within one Send but is not a driver.InOrderSink. If it
// were, the relay would hand it many messages of one key. A Send of a few keys has
// few requests under way. See DESIGN.md.
type Sink struct {
	cfg       Config
	endpoint  *endpoint
	signer    *signer // nil without secrets
	static    http.Header
	hidden    []string // must not be quoted from an answer
	retry     map[int]bool
	transport *http.Transport
	request   *http.Request // shared by all requests
	slots     chan struct{} // one per running request
	silence   *silence
	holds     holds
	gate      gate.Gate
}

var _ driver.Sink = (*Sink)(nil)

// Open checks the configuration and reads the files that it names. The endpoint need
// not be up.
func Open(cfg Config, log *slog.Logger) (*Sink, error) {
	cfg.SetDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("webhook sink: %w", err)
	}
	s := &Sink{
		cfg:     cfg,
		static:  http.Header{"User-Agent": {userAgent}},
		retry:   map[int]bool{http.StatusRequestTimeout: true, http.StatusTooEarly: true, http.StatusTooManyRequests: true},
		slots:   make(chan struct{}, cfg.Concurrency),
		silence: newSilence(min(cfg.ResponseTimeout, cfg.Timeout) / 2),
	}
	var err error
	if s.endpoint, err = parseEndpoint(cfg.URL); err != nil {
		return nil, fmt.Errorf("webhook sink: %w", err)
	}
	if s.transport, err = newTransport(&s.cfg); err != nil {
		return nil, fmt.Errorf("webhook sink: %w", err)
	}
	for _, status := range cfg.RetryStatuses {
		s.retry[status] = true
	}
	for name, value := range cfg.Headers {
		s.static[http.CanonicalHeaderKey(name)] = []string{value.Reveal()}
		s.hide(value.Reveal())
	}
	if basic := s.endpoint.basic; basic != "" {
		s.static["Authorization"] = []string{basic}
		s.hide(basic)
	}
	for _, token := range s.endpoint.tokens() {
		s.hide(token)
	}
	var keys [][]byte
	for _, secret := range cfg.Secrets {
		key, err := signingKey(secret)
		if err != nil {
			return nil, fmt.Errorf("webhook sink: %w", err)
		}
		keys = append(keys, key)
		s.hide(strings.TrimPrefix(secret.Reveal(), secretPrefix))
	}
	if len(keys) > 0 {
		s.signer = newSigner(keys)
	}
	s.request = &http.Request{Method: cfg.Method, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Host: s.endpoint.base.Host}
	log = cfg.TLS.Warned(log)
	if s.endpoint.base.Scheme == "http" {
		log.Warn("messages and credentials go to the webhook's endpoint unencrypted; write https:// unless the network is trusted", "host", s.endpoint.base.Host)
	}
	return s, nil
}

// hide remembers a secret, and the part after its scheme ("Bearer …"), because an endpoint might
// quote it in an error page.
func (s *Sink) hide(secret string) {
	_, credentials, _ := strings.Cut(secret, " ")
	for _, part := range []string{secret, credentials} {
		if len(part) >= 6 {
			s.hidden = append(s.hidden, part)
		}
	}
}

// Close waits for running Sends until ctx ends. Those that run longer end with an
// Unavailable error.
func (s *Sink) Close(ctx context.Context) error {
	return s.gate.CloseSink(ctx, "webhook", s.transport.CloseIdleConnections)
}

var errClosed = penstock.Unavailable(fmt.Errorf("webhook sink: %w", penstock.ErrClosed))
