package amqp1

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/penstock/penstock/internal/sinkurl"
	"github.com/penstock/penstock/internal/template"
	"github.com/penstock/penstock/internal/tlsconfig"
)

// Config sets where the messages go and how. The zero value of a field means
// its default; see SetDefaults.
type Config struct {
	// URL of the broker: amqp1://user:password@host:5672, or amqps1:// for TLS, port 5671.
	URL string `yaml:"url" url:"-"`
	// User and Password replace those of the URL, for secrets that are kept
	// separately.
	User     string `yaml:"user"`
	Password string `yaml:"password"`

	// Address is a template of the address: {topic}, {key}, {header.NAME}. In an address that begins with
	// a slash, as RabbitMQ's do, values are percent-encoded.
	Address string `yaml:"address"`
	// Capability that the address must have: queue, topic, or none. Artemis makes an address of that kind.
	Capability string `yaml:"capability"`

	// ConnectTimeout limits one attempt to connect and log in.
	ConnectTimeout time.Duration `yaml:"connect_timeout"`
	// Timeout limits a Send: until the broker has answered for each message.
	Timeout time.Duration `yaml:"timeout"`

	TLS TLSConfig `yaml:"tls"`
}

// TLSConfig is used with amqps1:// URLs.
type TLSConfig = tlsconfig.Client

// Defaults.
const (
	DefaultURL            = "amqp1://127.0.0.1:5672"
	DefaultAddress        = "{topic}"
	DefaultCapability     = "queue"
	DefaultConnectTimeout = 5 * time.Second
	DefaultTimeout        = 30 * time.Second
)

// SetDefaults sets the fields that are zero.
func (c *Config) SetDefaults() {
	c.URL = cmp.Or(c.URL, DefaultURL)
	c.Address = cmp.Or(c.Address, DefaultAddress)
	c.Capability = cmp.Or(c.Capability, DefaultCapability)
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, DefaultConnectTimeout)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
}

// Validate returns a *penstock.FieldError for the first field that cannot be used.
// Call SetDefaults before. It opens no file.
func (c *Config) Validate() error {
	s, err := c.server()
	if err != nil {
		return err
	}
	if _, err := template.Parse(c.Address); err != nil {
		return field("address", fmt.Sprintf("cannot be used (%v)", err), "write a template such as /exchanges/orders/{topic}")
	}
	if err := sinkurl.NotNegative(c); err != nil {
		return err
	}
	switch {
	case c.Password != "" && c.User == "":
		return field("password", "is set without user", "set user too")
	case c.Capability != "queue" && c.Capability != "topic" && c.Capability != "none":
		return field("capability", fmt.Sprintf("is %q", c.Capability), "choose queue, topic or none")
	case c.TLS != (TLSConfig{}) && !s.tls:
		return field("tls", "is set, but the URL is not amqps1://", "write amqps1:// (and the port of the broker's TLS listener)")
	}
	return c.TLS.Validate()
}

// server is the URL in parts, with the user that applies.
type server struct {
	tls                           bool
	host, address, user, password string
}

// server does not quote the URL in its error: it may hold a password.
func (c *Config) server() (s server, err error) {
	u, err := url.Parse(c.URL)
	if err != nil || u.Scheme != "amqp1" && u.Scheme != "amqps1" || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" || u.Fragment != "" {
		return s, field("url", "is not a URL of AMQP 1.0", "write amqp1://user:password@host:5672, or amqps1:// for TLS; in user and password write special characters as %%XX")
	}
	s = server{tls: u.Scheme == "amqps1", host: u.Hostname(), user: u.User.Username()}
	s.password, _ = u.User.Password()
	if c.User != "" {
		s.user, s.password = c.User, c.Password
	}
	port := "5672"
	if s.tls {
		port = "5671"
	}
	s.address = net.JoinHostPort(s.host, cmp.Or(u.Port(), port))
	return s, nil
}

var field = sinkurl.Field

// ParseURL reads a Config from one line, for a command line:
//
//	amqp1://user:password@host:5672?address=/queues/orders
//	amqps1://RootManageSharedAccessKey:KEY@NAMESPACE.servicebus.windows.net?address=orders
//
// Query parameters are the fields of the YAML form, those of tls with "tls." in front. The result has
// its defaults set and is valid. Errors do not quote the URL, which may hold a password.
func ParseURL(u string) (Config, error) {
	return sinkurl.ReadServer(u, "a URL of AMQP 1.0", func(server string) Config { return Config{URL: server} })
}
