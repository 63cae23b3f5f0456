package config

import (
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/web"
	"github.com/penstock/penstock/sink/webhook"
)

// Serve says where messages are accepted over HTTP, and from which clients; see
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
		at := func(field string) string { return fmt.Sprintf("outboxes[%d].%s", i, field) }
		if err := penstock.ValidateOutboxName(o.Name); err != nil {
			wrong = append(wrong, &penstock.FieldError{Field: at("name"), Problem: fmt.Sprintf("is %q", o.Name), Hint: "name an outbox"})
		} else if known[o.Name] {
			wrong = append(wrong, &penstock.FieldError{Field: at("name"), Problem: "is given twice", Hint: "keep one"})
		}
		switch token := o.Token.Reveal(); {
		case token == "" && len(credentials) > 0:
			wrong = append(wrong, &penstock.FieldError{Field: at("token"), Problem: "is missing, and other outboxes have one", Hint: "give each outbox one"})
		case token == "":
		case len(token) < minToken:
			wrong = append(wrong, &penstock.FieldError{Field: at("token"), Problem: "is shorter than 32 characters", Hint: "make one with: openssl rand -hex 32"})
		case tokens[token]:
			wrong = append(wrong, &penstock.FieldError{Field: at("token"), Problem: "is that of another outbox", Hint: "give each outbox its own"})
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
	if s.MaxBodyBytes == 0 {
		s.MaxBodyBytes = 16 << 20
	}
	if s.MaxWait == 0 {
		s.MaxWait = 2 * time.Second
	}
}
