package webhook

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
//	https://api.example.com/hooks/{topic}?tenant=7#concurrency=64&content_type=application/json
//
// Everything before the # is the endpoint's URL, its query included. Options
// stand where a URL that is requested can have nothing, in the fragment: the
// fields of the YAML form, those of tls with "tls." in front, lists separated
// by commas. Secrets and headers have to be in the YAML form, since command lines
// can be read by others. The result has its defaults set and is valid. Errors
// do not quote the URL.
func ParseURL(u string) (Config, error) {
	target, options, _ := strings.Cut(u, "#")
	c := Config{URL: target}
	values, err := url.ParseQuery(options)
	if err != nil {
		return Config{}, field("url", "has options after the # that cannot be read", "separate them by & and write special characters as %%XX")
	}
	for name, v := range values {
		set, ok := parameters[name]
		switch {
		case name == "secrets" || name == "headers" || strings.HasPrefix(name, "headers."):
			return Config{}, field(name, "cannot be given in a URL", "write it into the configuration file, as ${VARIABLE} or file:PATH")
		case !ok:
			return Config{}, field(name, "is not an option of a webhook URL", "use one of %s", parameterNames())
		case len(v) > 1:
			return Config{}, field(name, "is given twice", "give it once; lists are separated by commas")
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
	"method":           text(func(c *Config) *string { return &c.Method }),
	"content_type":     text(func(c *Config) *string { return &c.ContentType }),
	"retry_statuses":   statuses,
	"concurrency":      number(func(c *Config) *int { return &c.Concurrency }),
	"http":             text(func(c *Config) *string { return &c.HTTP }),
	"connect_timeout":  duration(func(c *Config) *time.Duration { return &c.ConnectTimeout }),
	"response_timeout": duration(func(c *Config) *time.Duration { return &c.ResponseTimeout }),
	"timeout":          duration(func(c *Config) *time.Duration { return &c.Timeout }),
	"max_retry_after":  duration(func(c *Config) *time.Duration { return &c.MaxRetryAfter }),
	"allow_private":    flag(func(c *Config) *bool { return &c.AllowPrivate }),
	"allow_addresses":  list(func(c *Config) *[]string { return &c.AllowAddresses }),
	"proxy":            text(func(c *Config) *string { return &c.Proxy }),
	"tls.ca_file":      text(func(c *Config) *string { return &c.TLS.CAFile }),
	"tls.cert_file":    text(func(c *Config) *string { return &c.TLS.CertFile }),
	"tls.key_file":     text(func(c *Config) *string { return &c.TLS.KeyFile }),
	"tls.server_name":  text(func(c *Config) *string { return &c.TLS.ServerName }),
}

func parameterNames() string {
	var names []string
	for name := range parameters {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

func statuses(c *Config, v string) error {
	for part := range strings.SplitSeq(v, ",") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return errors.New("write whole numbers separated by commas")
		}
		c.RetryStatuses = append(c.RetryStatuses, n)
	}
	return nil
}

func text(target func(*Config) *string) func(*Config, string) error {
	return func(c *Config, v string) error {
		*target(c) = v
		return nil
	}
}

func list(target func(*Config) *[]string) func(*Config, string) error {
	return func(c *Config, v string) error {
		*target(c) = strings.Split(v, ",")
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
