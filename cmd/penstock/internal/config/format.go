package config

import (
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/sink/format"
)

// WireFormat is the format of messages for consumers: a mapping, or only a kind.
type WireFormat struct {
	format.Config `yaml:",inline"`
}

func (f *WireFormat) decodeNode(d *decoder, n ast.Node, path string) {
	raw, _, single := scalarText(n)
	if !single {
		d.structure(n, reflect.ValueOf(f).Elem(), path)
		return
	}
	if kind, ok := d.resolved(raw, nodePlace(n), path); ok {
		f.Kind = kind
	}
}

// setDefaults fills in the unset fields. All events of an outbox, or adopted table, have one source.
func (f *WireFormat) setDefaults(origin string) {
	if f.Kind == format.CloudEvents && f.Source == "" && origin != "" {
		f.Source = format.DefaultSource(origin)
	}
	f.SetDefaults()
}

// ParseFormat turns the value of --format into a format with its defaults set, for messages of the
// named outbox or table: raw, cloudevents or debezium. The fields of its configuration are query
// parameters, as in cloudevents?mode=structured&extensions.tenant={header.tenant}.
func ParseFormat(text, origin string) (*WireFormat, error) {
	kind, query, _ := strings.Cut(text, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, &penstock.FieldError{Field: "format", Problem: "has parameters that cannot be read", Hint: "separate them by & and write special characters as %XX"}
	}
	f := &WireFormat{format.Config{Kind: kind}}
	for name, v := range values {
		if err := f.set(name, v); err != nil {
			return nil, &penstock.FieldError{Field: "format", Problem: fmt.Sprintf("has the parameter %s, and %v", name, err), Hint: "see docs/reference/configuration.md"}
		}
	}
	if kind == "" {
		return nil, &penstock.FieldError{Field: "format", Problem: "names no kind", Hint: "write raw, cloudevents or debezium"}
	}
	f.setDefaults(origin)
	return f, f.Validate()
}

func (f *WireFormat) set(name string, values []string) error {
	if len(values) != 1 {
		return errors.New("it is given twice")
	}
	name, entry, _ := strings.Cut(name, ".")
	for _, field := range fieldsOf(reflect.ValueOf(f).Elem()) {
		switch {
		case field.key != name || name == "kind":
		case field.value.Kind() == reflect.Map && entry != "":
			if field.value.IsNil() {
				field.value.Set(reflect.MakeMap(field.value.Type()))
			}
			field.value.SetMapIndex(reflect.ValueOf(entry), reflect.ValueOf(values[0]))
			return nil
		case field.value.Kind() == reflect.String && entry == "":
			field.value.SetString(values[0])
			return nil
		case field.value.Kind() == reflect.Bool && entry == "":
			if values[0] != "true" && values[0] != "false" {
				return errors.New("it is neither true nor false")
			}
			field.value.SetBool(values[0] == "true")
			return nil
		}
	}
	return errors.New("there is none of that name")
}

// format checks the message format of a subscription.
func (d *decoder) format(path string, s *Subscription) {
	at := path + ".format"
	if s.Format == nil || d.broken[at] || d.broken[path+".sink"] || s.Sink.Name() == "" {
		return
	}
	if _, queued := s.Sink.Queue(); queued {
		return
	}
	d.invalid(at, s.Format.ValidateFor(s.Sink.Binding()))
}
