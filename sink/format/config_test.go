package format_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/sink/format"
	"github.com/penstock/penstock/sink/kafka"
)

func TestConfigErrors(t *testing.T) {
	ce := func(change func(*format.Config)) format.Config {
		c := format.Config{Kind: format.CloudEvents}
		change(&c)
		return c
	}
	ext := func(name, value string) format.Config {
		return ce(func(c *format.Config) { c.Extensions = map[string]string{name: value} })
	}
	for _, c := range []struct {
		config format.Config
		want   string // the field, and a part of the error
	}{
		{format.Config{Kind: "avro"}, `kind is "avro": write raw`},
		{format.Config{Mode: format.Binary}, "mode is set, but kind is raw"},
		{format.Config{Source: "/x"}, "source is set, but kind is raw"},
		{format.Config{Kind: format.Debezium, Type: "x"}, "type is set, but kind is debezium"},
		{format.Config{Kind: format.Debezium, Sequence: true}, "sequence is set"},
		{format.Config{Headers: map[string]string{"a": "b"}}, "headers is set, but kind is raw"},
		{format.Config{Kind: format.Debezium, Headers: map[string]string{"id": "{key}"}}, `headers["id"] is not a name to choose`},
		{format.Config{Kind: format.Debezium, Headers: map[string]string{"a": "{ky}"}}, `headers["a"] cannot be used`},
		{ce(func(c *format.Config) { c.Headers = map[string]string{"a": "b"} }), "headers is set, but kind is cloudevents: write them under extensions"},
		{ce(func(c *format.Config) { c.Mode = "batch" }), `mode is "batch"`},
		{ce(func(c *format.Config) { c.Source = "a b" }), `source is "a b"`},
		{ce(func(c *format.Config) { c.Source = "größe" }), `source is "größe"`},
		{ce(func(c *format.Config) { c.Source = "{tpc}" }), "source cannot be used"},
		{ce(func(c *format.Config) { c.Source = format.Omit }), "source cannot be left out"},
		{ce(func(c *format.Config) { c.Type = format.Omit }), "type cannot be left out"},
		{ce(func(c *format.Config) { c.Type = "{" }), "type cannot be used"},
		{ce(func(c *format.Config) { c.Subject = "}" }), "subject cannot be used"},
		{ce(func(c *format.Config) { c.DataSchema = "/relative" }), `dataschema is "/relative"`},
		{ce(func(c *format.Config) { c.DataContentType = "json" }), `datacontenttype is "json"`},
		{ce(func(c *format.Config) { c.DataContentType = "application/größe" }), "datacontenttype is"},
		{ext("Tenant", "x"), `extensions["Tenant"] is not a name that CloudEvents allows`},
		{ext("tenant_id", "x"), "lower-case letters and digits"},
		{ext("", "x"), "is not a name"},
		{ext("id", "x"), "is an attribute, not an extension"},
		{ext("data", "x"), "is an attribute, not an extension"},
		{ext("tenant", "{"), `extensions["tenant"] cannot be used`},
		{ce(func(c *format.Config) { c.Sequence, c.Extensions = true, map[string]string{"sequence": "1"} }), "is there twice"},
		{ce(func(c *format.Config) { c.Prefix = "cloudEvents:" }), `prefix is "cloudEvents:", which consumers of kafka do not know: leave it out, or write ce_`},
	} {
		_, err := format.Wrap(&recorder{}, c.config, kafka.Driver.Binding)
		var field *penstock.FieldError
		if !errors.As(err, &field) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v\n%v\nwant %s", c.config, err, c.want)
		}
	}
	for _, kind := range []string{format.CloudEvents, format.Debezium} {
		if _, err := format.Wrap(&recorder{}, format.Config{Kind: kind}, format.Binding{Name: "queue"}); err == nil || !strings.Contains(err.Error(), "which the sink queue cannot have") {
			t.Errorf("%s for a sink that has no formats: %v", kind, err)
		}
	}
	if _, err := format.Wrap(&recorder{}, format.Config{}, format.Binding{Name: "queue"}); err != nil {
		t.Error(err)
	}
}

func TestDefaults(t *testing.T) {
	c := format.Config{Kind: format.CloudEvents, Extensions: map[string]string{"tenant": "{key}", "tracestate": format.Omit}}
	mine := maps.Clone(c.Extensions)
	d := c
	d.SetDefaults()
	once := d
	d.SetDefaults()
	if !maps.Equal(d.Extensions, once.Extensions) || !maps.Equal(c.Extensions, mine) {
		t.Errorf("SetDefaults is not the same twice, or changes the caller's map: %v, %v", d.Extensions, c.Extensions)
	}
	for name, want := range map[string]string{"tenant": "{key}", "tracestate": format.Omit, "partitionkey": "{key}", "traceparent": "{header.traceparent}"} {
		if d.Extensions[name] != want {
			t.Errorf("%s is %q, want %q", name, d.Extensions[name], want)
		}
	}
	var raw format.Config
	raw.SetDefaults()
	check(t, raw.Validate())
}

// The default source of any name is valid.
func TestDefaultSource(t *testing.T) {
	for _, name := range []string{"orders", "größe & {topic} 100%", "a/b:c"} {
		c := format.Config{Kind: format.CloudEvents, Source: format.DefaultSource(name)}
		c.SetDefaults()
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", c.Source, err)
		}
	}
	if s := format.DefaultSource("orders"); s != "/penstock/orders" {
		t.Error(s)
	}
}
