package format

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/descriptor"
	"github.com/penstock/penstock/internal/template"
)

// The names of CloudEvents 1.0. The tests take them from its SDK, which would make the program larger by a sixth.
const (
	specVersion     = "specversion"
	id              = "id"
	source          = "source"
	typ             = "type"
	subject         = "subject"
	timeAttribute   = "time"
	dataContentType = "datacontenttype"
	dataSchema      = "dataschema"
	structuredJSON  = "application/cloudevents+json"
)

// sequence is the documented extension of that name. Its values sort as text, so they have the
// digits of the largest position.
const sequence = "sequence"

// dataRef is the documented extension for a claim check. An event that has it has no data.
const dataRef = "dataref"

// cloudEvents makes CloudEvents of messages, in either mode.
type cloudEvents struct {
	attributes  []attribute
	binding     Binding
	names       map[string]bool // of attributes as headers, in lower case
	contentType string          // of payloads that do not state it
	structured  bool
}

// attribute is a context attribute: its name, and its value in canonical string form. An empty
// value means that the event lacks it.
type attribute struct {
	name     string // in the specification, and in JSON
	header   string // in binary mode
	percent  bool   // the header's value is percent-encoded
	required bool
	value    func(m *penstock.Message, s *scratch) (string, error)
	check    func(value string) error // nil: always valid
	hint     string
}

func newCloudEvents(cfg Config, b Binding) (*cloudEvents, error) {
	prefix, err := prefixOf(b, cfg.Prefix)
	if err != nil {
		return nil, err
	}
	c := &cloudEvents{binding: b, names: map[string]bool{}, contentType: cfg.DataContentType, structured: cfg.Mode == Structured}
	if err := c.define(cfg); err != nil {
		return nil, err
	}
	for i := range c.attributes {
		a := &c.attributes[i]
		// spec.WithPrefix would make the prefix lower case.
		a.header, a.percent = prefix+a.name, b.Percent
		if a.name == dataContentType {
			a.header, a.percent = b.DataContentType, b.Percent && b.DataContentType != descriptor.ContentType
		}
		c.names[strings.ToLower(a.header)] = true
	}
	return c, nil
}

// define lists the attributes in the order in which they are written.
func (c *cloudEvents) define(cfg Config) error {
	c.add(attribute{name: specVersion, required: true, value: func(*penstock.Message, *scratch) (string, error) { return "1.0", nil }})
	c.add(attribute{name: id, required: true, check: checkText, hint: "publish with an id, or let the store derive one",
		value: func(m *penstock.Message, _ *scratch) (string, error) { return m.ID, nil }})
	if err := c.template(source, cfg.Source, checkSource(cfg.Source)); err != nil {
		return err
	}
	if err := c.template(typ, cfg.Type, checkText); err != nil {
		return err
	}
	if err := c.template(subject, cfg.Subject, checkText); err != nil {
		return err
	}
	c.add(attribute{name: timeAttribute, value: timeOf, hint: "correct the time of the message"})
	c.add(attribute{name: dataContentType, required: true, value: func(_ *penstock.Message, s *scratch) (string, error) {
		return s.mediaType.text, nil
	}})
	if err := c.template(dataSchema, cfg.DataSchema, checkURI); err != nil {
		return err
	}
	if cfg.Extensions[dataRef] == "" {
		c.add(attribute{name: dataRef, check: checkURI, hint: "it comes from the header " + penstock.HeaderClaimCheck,
			value: func(m *penstock.Message, _ *scratch) (string, error) { return storedAt(m), nil }})
	}
	if cfg.Sequence {
		c.add(attribute{name: sequence, value: position})
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Extensions)) {
		if err := c.extension(name, cfg.Extensions[name]); err != nil {
			return err
		}
	}
	return nil
}

func (c *cloudEvents) add(a attribute) { c.attributes = append(c.attributes, a) }

// template adds an attribute of the specification.
func (c *cloudEvents) template(name, text string, check func(string) error) error {
	if text == Omit {
		return nil
	}
	t, err := template.Parse(text)
	if err != nil {
		return err
	}
	value := optional(t)
	required := name == source || name == typ
	if required {
		value = func(m *penstock.Message, _ *scratch) (string, error) { return t.Execute(m) }
	}
	c.add(attribute{name: name, required: required, value: value, check: check, hint: comesFrom(text) + "format." + name})
	return nil
}

// extension adds an extension attribute.
func (c *cloudEvents) extension(name, text string) error {
	if text == Omit {
		return nil
	}
	t, err := template.Parse(text)
	if err != nil {
		return err
	}
	c.add(attribute{name: name, value: optional(t), check: checkText, hint: comesFrom(text) + "format.extensions." + name})
	return nil
}

func optional(t *template.Template) func(*penstock.Message, *scratch) (string, error) {
	return func(m *penstock.Message, _ *scratch) (string, error) {
		v, _ := t.Optional(m)
		return v, nil
	}
}

func comesFrom(text string) string {
	return fmt.Sprintf("it comes from the template %q: change the message, or ", text)
}

func timeOf(m *penstock.Message, s *scratch) (string, error) {
	if m.CreatedAt.IsZero() {
		return "", nil
	}
	if y := m.CreatedAt.UTC().Year(); y < 0 || y > 9999 {
		return "", fmt.Errorf("is in the year %d, which RFC 3339 cannot write", y)
	}
	return s.timestamp(m.CreatedAt), nil
}

func position(m *penstock.Message, _ *scratch) (string, error) {
	if m.Seq <= 0 {
		return "", nil
	}
	return fmt.Sprintf("%019d", m.Seq), nil
}

// checkSource: a source that is the same for all messages was checked with the configuration.
func checkSource(text string) func(string) error {
	if constant(text) {
		return nil
	}
	return func(v string) error {
		if !isURIReference(v) {
			return errors.New("is not a URI reference; special characters are written as %XX")
		}
		return nil
	}
}

func checkURI(v string) error {
	if !isURI(v) {
		return errors.New("is not an absolute URI")
	}
	return nil
}

// of returns the attribute's value in the event of m. The error explains why there is no such event.
func (a *attribute) of(m *penstock.Message, s *scratch) (string, error) {
	v, err := a.value(m, s)
	if strings.TrimSpace(v) == "" {
		v = "" // to the SDK too
	}
	switch {
	case err != nil:
	case v == "" && a.required:
		err = errors.New("is empty, and CloudEvents requires it")
	case v != "" && a.check != nil:
		err = a.check(v)
	}
	if err != nil {
		return "", penstock.WithHint(fmt.Errorf("the attribute %s %w", a.name, err), "%s", a.hint)
	}
	return v, nil
}

func (c *cloudEvents) encode(m *penstock.Message, headers map[string]string, s *scratch) ([]byte, error) {
	if err := c.ownHeaders(m, headers, s); err != nil {
		return nil, err
	}
	payload := m.Payload
	if storedAt(m) != "" {
		payload = nil
	}
	if c.structured {
		headers[c.binding.Structured] = structuredJSON
		return c.json(m, payload, s)
	}
	for i := range c.attributes {
		a := &c.attributes[i]
		v, err := a.of(m, s)
		switch {
		case err != nil:
			return nil, err
		case v == "":
			continue
		case a.percent:
			v = percentEncode(v)
		}
		headers[a.header] = v
	}
	return payload, nil
}

// storedAt is the URL of the payload of a message from claimcheck.Wrap, or empty.
func storedAt(m *penstock.Message) string {
	reference := m.Headers[penstock.HeaderClaimCheck]
	if reference == "" || string(m.Payload) != fmt.Sprintf("[%q,%s]", penstock.HeaderClaimCheck, reference) {
		return "" // a producer has set it
	}
	var at struct {
		URL string `json:"url"`
	}
	_ = json.Unmarshal([]byte(reference), &at)
	return at.URL
}

// ownHeaders copies the message's headers, which travel with the event, and takes the content type
// out of them.
func (c *cloudEvents) ownHeaders(m *penstock.Message, headers map[string]string, s *scratch) error {
	declared, from := "", ""
	for name, value := range m.Headers {
		switch {
		case strings.EqualFold(name, descriptor.ContentType):
			if name > from { // all in lower case is the last of all spellings
				declared, from = strings.TrimSpace(value), name
			}
		case !reserved(c.binding, name):
			headers[name] = value
		case !c.names[strings.ToLower(name)]:
			// Consumers could take it for an attribute, and some refuse the event if it is not
			// a legal one.
			return penstock.WithHint(fmt.Errorf("the header %q would pass for an attribute of the event", name),
				"publish it under another name; attributes go under format.extensions")
		}
	}
	if declared == "" {
		declared = c.contentType
	}
	if err := s.setContentType(declared); err != nil {
		return penstock.WithHint(fmt.Errorf("the header content-type is %q, which is not a media type (%w)", declared, err),
			"publish with one such as application/json")
	}
	return nil
}
