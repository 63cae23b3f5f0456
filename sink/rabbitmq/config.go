package rabbitmq

import (
	"cmp"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/penstock/penstock/internal/settings"
	"github.com/penstock/penstock/internal/sinkurl"
	"github.com/penstock/penstock/internal/tlsconfig"
)

// Config sets where the messages go and how. The zero value of a field means
// its default; see SetDefaults.
type Config struct {
	// URL of the broker: amqp://user:password@host:5672/vhost, or amqps:// for TLS. With
	// several hosts, host1:5672,host2:5672, for example of a cluster, one of them is used.
	URL string `yaml:"url" url:"-" default:"amqp://guest:guest@127.0.0.1:5672/"`
	// User and Password replace those of the URL, for secrets that are kept
	// separately.
	User     string `yaml:"user"`
	Password string `yaml:"password" needs:"user"`

	// Exchange to publish to. It must exist. Empty means RabbitMQ's default exchange,
	// where the routing key is the name of a queue.
	Exchange string `yaml:"exchange"`
	// RoutingKey is a template: {topic}, {key}, {header.NAME}. Default: DeclareQueue, or
	// the topic if that is empty.
	RoutingKey string `yaml:"routing_key" default:"{topic}" template:"orders.{topic}"`
	// DeclareQueue is the name of a durable queue to create if it does not exist. Only
	// with the default exchange: the operator makes bindings.
	DeclareQueue string `yaml:"declare_queue"`
	// CreatedAtHeader adds the header penstock-created-at with the time in full
	// precision. The property timestamp is always set, in seconds.
	CreatedAtHeader bool `yaml:"created_at_header"`

	// Channels is over how many channels of one connection messages are published. The
	// default was measured: see DESIGN.md.
	Channels int `yaml:"channels" default:"1" min:"1" max:"64"`
	// MaxPending is how many messages per channel may wait for their confirm. It bounds
	// memory: the broker may return the body of each of them.
	MaxPending int `yaml:"max_pending" default:"4096" min:"1" max:"65536"`

	// ConnectTimeout limits one attempt to connect and log in.
	ConnectTimeout time.Duration `yaml:"connect_timeout" default:"5s"`
	// Heartbeat is how often the two sides show that they are alive. A connection
	// that is silent for three of these times is given up.
	Heartbeat time.Duration `yaml:"heartbeat" default:"10s" min:"1s"`

	TLS TLSConfig `yaml:"tls"`
}

// TLSConfig is used with amqps:// URLs.
type TLSConfig = tlsconfig.Client

// SetDefaults sets the fields that are zero.
func (c *Config) SetDefaults() {
	c.RoutingKey = cmp.Or(c.RoutingKey, strings.NewReplacer("{", "{{", "}", "}}").Replace(c.DeclareQueue))
	settings.Defaults(c)
}

// Validate returns a *penstock.FieldError for the first field that cannot be used.
// Call SetDefaults before. It opens no file.
func (c *Config) Validate() error {
	uris, err := c.addresses()
	switch {
	case err != nil:
		return err
	case len(c.Exchange) > maxShortString:
		return field("exchange", "is longer than 255 bytes", "name an exchange that exists")
	case c.DeclareQueue != "" && c.Exchange != "":
		return field("declare_queue", "is set together with exchange", "remove it, declare the queue and bind it to the exchange yourself; or leave out exchange")
	case len(c.DeclareQueue) > maxShortString:
		return field("declare_queue", "is longer than 255 bytes", "shorten the name")
	}
	return cmp.Or(settings.Check(c), c.TLS.Validate("amqps://", uris[0].Scheme == "amqps"))
}

// addresses is the URL in parts, once for each of its hosts, with the user that
// applies. Its errors never quote the URL, not even a part: a password with an
// unescaped slash passes for a port.
func (c *Config) addresses() (uris []amqp.URI, err error) {
	before, hosts, after := sinkurl.CutHosts(c.URL)
	for _, host := range hosts {
		uri, err := amqp.ParseURI(before + host + after)
		if err != nil || len(hosts) > 1 && (host == "" || strings.HasSuffix(host, ":")) {
			return nil, notAMQP()
		}
		if c.User != "" {
			uri.Username, uri.Password = c.User, c.Password
		}
		uris = append(uris, uri)
	}
	return uris, sinkurl.WithoutOptions(c.URL)
}

func notAMQP() error {
	return field("url", "is not an AMQP URL", "write amqp://user:password@host:5672/vhost, or several hosts with commas between them; in user, password and vhost write special characters as %%XX")
}

var field = settings.Field
