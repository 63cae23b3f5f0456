package redis

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock/penstock/internal/settings"
	"github.com/penstock/penstock/internal/sinkurl"
	"github.com/penstock/penstock/internal/tlsconfig"
)

// Config sets where the messages go and how. The zero value of a field means
// its default; see SetDefaults.
type Config struct {
	// URL of the server that takes writes: redis://user:password@host:6379/0, or
	// rediss:// for TLS. The path is the number of the database.
	URL string `yaml:"url" url:"-" default:"redis://127.0.0.1:6379/0"`
	// User and Password replace those of the URL, for secrets that are kept
	// separately.
	User     string `yaml:"user"`
	Password string `yaml:"password"`

	// Stream is a template of the stream's name: {topic}, {key}, {header.NAME}.
	Stream string `yaml:"stream" default:"{topic}" template:"orders.{topic}"`
	// ExistingOnly adds to streams that exist and creates none.
	ExistingOnly bool `yaml:"existing_only"`
	// MaxLength is about how many entries a stream keeps. The server removes older
	// entries, also those that were not read. 0 keeps all.
	MaxLength int `yaml:"max_length"`

	// Replicas is how many replicas must have a message before it counts as confirmed.
	Replicas int `yaml:"replicas"`
	// Fsync waits until the server has flushed the message to its disk, and with
	// Replicas until they have too. It needs Redis 7.2 or later, or Valkey, with appendonly yes.
	Fsync bool `yaml:"fsync"`
	// WaitTimeout limits the wait for replicas and disks. Redis would wait without end for less than the least.
	WaitTimeout time.Duration `yaml:"wait_timeout" default:"2s" min:"1ms"`

	// ConnectTimeout limits one attempt to connect.
	ConnectTimeout time.Duration `yaml:"connect_timeout" default:"5s"`
	// Timeout limits the wait for an answer.
	Timeout time.Duration `yaml:"timeout" default:"10s"`

	TLS TLSConfig `yaml:"tls"`
}

// TLSConfig is used with rediss:// URLs.
type TLSConfig = tlsconfig.Client

// SetDefaults sets the fields that are zero.
func (c *Config) SetDefaults() { settings.Defaults(c) }

// Validate returns a *penstock.FieldError for the first field that cannot be used.
// Call SetDefaults before. It opens no file.
func (c *Config) Validate() error {
	o, err := c.server()
	if err := cmp.Or(err, settings.Check(c)); err != nil {
		return err
	}
	if c.WaitTimeout >= c.Timeout {
		return field("wait_timeout", fmt.Sprintf("is %v", c.WaitTimeout), "choose less than timeout (%v), because the answer comes after it", c.Timeout)
	}
	return c.TLS.Validate("rediss://", o.TLSConfig != nil)
}

// server is the URL in parts, with the user that applies. Its error does not quote the URL, which may
// hold a password.
func (c *Config) server() (*redis.Options, error) {
	server, _, _ := strings.Cut(c.URL, "?")
	o, err := redis.ParseURL(server)
	if err != nil || o.Network != "tcp" || o.DB < 0 {
		return nil, field("url", "is not a Redis URL", "write redis://user:password@host:6379/0, or rediss:// for TLS; in user and password write special characters as %%XX")
	}
	if c.User != "" || c.Password != "" {
		o.Username, o.Password = c.User, c.Password
	}
	return o, sinkurl.WithoutOptions(c.URL)
}

// options are those of server, with the certificates of TLS.
func (c *Config) options() (*redis.Options, error) {
	o, err := c.server()
	if err == nil && o.TLSConfig != nil {
		o.TLSConfig, err = c.TLS.Load()
	}
	return o, err
}

// ParseURL reads a Config from one line, for a command line:
//
//	redis://user:password@host:6379/0?stream=orders.{topic}&replicas=1
//	rediss://host?tls.ca_file=ca.pem
//
// Query parameters are the fields of the YAML form, those of tls with "tls." in
// front. The result has its defaults set and is valid. Errors do not quote the
// URL, which may hold a password.
func ParseURL(u string) (Config, error) {
	return sinkurl.ReadServer(u, "a Redis URL", func(server string) Config { return Config{URL: server} })
}

var field = settings.Field
