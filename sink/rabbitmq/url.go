package rabbitmq

import (
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
	return sinkurl.ReadServer(u, "an AMQP URL", func(server string) Config { return Config{URL: server} })
}
