package nats

import (
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/sinkurl"
	"github.com/penstock/penstock/internal/tlsconfig"
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
	values, err := sinkurl.Parse(query)
	if err != nil {
		return Config{}, err
	}
	if err := parameters.Set(&c, c.fullNames(values), "a NATS URL"); err != nil {
		return Config{}, err
	}
	c.SetDefaults()
	return c, c.Validate()
}

// fullNames puts embedded's own fields into their group.
func (c *Config) fullNames(values url.Values) url.Values {
	if c.Embedded == nil {
		return values
	}
	full := url.Values{}
	for name, v := range values {
		if _, ok := parameters["embedded."+name]; ok {
			name = "embedded." + name
		}
		full[name] = append(full[name], v...)
	}
	return full
}

// parameters is what ParseURL accepts, by the names of the YAML form.
var parameters = sinkurl.Parameters[Config]{
	"subject":          sinkurl.Text(func(c *Config) *string { return &c.Subject }),
	"credentials_file": sinkurl.Text(func(c *Config) *string { return &c.CredentialsFile }),
	"nkey_file":        sinkurl.Text(func(c *Config) *string { return &c.NKeyFile }),
	"user":             sinkurl.Text(func(c *Config) *string { return &c.User }),
	"password":         sinkurl.Text(func(c *Config) *string { return &c.Password }),
	"token":            sinkurl.Text(func(c *Config) *string { return &c.Token }),
	"inbox_prefix":     sinkurl.Text(func(c *Config) *string { return &c.InboxPrefix }),
	"max_pending":      sinkurl.Number(func(c *Config) *int { return &c.MaxPending }),
	"ack_wait":         sinkurl.Duration(func(c *Config) *time.Duration { return &c.AckWait }),
	"connect_timeout":  sinkurl.Duration(func(c *Config) *time.Duration { return &c.ConnectTimeout }),

	"create_stream.name":             sinkurl.Text(func(c *Config) *string { return &c.stream().Name }),
	"create_stream.storage":          sinkurl.Text(func(c *Config) *string { return &c.stream().Storage }),
	"create_stream.replicas":         sinkurl.Number(func(c *Config) *int { return &c.stream().Replicas }),
	"create_stream.duplicate_window": sinkurl.Duration(func(c *Config) *time.Duration { return &c.stream().DuplicateWindow }),
	"create_stream.subjects":         sinkurl.Texts(func(c *Config) *[]string { return &c.stream().Subjects }),

	"embedded.listen":      onEmbedded(sinkurl.Text(func(e *EmbeddedConfig) *string { return &e.Listen })),
	"embedded.sync_always": onEmbedded(sinkurl.Bool(func(e *EmbeddedConfig) *bool { return &e.SyncAlways })),
}.WithTLS(func(c *Config) *tlsconfig.Client { return &c.TLS })

// stream is the stream to create: naming any of its fields asks for it.
func (c *Config) stream() *StreamConfig {
	if c.CreateStream == nil {
		c.CreateStream = &StreamConfig{}
	}
	return c.CreateStream
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
	if f, ok := errors.AsType[*penstock.FieldError](err); ok {
		return &penstock.FieldError{Field: group + f.Field, Problem: f.Problem, Hint: f.Hint}
	}
	return err
}
