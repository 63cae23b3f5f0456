package rabbitmq

import (
	"strings"
	"time"

	"github.com/penstock/penstock/internal/sinkurl"
	"github.com/penstock/penstock/internal/tlsconfig"
)

// ParseURL reads a Config from one line, for a command line:
//
//	amqp://user:password@host:5672/vhost?exchange=shop&routing_key=orders.{topic}
//	amqps://host/?tls.ca_file=ca.pem
//
// Query parameters are the fields of the YAML form, those of tls with "tls." in
// front. The result has its defaults set and is valid. Errors do not quote the
// URL, which may hold a password.
func ParseURL(u string) (Config, error) {
	server, query, _ := strings.Cut(u, "?")
	if strings.Contains(query, "@") && !strings.Contains(server, "@") {
		return Config{}, notAMQP() // the query may be the end of a password
	}
	c := Config{URL: server}
	values, err := sinkurl.Parse(query)
	if err != nil {
		return Config{}, err
	}
	if err := parameters.Set(&c, values, "an AMQP URL"); err != nil {
		return Config{}, err
	}
	c.SetDefaults()
	return c, c.Validate()
}

// parameters is what ParseURL accepts, by the names of the YAML form.
var parameters = sinkurl.Parameters[Config]{
	"user":              sinkurl.Text(func(c *Config) *string { return &c.User }),
	"password":          sinkurl.Text(func(c *Config) *string { return &c.Password }),
	"exchange":          sinkurl.Text(func(c *Config) *string { return &c.Exchange }),
	"routing_key":       sinkurl.Text(func(c *Config) *string { return &c.RoutingKey }),
	"declare_queue":     sinkurl.Text(func(c *Config) *string { return &c.DeclareQueue }),
	"created_at_header": sinkurl.Bool(func(c *Config) *bool { return &c.CreatedAtHeader }),
	"channels":          sinkurl.Number(func(c *Config) *int { return &c.Channels }),
	"max_pending":       sinkurl.Number(func(c *Config) *int { return &c.MaxPending }),
	"connect_timeout":   sinkurl.Duration(func(c *Config) *time.Duration { return &c.ConnectTimeout }),
	"heartbeat":         sinkurl.Duration(func(c *Config) *time.Duration { return &c.Heartbeat }),
}.WithTLS(func(c *Config) *tlsconfig.Client { return &c.TLS })
