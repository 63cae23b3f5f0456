package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/internal/web"
	"github.com/penstock/penstock/sink/webhook"
)

// Serve sets where messages are accepted over HTTP, and from which clients; see
// docs/guides/ingest.md.
type Serve struct {
	// Listen is an address such as 127.0.0.1:8080. Without one, no messages are accepted.
	Listen       string        `yaml:"listen"`
	MaxBodyBytes int           `yaml:"max_body_bytes"`
	MaxWait      time.Duration `yaml:"max_wait"`
	// Outboxes that accept messages; none means every outbox, without tokens.
	Outboxes []ServeOutbox `yaml:"outboxes"`
}

// ServeOutbox is one of them.
type ServeOutbox struct {
	Name  string         `yaml:"name"`
	Token webhook.Secret `yaml:"token"`
	Inbox string         `yaml:"inbox"`
}

// credentials are those that the listener requires.
func (s *Serve) credentials() (all []web.Credential) {
	for _, o := range s.Outboxes {
		if o.Token != "" {
			all = append(all, web.Credential{Secret: o.Token.Reveal(), Name: o.Name})
		}
	}
	return all
}

// minToken is the shortest token: 128 bits in hexadecimal.
const minToken = 32

// Validate returns the first setting that cannot be served.
func (s *Serve) Validate() error {
	if s.Listen == "" {
		return nil
	}
	credentials := s.credentials()
	var wrong []error
	known, tokens := map[string]bool{}, map[string]bool{}
	for i, o := range s.Outboxes {
		bad := func(field, problem, hint string) {
			wrong = append(wrong, &penstock.FieldError{Field: fmt.Sprintf("outboxes[%d].%s", i, field), Problem: problem, Hint: hint})
		}
		if err := penstock.ValidateOutboxName(o.Name); err != nil {
			bad("name", fmt.Sprintf("is %q", o.Name), "name an outbox")
		} else if known[o.Name] {
			bad("name", "is given twice", "keep one")
		}
		switch token := o.Token.Reveal(); {
		case token == "" && len(credentials) > 0:
			bad("token", "is missing, and other outboxes have one", "give each outbox one")
		case token == "":
		case len(token) < minToken:
			bad("token", "is shorter than 32 characters", "make one with: openssl rand -hex 32")
		case tokens[token]:
			bad("token", "is that of another outbox", "give each outbox its own")
		}
		known[o.Name], tokens[o.Token.Reveal()] = true, true
	}
	if s.MaxBodyBytes < 0 || s.MaxWait < 0 {
		wrong = append(wrong, &penstock.FieldError{Field: "max_body_bytes", Problem: "or max_wait is negative", Hint: "leave them out for 16 MiB and 2s"})
	}
	o := web.Options{Listen: s.Listen, Credentials: credentials}
	return errors.Join(append(wrong, o.Check())...)
}

// SetDefaults sets the fields that are zero.
func (s *Serve) SetDefaults() {
	s.MaxBodyBytes, s.MaxWait = cmp.Or(s.MaxBodyBytes, 16<<20), cmp.Or(s.MaxWait, 2*time.Second)
}

// Metrics sets where a relay serves its metrics and which ones; see metrics.Options.
type Metrics struct {
	// Listen is an address such as 127.0.0.1:9464. Without one, metrics are not served.
	Listen       string        `yaml:"listen"`
	StatusEvery  time.Duration `yaml:"status_every"`
	StalledAfter time.Duration `yaml:"stalled_after"`
	Groups       int           `yaml:"groups"`
}

// SetDefaults sets the fields that are zero.
func (m *Metrics) SetDefaults() {
	m.StatusEvery = cmp.Or(m.StatusEvery, 10*time.Second)
	m.StalledAfter = cmp.Or(m.StalledAfter, 2*time.Minute)
}

// maxGroups bounds the series of a queue.
const maxGroups = 1000

// Validate returns the first setting that cannot be served.
func (m *Metrics) Validate() error {
	if m.Groups < 0 || m.Groups > maxGroups {
		return &penstock.FieldError{Field: "groups", Problem: fmt.Sprintf("is %d", m.Groups), Hint: fmt.Sprintf("use 0 to %d", maxGroups)}
	}
	return listenable(m.Listen)
}

func listenable(address string) error {
	if _, port, err := net.SplitHostPort(address); address != "" && (err != nil || port == "") {
		return &penstock.FieldError{Field: "listen", Problem: fmt.Sprintf("is %q", address), Hint: "write an address and a port, as in 127.0.0.1:9464"}
	}
	return nil
}

// Console sets where and how to serve the console; see docs/operations/console.md. Its tokens are in the environment.
type Console struct {
	// Listen is an address such as 127.0.0.1:8484. Without one, only penstock console serves it.
	Listen string `yaml:"listen"`
	// BasePath is its path behind a proxy, as in /penstock.
	BasePath string   `yaml:"base_path"`
	Title    string   `yaml:"title"`
	Redact   []string `yaml:"redact"`
	// StatementTimeout is the time after which PostgreSQL ends a statement of the console.
	StatementTimeout Age `yaml:"statement_timeout"`
	// Databases are shown by penstock console instead of database_url.
	Databases []URL `yaml:"databases"`
}

// SetDefaults sets the fields that are zero.
func (c *Console) SetDefaults() {
	c.StatementTimeout = cmp.Or(c.StatementTimeout, Age(5*time.Second))
}

// Validate returns the first setting that cannot be served.
func (c *Console) Validate() error {
	if c.BasePath != "" && !strings.HasPrefix(c.BasePath, "/") {
		return &penstock.FieldError{Field: "base_path", Problem: "has no slash first", Hint: "write it as in /penstock"}
	}
	for i, url := range c.Databases {
		err := drivers.CheckStore(url.Reveal(), "")
		if field, ok := errors.AsType[*penstock.FieldError](err); ok {
			field.Field = fmt.Sprintf("databases[%d]", i)
		}
		if err != nil {
			return err
		}
	}
	return listenable(c.Listen)
}
