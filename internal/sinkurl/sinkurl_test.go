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
	Name    string           `yaml:"name"`
	Hosts   []string         `yaml:"hosts"`
	Count   int              `yaml:"count"`
	Codes   []int            `yaml:"codes"`
	Bytes   int              `yaml:"max_bytes"`
	Durable bool             `yaml:"durable"`
	Timeout time.Duration    `yaml:"timeout"`
	Own     string           `yaml:"own" url:"-"`
	Group   *group           `yaml:"group"`
	TLS     tlsconfig.Client `yaml:"tls"`
}

type group struct {
	Size int `yaml:"size"`
}

func read(query string) (c config, err error) {
	values, err := Parse(query)
	if err == nil {
		err = Set(&c, values, "a test URL")
	}
	return c, err
}

func TestSet(t *testing.T) {
	got, err := read("name=a%26b&hosts=x,y&count=-3&codes=1,2&max_bytes=3MiB&durable=true&timeout=2s&group.size=4" +
		"&tls.ca_file=ca&tls.cert_file=c&tls.key_file=k&tls.server_name=n&tls.dangerously_skip_certificate_check=true")
	want := config{
		Name: "a&b", Hosts: []string{"x", "y"}, Count: -3, Codes: []int{1, 2}, Bytes: 3 << 20, Durable: true, Timeout: 2 * time.Second, Group: &group{Size: 4},
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
		"nope=hunter2":       {"nope", "is not a parameter of a test URL: use one of codes, count, durable, group.size, hosts, max_bytes, name, timeout, tls.ca_file"},
		"own=x":              {"own", "is not a parameter"},
		"name=a&name=b":      {"name", "is given twice"},
		"count=many":         {"count", `is "many": write a whole number`},
		"codes=1,,2":         {"codes", "separated by commas"},
		"max_bytes=3MB":      {"max_bytes", `is "3MB", not a size: write a whole number with KiB, MiB or GiB`},
		"max_bytes=-1":       {"max_bytes", `is "-1", which is negative`},
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
