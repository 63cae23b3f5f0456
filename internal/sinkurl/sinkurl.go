// Package sinkurl reads the configuration of a sink from the parameters of a URL,
// for a command line.
package sinkurl

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/tlsconfig"
)

// Parameters is what a URL may set in a configuration C, by the names of the
// YAML form. The error of a setter says what to write instead.
type Parameters[C any] map[string]func(c *C, value string) error

// Parse splits name=value pairs, which are separated by &. Its error, a
// *penstock.FieldError, does not quote them: the URL may hold a password.
func Parse(query string) (url.Values, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, &penstock.FieldError{Field: "url", Problem: "has parameters that cannot be read", Hint: "separate them by & and write special characters as %XX"}
	}
	return values, nil
}

// Set sets the values in c. Kind is what the URL is, as in "a Kafka URL". It
// reports the first name, in alphabetical order, that is not known or given
// twice, or whose value cannot be used, as a *penstock.FieldError.
func (p Parameters[C]) Set(c *C, values url.Values, kind string) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		set, ok := p[name]
		v := values[name]
		switch {
		case !ok:
			return field(name, "is not a parameter of "+kind, "use one of "+strings.Join(slices.Sorted(maps.Keys(p)), ", "))
		case len(v) > 1:
			return field(name, "is given twice", "give it once; lists are separated by commas")
		}
		if err := set(c, v[0]); err != nil {
			return field(name, fmt.Sprintf("is %q", v[0]), err.Error())
		}
	}
	return nil
}

// WithTLS returns p and the fields of tls, which have "tls." in front.
func (p Parameters[C]) WithTLS(target func(*C) *tlsconfig.Client) Parameters[C] {
	p = maps.Clone(p)
	p["tls.ca_file"] = Text(func(c *C) *string { return &target(c).CAFile })
	p["tls.cert_file"] = Text(func(c *C) *string { return &target(c).CertFile })
	p["tls.key_file"] = Text(func(c *C) *string { return &target(c).KeyFile })
	p["tls.server_name"] = Text(func(c *C) *string { return &target(c).ServerName })
	p["tls.dangerously_skip_certificate_check"] = Bool(func(c *C) *bool { return &target(c).DangerouslySkipCertificateCheck })
	return p
}

// Text sets a field to the value as it is.
func Text[C any](target func(*C) *string) func(*C, string) error {
	return func(c *C, v string) error {
		*target(c) = v
		return nil
	}
}

// Texts sets a list, separated by commas.
func Texts[C any](target func(*C) *[]string) func(*C, string) error {
	return func(c *C, v string) error {
		*target(c) = strings.Split(v, ",")
		return nil
	}
}

// Number sets a whole number.
func Number[C any](target func(*C) *int) func(*C, string) error {
	return func(c *C, v string) (err error) {
		if *target(c), err = strconv.Atoi(v); err != nil {
			return errors.New("write a whole number")
		}
		return nil
	}
}

// Numbers sets a list of whole numbers, separated by commas.
func Numbers[C any](target func(*C) *[]int) func(*C, string) error {
	return func(c *C, v string) error {
		var all []int
		for part := range strings.SplitSeq(v, ",") {
			n, err := strconv.Atoi(part)
			if err != nil {
				return errors.New("write whole numbers separated by commas")
			}
			all = append(all, n)
		}
		*target(c) = all
		return nil
	}
}

// Bool sets true or false.
func Bool[C any](target func(*C) *bool) func(*C, string) error {
	return func(c *C, v string) (err error) {
		if *target(c), err = strconv.ParseBool(v); err != nil {
			return errors.New("write true or false")
		}
		return nil
	}
}

// Duration sets a duration as Go writes it.
func Duration[C any](target func(*C) *time.Duration) func(*C, string) error {
	return func(c *C, v string) (err error) {
		if *target(c), err = time.ParseDuration(v); err != nil {
			return errors.New("write a duration such as 500ms, 5s or 2m")
		}
		return nil
	}
}

func field(name, problem, hint string) error {
	return &penstock.FieldError{Field: name, Problem: problem, Hint: hint}
}

// CutHosts cuts a URL around its hosts, which have commas between them.
func CutHosts(u string) (before string, hosts []string, after string) {
	if scheme, rest, ok := strings.Cut(u, "://"); ok {
		before, u = scheme+"://", rest
	}
	if end := strings.IndexAny(u, "/?#"); end >= 0 {
		u, after = u[:end], u[end:]
	}
	if at := strings.LastIndexByte(u, '@'); at >= 0 {
		before, u = before+u[:at+1], u[at+1:]
	}
	return before, strings.Split(u, ","), after
}

// PerHost is a URL once for each of its hosts, for clients that know of one.
func PerHost(u string) []string {
	before, hosts, after := CutHosts(u)
	urls := make([]string, len(hosts))
	for i, host := range hosts {
		urls[i] = before + host + after
	}
	return urls
}
