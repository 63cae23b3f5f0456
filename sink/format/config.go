package format

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/penstock/penstock/internal/settings"
	"github.com/penstock/penstock/internal/template"
)

// Kinds of formats.
const (
	Raw         = "raw"
	CloudEvents = "cloudevents"
	Debezium    = "debezium"
)

// Content modes of CloudEvents.
const (
	Binary     = "binary"     // attributes in headers, the payload as it is
	Structured = "structured" // attributes and data together in one JSON object
)

// Omit leaves out an optional attribute, as its template.
const Omit = "-"

// Config is the format of messages. The zero value of a field means its default;
// see SetDefaults. Fields that the kind does not use must not be set.
//
// Templates have {topic}, {key} and {header.NAME}. An event has no optional attribute
// if the attribute's template names a header that the message does not have, or if
// the result is empty.
type Config struct {
	// Kind is raw, cloudevents or debezium.
	Kind string `yaml:"kind" url:"-"`

	// Mode of CloudEvents: binary or structured.
	Mode string `yaml:"mode"`
	// Source is a template for the attribute source, a URI reference.
	Source string `yaml:"source"`
	// Type is a template for the attribute type.
	Type string `yaml:"type"`
	// Subject is a template for the attribute subject.
	Subject string `yaml:"subject"`
	// DataContentType is the media type of payloads of messages that have no
	// header content-type.
	DataContentType string `yaml:"datacontenttype"`
	// DataSchema is a template for the attribute dataschema, an absolute URI.
	DataSchema string `yaml:"dataschema"`
	// Extensions are templates for extension attributes, by name. They are added to
	// the default ones.
	Extensions map[string]string `yaml:"extensions"`
	// Sequence adds the extension sequence: the message's position in its outbox.
	Sequence bool `yaml:"sequence"`
	// Prefix of attribute names in headers, if the protocol allows several.
	Prefix string `yaml:"prefix"`

	// Headers are templates for headers that debezium adds, by name, like
	// EventRouter's table.fields.additional.placement.
	Headers map[string]string `yaml:"headers"`
}

// defaultExtensions are the documented extensions "partitioning" and
// "distributed tracing".
var defaultExtensions = map[string]string{
	"partitionkey": "{key}",
	"traceparent":  "{header.traceparent}",
	"tracestate":   "{header.tracestate}",
}

// DefaultSource returns the source of events of an outbox or a subscription:
// /penstock/NAME, escaped.
func DefaultSource(name string) string { return "/penstock/" + url.PathEscape(name) }

// SetDefaults sets the fields that are zero and that the kind uses. It sets an
// empty Source to /penstock. A caller that knows the name of the outbox or the
// subscription sets it to DefaultSource before.
func (c *Config) SetDefaults() {
	c.Kind = cmp.Or(c.Kind, Raw)
	if c.Kind != CloudEvents {
		return
	}
	c.Mode = cmp.Or(c.Mode, Binary)
	c.Source = cmp.Or(c.Source, "/penstock")
	c.Type = cmp.Or(c.Type, "{topic}")
	c.Subject = cmp.Or(c.Subject, "{key}")
	c.DataContentType = cmp.Or(c.DataContentType, "application/json")
	c.DataSchema = cmp.Or(c.DataSchema, Omit)
	extensions := maps.Clone(defaultExtensions)
	maps.Copy(extensions, c.Extensions)
	c.Extensions = extensions
}

// Validate returns a *penstock.FieldError for the first field that cannot be used.
// Call SetDefaults before.
func (c *Config) Validate() error {
	switch c.Kind {
	case Raw, Debezium:
		if name := c.setForCloudEvents(); name != "" {
			return field(name, "is set, but kind is "+c.Kind, "remove it, or write kind: cloudevents")
		}
		if c.Kind == Raw && len(c.Headers) > 0 {
			return field("headers", "is set, but kind is raw", "remove it, or write kind: debezium")
		}
		return c.validateHeaders()
	case CloudEvents:
		if len(c.Headers) > 0 {
			return field("headers", "is set, but kind is cloudevents", "write them under extensions")
		}
		return c.validateCloudEvents()
	}
	return field("kind", fmt.Sprintf("is %q", c.Kind), "write raw, cloudevents or debezium")
}

// ValidateFor validates like Validate, and also checks that the protocol can carry
// the format.
func (c *Config) ValidateFor(b Binding) error {
	if err := c.Validate(); err != nil || c.Kind == Raw {
		return err
	}
	if len(b.Prefixes) == 0 {
		return field("kind", "is "+c.Kind+", which the sink "+b.Name+" cannot have", "leave out the format")
	}
	_, err := prefixOf(b, c.Prefix)
	return err
}

// setForCloudEvents names a field that is set and means nothing to the other
// kinds.
func (c *Config) setForCloudEvents() string {
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"mode", c.Mode != ""}, {"source", c.Source != ""}, {"type", c.Type != ""}, {"subject", c.Subject != ""},
		{"datacontenttype", c.DataContentType != ""}, {"dataschema", c.DataSchema != ""},
		{"extensions", len(c.Extensions) > 0}, {"sequence", c.Sequence}, {"prefix", c.Prefix != ""},
	} {
		if f.set {
			return f.name
		}
	}
	return ""
}

func (c *Config) validateHeaders() error {
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		place := fmt.Sprintf("headers[%q]", name)
		if name == "" || name == debeziumID {
			return field(place, "is not a name to choose", "the header id is there already; give every other a name")
		}
		if err := validTemplate(place, c.Headers[name]); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) validateCloudEvents() error {
	if c.Mode != Binary && c.Mode != Structured {
		return field("mode", fmt.Sprintf("is %q", c.Mode), "write binary or structured")
	}
	for _, f := range []struct{ name, template string }{
		{"source", c.Source}, {"type", c.Type}, {"subject", c.Subject}, {"dataschema", c.DataSchema},
	} {
		if err := validTemplate(f.name, f.template); err != nil {
			return err
		}
		if f.template == Omit && (f.name == "source" || f.name == "type") {
			return field(f.name, "cannot be left out", "CloudEvents requires it; write a template")
		}
	}
	// Parts that do not depend on the message are checked now, not with each message.
	if constant(c.Source) && !isURIReference(c.Source) {
		return field("source", fmt.Sprintf("is %q", c.Source), "write a URI or a path such as /orders; write special characters as %%XX")
	}
	if c.DataSchema != Omit && constant(c.DataSchema) && !isURI(c.DataSchema) {
		return field("dataschema", fmt.Sprintf("is %q", c.DataSchema), "write an absolute URI such as https://example.com/schemas/order.json")
	}
	if _, err := parseMediaType(c.DataContentType); err != nil {
		return field("datacontenttype", fmt.Sprintf("is %q", c.DataContentType), "write a media type such as application/json")
	}
	return c.validateExtensions()
}

func (c *Config) validateExtensions() error {
	for _, name := range slices.Sorted(maps.Keys(c.Extensions)) {
		place := fmt.Sprintf("extensions[%q]", name)
		switch {
		case name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") != "":
			return field(place, "is not a name that CloudEvents allows", "use lower-case letters and digits only")
		case isAttribute(name):
			return field(place, "is an attribute, not an extension", "use the field %s where there is one; choose another name otherwise", name)
		case name == sequence && c.Sequence:
			return field(place, "is there twice, because sequence is true", "remove one of the two")
		}
		if err := validTemplate(place, c.Extensions[name]); err != nil {
			return err
		}
	}
	return nil
}

// isAttribute reports whether the specification itself defines the name.
func isAttribute(name string) bool {
	return slices.Contains([]string{"data", specVersion, id, source, typ, subject, timeAttribute, dataContentType, dataSchema}, name)
}

func validTemplate(name, text string) error {
	if _, err := template.Parse(text); err != nil {
		return field(name, fmt.Sprintf("cannot be used (%v)", err), "write a template such as orders.{topic}")
	}
	return nil
}

// constant reports whether a template, known to be valid, has no placeholder
// and no brace.
func constant(template string) bool { return !strings.ContainsAny(template, "{}") }

var field = settings.Field
