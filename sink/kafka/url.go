package kafka

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
//	kafka://host1:9092,host2:9092/?topic=orders.{topic}&compression=zstd
//	kafkas://user:password@host:9093/?sasl=scram-sha-512&tls.ca_file=ca.pem
//
// Query parameters are the fields of the YAML form, those of tls with "tls." in
// front. The result has its defaults set and is valid. Errors do not quote the
// URL, which may hold a password.
func ParseURL(u string) (Config, error) {
	brokers, query, _ := strings.Cut(u, "?")
	if strings.Contains(query, "@") && !strings.Contains(brokers, "@") {
		return Config{}, notKafka() // the query may be the end of a password
	}
	c := Config{URL: brokers}
	values, err := url.ParseQuery(query)
	if err != nil {
		return Config{}, field("url", "has a query that cannot be read", "separate parameters by & and write special characters as %%XX")
	}
	for name, v := range values {
		set, ok := parameters[name]
		if !ok {
			return Config{}, field(name, "is not a parameter of a Kafka URL", "use one of %s", parameterNames())
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

// credentials are those of the URL: user:password with %XX.
func credentials(s string) (user, password string, err error) {
	user, password, _ = strings.Cut(s, ":")
	if user, err = url.PathUnescape(user); err != nil {
		return "", "", err
	}
	password, err = url.PathUnescape(password)
	return user, password, err
}

// parameters is what ParseURL accepts, by the names of the YAML form.
var parameters = map[string]func(*Config, string) error{
	"user":                                   text(func(c *Config) *string { return &c.User }),
	"password":                               text(func(c *Config) *string { return &c.Password }),
	"sasl":                                   text(func(c *Config) *string { return &c.SASL }),
	"topic":                                  text(func(c *Config) *string { return &c.Topic }),
	"create_topics":                          flag(func(c *Config) *bool { return &c.CreateTopics }),
	"timestamp":                              text(func(c *Config) *string { return &c.Timestamp }),
	"client_id":                              text(func(c *Config) *string { return &c.ClientID }),
	"compression":                            text(func(c *Config) *string { return &c.Compression }),
	"max_message_bytes":                      number(func(c *Config) *int { return &c.MaxMessageBytes }),
	"producers":                              number(func(c *Config) *int { return &c.Producers }),
	"connect_timeout":                        duration(func(c *Config) *time.Duration { return &c.ConnectTimeout }),
	"delivery_timeout":                       duration(func(c *Config) *time.Duration { return &c.DeliveryTimeout }),
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
