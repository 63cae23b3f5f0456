package nats

import (
	"errors"
	"fmt"
	"strings"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/sinkurl"
)

// ParseURL reads a Config from one line, for a command line:
//
//	nats://user:password@host:4222,host2:4222?subject=orders.{topic}&tls.ca_file=ca.pem
//	embedded
//	embedded:DIR?listen=127.0.0.1:4222
//
// Query parameters are the fields of the YAML form, those of a group with the
// group's name and a dot in front (embedded's own may leave that out after
// embedded:). Lists are separated by commas. The result has its defaults set
// and is valid. Errors do not quote the URL, which may hold a password.
func ParseURL(u string) (Config, error) {
	var c Config
	target, query, _ := strings.Cut(u, "?")
	rest, isEmbedded := strings.CutPrefix(target, "embedded")
	switch {
	case isEmbedded && (rest == "" || rest[0] == ':'):
		c.Embedded = &EmbeddedConfig{Dir: strings.TrimPrefix(rest, ":")}
	default:
		c.URL = strings.TrimSuffix(target, "/")
	}
	values, err := sinkurl.Parse(query)
	if err != nil {
		return Config{}, err
	}
	for _, name := range []string{"listen", "sync_always"} {
		full := "embedded." + name
		if c.Embedded != nil && values.Has(name) {
			values[full] = append(values[full], values[name]...)
			values.Del(name)
		} else if c.Embedded == nil && values.Has(full) {
			return Config{}, field(full, fmt.Sprintf("is %q", values.Get(full)), "leave it out: it is for embedded:DIR only")
		}
	}
	return sinkurl.Read(c, values.Encode(), "a NATS URL")
}

// prefixed puts the group's name before the field of a FieldError.
func prefixed(group string, err error) error {
	if f, ok := errors.AsType[*penstock.FieldError](err); ok {
		return &penstock.FieldError{Field: group + f.Field, Problem: f.Problem, Hint: f.Hint}
	}
	return err
}
