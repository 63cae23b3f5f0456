package config

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/adopted"
	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/internal/sinkurl"
	"github.com/penstock/penstock/sink/claimcheck"
	"github.com/penstock/penstock/sink/format"
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

// shorthand is a value of --sink.
func (s *Sink) shorthand(url string) error {
	parsed, err := ParseSink(url)
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "sink "))
	}
	*s = parsed
	return nil
}

// decodeNode decodes a mapping with the sink's name as its only key.
func (s *Sink) decodeNode(d *decoder, n ast.Node, path string) {
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

// Adopt describes an existing table that a subscription reads instead of an outbox: a mapping, or
// only the name of a preset.
type Adopt struct {
	adopted.Config `yaml:",inline"`
}

func (a *Adopt) shorthand(preset string) error {
	a.Preset = preset
	return nil
}

// adopted checks a subscription that reads a user's table.
func (d *decoder) adopted(path string, s *Subscription) {
	at := path + ".adopt"
	if d.broken[at] {
		return
	}
	if err := s.Adopt.Validate(); err != nil {
		if _, shorthand := d.values[at]; shorthand {
			// The file has only the preset.
			d.fail(d.near(at), at, problem{"is not a known table", "write one of " + drivers.OneOf(adopted.PresetNames()) + ", or map the columns below it"})
			return
		}
		d.invalid(at, err)
	}
}

func (d *decoder) keyed(path string) bool {
	_, given := d.keys[path]
	return given
}

// sharedTables finds subscriptions that would take rows from each other: a row can be marked as
// delivered in one place.
func (d *decoder) sharedTables(c *Config) {
	for i := range c.Subscriptions {
		for j := range i {
			a, b := c.Subscriptions[j].Adopt, c.Subscriptions[i].Adopt
			if a == nil || b == nil || a.Table != b.Table {
				continue
			}
			path := fmt.Sprintf("subscriptions[%d].adopt", i)
			if reason := conflict(&a.Config, &b.Config); reason != "" && !d.broken[path] {
				d.fail(d.near(path), path, problem{fmt.Sprintf("reads the table of subscriptions[%d], and %s", j, reason),
					"map a separate column to mark for each of them, or deliver to both from an outbox of Penstock's"})
			}
		}
	}
}

func conflict(a, b *adopted.Config) string {
	for _, c := range []*adopted.Config{a, b} {
		if c.Delivered == adopted.Delete || c.Delivered == adopted.Archive {
			return "one of the two takes delivered rows away"
		}
	}
	for _, column := range []string{b.Columns.ProcessedAt, b.Columns.Status, b.Columns.Error, b.Columns.Attempts} {
		for _, other := range []string{a.Columns.ProcessedAt, a.Columns.Status, a.Columns.Error, a.Columns.Attempts} {
			if column != "" && column == other {
				return fmt.Sprintf("both write to its column %q", column)
			}
		}
	}
	return ""
}

// String is the mapping as YAML.
func (a Adopt) String() string { return asYAML(tree(a)) }

// MarshalJSON writes the keys of the file.
func (a Adopt) MarshalJSON() ([]byte, error) { return asJSON(tree(a)) }

// ClaimCheck sets which payloads are stored outside of messages, and where: a mapping, or the value that
// --claim-check takes.
type ClaimCheck struct {
	claimcheck.Config `yaml:",inline"`
}

// ParseClaimCheck reads a value of --claim-check. The result has its defaults set.
func ParseClaimCheck(url string) (*ClaimCheck, error) {
	c, err := claimcheck.ParseURL(url)
	return &ClaimCheck{c}, err
}

func (c *ClaimCheck) shorthand(url string) (err error) {
	c.Config, err = claimcheck.ParseURL(url)
	return err
}

// WireFormat is the format of messages for consumers: a mapping, or only a kind.
type WireFormat struct {
	format.Config `yaml:",inline"`
}

func (f *WireFormat) shorthand(kind string) error {
	f.Kind = kind
	return nil
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
	if kind == "" {
		return nil, &penstock.FieldError{Field: "format", Problem: "names no kind", Hint: "write raw, cloudevents or debezium"}
	}
	values, err := sinkurl.Parse(query)
	if err != nil {
		return nil, err
	}
	f := &WireFormat{format.Config{Kind: kind}}
	if err := sinkurl.Set(&f.Config, values, "a format"); err != nil {
		return nil, err
	}
	f.setDefaults(origin)
	return f, f.Validate()
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
