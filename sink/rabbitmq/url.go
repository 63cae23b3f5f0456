package rabbitmq

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
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
	values, err := url.ParseQuery(query)
	if err != nil {
		return Config{}, field("url", "has a query that cannot be read", "separate parameters by & and write special characters as %%XX")
	}
	for name, v := range values {
		set, ok := parameters[name]
		if !ok {
			return Config{}, field(name, "is not a parameter of an AMQP URL", "use one of %s", parameterNames())
		}
		if len(v) > 1 {
			return Config{}, field(name, "is given twice", "give it once")
		}
		if err := set(&c, v[0]); err != nil {
			return Config{}, field(name, fmt.Sprintf("is %q", v[0]), "%s", err)
		}
	}
	c.SetDefaults()
	return c, c.Validate()
}

// parameters is what ParseURL accepts, by the names of the YAML form.
var parameters = map[string]func(*Config, string) error{
	"user":                                   text(func(c *Config) *string { return &c.User }),
	"password":                               text(func(c *Config) *string { return &c.Password }),
	"exchange":                               text(func(c *Config) *string { return &c.Exchange }),
	"routing_key":                            text(func(c *Config) *string { return &c.RoutingKey }),
	"declare_queue":                          text(func(c *Config) *string { return &c.DeclareQueue }),
	"created_at_header":                      flag(func(c *Config) *bool { return &c.CreatedAtHeader }),
	"channels":                               number(func(c *Config) *int { return &c.Channels }),
	"max_pending":                            number(func(c *Config) *int { return &c.MaxPending }),
	"connect_timeout":                        duration(func(c *Config) *time.Duration { return &c.ConnectTimeout }),
	"heartbeat":                              duration(func(c *Config) *time.Duration { return &c.Heartbeat }),
	"tls.ca_file":                            text(func(c *Config) *string { return &c.TLS.CAFile }),
	"tls.cert_file":                          text(func(c *Config) *string { return &c.TLS.CertFile }),
	"tls.key_file":                           text(func(c *Config) *string { return &c.TLS.KeyFile }),
	"tls.server_name":                        text(func(c *Config) *string { return &c.TLS.ServerName }),
	"tls.dangerously_skip_certificate_check": flag(func(c *Config) *bool { return &c.TLS.DangerouslySkipCertificateCheck }),
}

func parameterNames() string {
	var names []string
	for name := range parameters {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

func text(target func(*Config) *string) func(*Config, string) error {
	return func(c *Config, v string) error {
		*target(c) = v
		return nil
	}
}

func number(target func(*Config) *int) func(*Config, string) error {
	return func(c *Config, v string) (err error) {
		if *target(c), err = strconv.Atoi(v); err != nil {
			return errors.New("write a whole number")
		}
		return nil
	}
}

func flag(target func(*Config) *bool) func(*Config, string) error {
	return func(c *Config, v string) (err error) {
		if *target(c), err = strconv.ParseBool(v); err != nil {
			return errors.New("write true or false")
		}
		return nil
	}
}

func duration(target func(*Config) *time.Duration) func(*Config, string) error {
	return func(c *Config, v string) (err error) {
		if *target(c), err = time.ParseDuration(v); err != nil {
			return errors.New("write a duration such as 500ms, 5s or 2m")
		}
		return nil
	}
}
