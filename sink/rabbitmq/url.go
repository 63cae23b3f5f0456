package rabbitmq

import (
	"strings"

	"github.com/penstock/penstock/internal/sinkurl"
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
	if err := sinkurl.Set(&c, values, "an AMQP URL"); err != nil {
		return Config{}, err
	}
	c.SetDefaults()
	return c, c.Validate()
}
