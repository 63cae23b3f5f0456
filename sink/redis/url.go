package redis

import (
	"strings"

	"github.com/penstock/penstock/internal/sinkurl"
)

// ParseURL reads a Config from one line, for a command line:
//
//	redis://user:password@host:6379/0?stream=orders.{topic}&replicas=1
//	rediss://host?tls.ca_file=ca.pem
//
// Query parameters are the fields of the YAML form, those of tls with "tls." in
// front. The result has its defaults set and is valid. Errors do not quote the
// URL, which may hold a password.
func ParseURL(u string) (Config, error) {
	server, query, _ := strings.Cut(u, "?")
	if strings.Contains(query, "@") && !strings.Contains(server, "@") { // the query may be the end of a password
		return Config{}, field("url", "is not a Redis URL", "in user and password write special characters as %%XX")
	}
	c := Config{URL: server}
	values, err := sinkurl.Parse(query)
	if err != nil {
		return Config{}, err
	}
	if err := sinkurl.Set(&c, values, "a Redis URL"); err != nil {
		return Config{}, err
	}
	c.SetDefaults()
	return c, c.Validate()
}
