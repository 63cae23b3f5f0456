package nats

import (
	"errors"
	"fmt"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock"
)

// ParseURL reads a Config from one line, for a command line:
//
//	nats://user:password@host:4222,host2:4222?subject=orders.{topic}&tls.ca_file=ca.pem
//	embedded
//	embedded:DIR?listen=127.0.0.1:4222
//
// Query parameters are the fields of the YAML form, those of a group with the
// group's name and a dot in front (embedded's own may leave that out after
// embedded:). Lists are separated by commas. The result has its defaults set
// and is valid. Errors do not quote the URL, which may hold a password.
func ParseURL(u string) (Config, error) {
	var c Config
	target, query, _ := strings.Cut(u, "?")
	rest, isEmbedded := strings.CutPrefix(target, "embedded")
	switch {
	case isEmbedded && (rest == "" || rest[0] == ':'):
		c.Embedded = &EmbeddedConfig{Dir: strings.TrimPrefix(rest, ":")}
	default:
		c.URL = strings.TrimSuffix(target, "/")
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return Config{}, field("url", "has a query that cannot be read", "separate parameters by & and write special characters as %%XX")
	}
	for name, v := range values {
		if len(v) > 1 {
			return Config{}, field(name, "is given twice", "give it once; lists are separated by commas")
		}
		if err := c.set(name, v[0]); err != nil {
			return Config{}, err
		}
	}
	c.SetDefaults()
	return c, c.Validate()
}

func (c *Config) set(name, value string) error {
	set, ok := parameters[name]
	if !ok && c.Embedded != nil {
		set, ok = parameters["embedded."+name]
	}
	if !ok {
		names := make([]string, 0, len(parameters))
		for n := range parameters {
			names = append(names, n)
		}
		sort.Strings(names)
		return field(name, "is not a parameter of a NATS URL", "use one of %s", strings.Join(names, ", "))
	}
	if err := set(c, value); err != nil {
		return field(name, fmt.Sprintf("is %q", value), "%s", err)
	}
	return nil
}

// parameters is what ParseURL accepts, by the names of the YAML form.
var parameters = map[string]func(*Config, string) error{
	"subject":          text(func(c *Config) *string { return &c.Subject }),
	"credentials_file": text(func(c *Config) *string { return &c.CredentialsFile }),
	"nkey_file":        text(func(c *Config) *string { return &c.NKeyFile }),
	"user":             text(func(c *Config) *string { return &c.User }),
	"password":         text(func(c *Config) *string { return &c.Password }),
	"token":            text(func(c *Config) *string { return &c.Token }),
	"inbox_prefix":     text(func(c *Config) *string { return &c.InboxPrefix }),
	"tls.ca_file":      text(func(c *Config) *string { return &c.TLS.CAFile }),
	"tls.cert_file":    text(func(c *Config) *string { return &c.TLS.CertFile }),
	"tls.key_file":     text(func(c *Config) *string { return &c.TLS.KeyFile }),
	"tls.server_name":  text(func(c *Config) *string { return &c.TLS.ServerName }),
	"max_pending":      number(func(c *Config) *int { return &c.MaxPending }),
	"ack_wait":         duration(func(c *Config) *time.Duration { return &c.AckWait }),
	"connect_timeout":  duration(func(c *Config) *time.Duration { return &c.ConnectTimeout }),

	"create_stream.name":             text(func(c *Config) *string { return &c.stream().Name }),
	"create_stream.storage":          text(func(c *Config) *string { return &c.stream().Storage }),
	"create_stream.replicas":         number(func(c *Config) *int { return &c.stream().Replicas }),
	"create_stream.duplicate_window": duration(func(c *Config) *time.Duration { return &c.stream().DuplicateWindow }),
	"create_stream.subjects": func(c *Config, v string) error {
		c.stream().Subjects = strings.Split(v, ",")
		return nil
	},

	"embedded.listen": onEmbedded(func(e *EmbeddedConfig, v string) error {
		e.Listen = v
		return nil
	}),
	"embedded.sync_always": onEmbedded(func(e *EmbeddedConfig, v string) (err error) {
		if e.SyncAlways, err = strconv.ParseBool(v); err != nil {
			return errors.New("write true or false")
		}
		return nil
	}),
}

// stream is the stream to create: naming any of its fields asks for it.
func (c *Config) stream() *StreamConfig {
	if c.CreateStream == nil {
		c.CreateStream = &StreamConfig{}
	}
	return c.CreateStream
}

func text(target func(*Config) *string) func(*Config, string) error {
	return func(c *Config, v string) error {
		*target(c) = v
		return nil
	}
}

func number(target func(*Config) *int) func(*Config, string) error {
	return func(c *Config, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil {
			return errors.New("write a whole number")
		}
		*target(c) = n
		return nil
	}
}

func duration(target func(*Config) *time.Duration) func(*Config, string) error {
	return func(c *Config, v string) error {
		d, err := time.ParseDuration(v)
		if err != nil {
			return errors.New("write a duration such as 500ms, 5s or 2m")
		}
		*target(c) = d
		return nil
	}
}

func onEmbedded(set func(*EmbeddedConfig, string) error) func(*Config, string) error {
	return func(c *Config, v string) error {
		if c.Embedded == nil {
			return errors.New("leave it out: it is for embedded:DIR only")
		}
		return set(c.Embedded, v)
	}
}

// prefixed puts the group's name before the field of a FieldError.
func prefixed(group string, err error) error {
	var f *penstock.FieldError
	if errors.As(err, &f) {
		return &penstock.FieldError{Field: group + f.Field, Problem: f.Problem, Hint: f.Hint}
	}
	return err
}
