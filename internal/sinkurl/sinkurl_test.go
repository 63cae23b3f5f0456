package sinkurl

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/tlsconfig"
)

type config struct {
	Name    string
	Hosts   []string
	Count   int
	Codes   []int
	Durable bool
	Timeout time.Duration
	TLS     tlsconfig.Client
}

var parameters = Parameters[config]{
	"name":    Text(func(c *config) *string { return &c.Name }),
	"hosts":   Texts(func(c *config) *[]string { return &c.Hosts }),
	"count":   Number(func(c *config) *int { return &c.Count }),
	"codes":   Numbers(func(c *config) *[]int { return &c.Codes }),
	"durable": Bool(func(c *config) *bool { return &c.Durable }),
	"timeout": Duration(func(c *config) *time.Duration { return &c.Timeout }),
}.WithTLS(func(c *config) *tlsconfig.Client { return &c.TLS })

func read(query string) (c config, err error) {
	values, err := Parse(query)
	if err == nil {
		err = parameters.Set(&c, values, "a test URL")
	}
	return c, err
}

func TestSet(t *testing.T) {
	got, err := read("name=a%26b&hosts=x,y&count=-3&codes=1,2&durable=true&timeout=2s" +
		"&tls.ca_file=ca&tls.cert_file=c&tls.key_file=k&tls.server_name=n&tls.dangerously_skip_certificate_check=true")
	want := config{
		Name: "a&b", Hosts: []string{"x", "y"}, Count: -3, Codes: []int{1, 2}, Durable: true, Timeout: 2 * time.Second,
		TLS: tlsconfig.Client{CAFile: "ca", CertFile: "c", KeyFile: "k", ServerName: "n", DangerouslySkipCertificateCheck: true},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
	if got, err := read(""); err != nil || !reflect.DeepEqual(got, config{}) {
		t.Errorf("nothing: %+v, %v", got, err)
	}
}

func TestMistakes(t *testing.T) {
	for query, want := range map[string]struct{ field, says string }{
		"name=hunter2&x=%zz": {"url", "separate them by &"},
		"name=hunter2;count": {"url", "separate them by &"},
		"nope=hunter2":       {"nope", "is not a parameter of a test URL: use one of codes, count, durable"},
		"name=a&name=b":      {"name", "is given twice"},
		"count=many":         {"count", `is "many": write a whole number`},
		"codes=1,,2":         {"codes", "separated by commas"},
		"durable=yes":        {"durable", "true or false"},
		"timeout=5":          {"timeout", "write a duration such as"},
		"timeout=5&count=":   {"count", "whole number"}, // the first by name, each time
	} {
		_, err := read(query)
		var f *penstock.FieldError
		if !errors.As(err, &f) || f.Field != want.field || !strings.Contains(err.Error(), want.says) {
			t.Errorf("%s: %v; want %s: %q", query, err, want.field, want.says)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error quotes the value: %v", query, err)
		}
	}
}

// A base without TLS keeps its own parameters.
func TestWithTLSLeavesItsBase(t *testing.T) {
	base := Parameters[config]{"name": parameters["name"]}
	if n := len(base.WithTLS(func(c *config) *tlsconfig.Client { return &c.TLS })); n != 6 || len(base) != 1 {
		t.Errorf("%d with TLS, %d without", n, len(base))
	}
}
