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
	var all []error
	known, tokens := map[string]bool{}, map[string]bool{}
	for i, o := range s.Outboxes {
		field, token := fmt.Sprintf("outboxes[%d].", i), o.Token.Reveal()
		named := penstock.ValidateOutboxName(o.Name) == nil
		all = append(all,
			wrong(!named, field+"name", fmt.Sprintf("is %q", o.Name), "name an outbox"),
			wrong(named && known[o.Name], field+"name", "is given twice", "keep one"),
			wrong(token == "" && len(credentials) > 0, field+"token", "is missing, and other outboxes have one", "give each outbox one"),
			wrong(token != "" && len(token) < minToken, field+"token", "is shorter than 32 characters", "make one with: openssl rand -hex 32"),
			wrong(len(token) >= minToken && tokens[token], field+"token", "is that of another outbox", "give each outbox its own"))
		known[o.Name], tokens[token] = true, true
	}
	all = append(all, wrong(s.MaxBodyBytes < 0 || s.MaxWait < 0, "max_body_bytes", "or max_wait is negative", "leave them out for 16 MiB and 2s"))
	o := web.Options{Listen: s.Listen, Credentials: credentials}
	return errors.Join(append(all, o.Check())...)
}

// wrong is an error about a field if something is so.
func wrong(is bool, field, problem, hint string) error {
	if !is {
		return nil
	}
	return &penstock.FieldError{Field: field, Problem: problem, Hint: hint}
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
	return cmp.Or(wrong(m.Groups < 0 || m.Groups > maxGroups, "groups", fmt.Sprintf("is %d", m.Groups), fmt.Sprintf("use 0 to %d", maxGroups)),
		listenable(m.Listen))
}

func listenable(address string) error {
	_, port, err := net.SplitHostPort(address)
	return wrong(address != "" && (err != nil || port == ""), "listen", fmt.Sprintf("is %q", address), "write an address and a port, as in 127.0.0.1:9464")
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
	if err := wrong(c.BasePath != "" && !strings.HasPrefix(c.BasePath, "/"), "base_path", "has no slash first", "write it as in /penstock"); err != nil {
		return err
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
