package kafka

import (
	"net/url"
	"strings"

	"github.com/penstock/penstock/internal/sinkurl"
)

// ParseURL reads a Config from one line, for a command line:
//
//	kafka://host1:9092,host2:9092/?topic=orders.{topic}&compression=zstd
//	kafkas://user:password@host:9093/?sasl=scram-sha-512&tls.ca_file=ca.pem
//
// Query parameters are the fields of the YAML form, those of tls with "tls." in
// front. The result has its defaults set and is valid. Errors do not quote the
// URL, which may hold a password.
func ParseURL(u string) (Config, error) {
	return sinkurl.ReadServer(u, "a Kafka URL", func(server string) Config { return Config{URL: server} })
}

// credentials are those of the URL: user:password with %XX.
func credentials(s string) (user, password string, err error) {
	user, password, _ = strings.Cut(s, ":")
	if user, err = url.PathUnescape(user); err != nil {
		return "", "", err
	}
	password, err = url.PathUnescape(password)
	return user, password, err
}
