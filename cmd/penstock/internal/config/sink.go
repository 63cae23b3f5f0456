package config

import (
	"reflect"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/penstock/penstock/internal/drivers"
)

// Sink is the configuration of one sink. Its zero value has no sink.
type Sink struct {
	drivers.Sink `yaml:"-"` // fieldsOf has its one field
}

// ParseSink is drivers.ParseSink, for a sink that shows no password.
func ParseSink(url string) (Sink, error) {
	s, err := drivers.ParseSink(url)
	return Sink{s}, err
}

// decodeNode decodes a mapping with the sink's name as its only key, or a value of --sink.
func (s *Sink) decodeNode(d *decoder, n ast.Node, path string) {
	if raw, _, ok := scalarText(n); ok {
		s.decodeURL(d, n, raw, path)
		return
	}
	var names []string
	d.mapping(n, path, func(key string, at position, child ast.Node) {
		named, known := drivers.SinkNamed(key)
		if !known {
			d.unknown(at, path, key, drivers.SinkNames())
			return
		}
		if names = append(names, key); len(names) == 1 {
			*s = Sink{named}
			d.value(child, reflect.ValueOf(s.Config()).Elem(), join(path, key))
		}
	})
	if len(names) > 1 {
		d.fail(d.near(path+"."+names[1]), path, problem{"has " + strings.Join(names, " and "), "a subscription has one sink: make a second subscription for the other"})
	}
}

func (s *Sink) decodeURL(d *decoder, n ast.Node, raw, path string) {
	at := nodePlace(n)
	url, ok := d.resolved(raw, at, path)
	if !ok {
		return
	}
	parsed, err := ParseSink(url)
	if err != nil {
		what := strings.TrimPrefix(d.scrub(err.Error()), "sink ")
		d.fail(at, path, problem{what, ""})
		return
	}
	*s = parsed
}
