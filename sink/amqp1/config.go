package amqp1

import (
	"cmp"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/penstock/penstock/internal/settings"
	"github.com/penstock/penstock/internal/sinkurl"
	"github.com/penstock/penstock/internal/tlsconfig"
)

// Config sets where the messages go and how. The zero value of a field means
// its default; see SetDefaults.
type Config struct {
	// URL of the broker: amqp1://user:password@host:5672, or amqps1:// for TLS, port 5671.
	URL string `yaml:"url" url:"-" default:"amqp1://127.0.0.1:5672"`
	// User and Password replace those of the URL, for secrets that are kept
	// separately.
	User     string `yaml:"user"`
	Password string `yaml:"password" needs:"user"`

	// Address is a template of the address: {topic}, {key}, {header.NAME}. In an address that begins with
	// a slash, as RabbitMQ's do, values are percent-encoded.
	Address string `yaml:"address" default:"{topic}" template:"/exchanges/orders/{topic}"`
	// Capability that the address must have: queue, topic, or none. Artemis makes an address of that kind.
	Capability string `yaml:"capability" default:"queue" oneof:"queue topic none"`

	// ConnectTimeout limits one attempt to connect and log in.
	ConnectTimeout time.Duration `yaml:"connect_timeout" default:"5s"`
	// Timeout limits a Send: until the broker has answered for each message.
	Timeout time.Duration `yaml:"timeout" default:"30s"`

	TLS TLSConfig `yaml:"tls"`
}

// TLSConfig is used with amqps1:// URLs.
type TLSConfig = tlsconfig.Client

// SetDefaults sets the fields that are zero.
func (c *Config) SetDefaults() { settings.Defaults(c) }

// Validate returns a *penstock.FieldError for the first field that cannot be used.
// Call SetDefaults before. It opens no file.
func (c *Config) Validate() error {
	s, err := c.server()
	return cmp.Or(err, settings.Check(c), c.TLS.Validate("amqps1://", s.tls))
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
	return s, sinkurl.WithoutOptions(c.URL)
}

var field = settings.Field

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
