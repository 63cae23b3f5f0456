package config

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/adopted"
	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/internal/settings"
	"github.com/penstock/penstock/internal/test/docblock"
	"github.com/penstock/penstock/sink/format"
	"github.com/penstock/penstock/sink/nats"
	"github.com/penstock/penstock/sink/webhook"
)

// The example must work unchanged.
func TestExample(t *testing.T) {
	c, err := loader.Load("../../../../examples/penstock.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Subscriptions) < 4 {
		t.Error("subscriptions are missing")
	}
	filtered := 0
	for _, s := range c.Subscriptions {
		if !s.Filter.Empty() {
			filtered++
		}
	}
	if filtered < 2 {
		t.Error("filters are missing")
	}
	var defaults Relay
	if defaults.SetDefaults(); c.Relay != defaults {
		t.Errorf("the example says that these are the defaults:\n%+v\nbut they are\n%+v", c.Relay, defaults)
	}
}

// So must the other examples, with their variables.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../../../examples/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%v, %v", files, err)
	}
	set := Loader{ReadFile: readTestdata, LookupEnv: func(name string) (string, bool) {
		v, ok := map[string]string{
			"PENSTOCK_DATABASE_URL": env["PENSTOCK_DATABASE_URL"], "PARTNER_TOKEN": "hunter2", "KAFKA_USER": "app", "KAFKA_PASSWORD": "hunter2",
			"WEBHOOK_SECRET": "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
		}[name]
		return v, ok
	}}
	for _, file := range files {
		c, err := set.Load(file)
		if err != nil {
			t.Error(err)
			continue
		}
		if strings.Contains(c.String(), "hunter2") || strings.Contains(c.String(), "whsec_") {
			t.Errorf("%s: a secret shows in\n%s", file, c)
		}
	}
}

// So must those of other pages; one is a part of a subscription.
func TestExamplesOfPages(t *testing.T) {
	const token = "0123456789abcdef0123456789abcdef"
	set := Loader{
		ReadFile: func(path string) ([]byte, error) {
			if path != "/run/secrets/orders-token" {
				return readTestdata(path)
			}
			return []byte(token), nil
		},
		LookupEnv: func(name string) (string, bool) {
			v, ok := map[string]string{"PENSTOCK_DATABASE_URL": env["PENSTOCK_DATABASE_URL"], "PAYMENTS_TOKEN": token + "2"}[name]
			return v, ok
		},
	}
	c, err := set.LoadBytes("ingest.md", []byte(docblock.Of(t, "docs/guides/ingest.md", "yaml")[0]))
	if err != nil {
		t.Fatal(err)
	}
	if o := c.Serve.Outboxes; len(o) != 2 || o[0].Token != token || o[1].Token != token+"2" || o[0].Inbox != "ingest" {
		t.Errorf("%+v", o)
	}
	c, err = set.LoadBytes("relaying.md", []byte("database_url: ${PENSTOCK_DATABASE_URL}\n"+docblock.Of(t, "docs/guides/relaying.md", "yaml")[0]))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Subscriptions[0].Relay.Rate, (penstock.Rate{Jobs: 600, Per: time.Minute, Burst: 10}); got != want {
		t.Errorf("rate %+v, want %+v", got, want)
	}
	of := strings.ReplaceAll("\n"+docblock.Of(t, "docs/reference/formats.md", "yaml")[0], "\n", "\n    ")
	c, err = set.LoadBytes("formats.md", []byte("database_url: ${PENSTOCK_DATABASE_URL}\nsubscriptions:\n  - name: a\n    outbox: o"+of))
	if err != nil {
		t.Fatal(err)
	}
	if f := c.Subscriptions[0].Format; f == nil || f.Kind != format.Debezium || f.Headers["eventType"] != "{header.type}" {
		t.Errorf("%+v", f)
	}
}

// docs/reference/configuration.md has a row for every key, with its type and default, and no other
// rows.
func TestReference(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/reference/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	for i, after := range strings.Split(string(text), "```yaml\n")[1:] {
		block, _, _ := strings.Cut(after, "```")
		if i > 0 && !strings.Contains(block, "database_url") {
			block = "database_url: ${PENSTOCK_DATABASE_URL}\n" + block
		}
		if _, err := loader.LoadBytes("docs/reference/configuration.md", []byte(block)); err != nil {
			t.Errorf("example %d: %v\n%s", i+1, err, block)
		}
	}
	heading := regexp.MustCompile("^#+ .*?(?:`([a-z0-9_.\\[\\]]+)`)?$")
	row := regexp.MustCompile("^\\| `([a-z_.\\[\\]]+)` \\| ([^|]*) \\| ([^|]*) \\| (.+) \\|$")
	documented := map[string]string{}
	prefix := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if m := heading.FindStringSubmatch(line); m != nil {
			prefix = m[1]
		} else if m := row.FindStringSubmatch(line); m != nil {
			documented[join(prefix, m[1])] = m[2] + " | " + m[3]
		}
	}
	actual := map[string]string{}
	for _, r := range referenceRows() {
		actual[r.path] = r.typ + " | " + r.preset
		if got, ok := documented[r.path]; !ok || got != actual[r.path] {
			t.Errorf("%s: documented as %q, but it is\n| `%s` | %s | … |", r.path, got, r.path, actual[r.path])
		}
	}
	for path := range documented {
		if actual[path] == "" {
			t.Errorf("%s is documented and does not exist", path)
		}
	}
}

type referenceRow struct{ path, typ, preset string }

// required keys; the *-missing.bad.yaml files of testdata test that they are required.
var required = []string{"database_url", "subscriptions", "subscriptions[].name", "subscriptions[].sink", "serve.outboxes[].name", "workers[].queue"}

// referenceRows lists every key with its type and default.
func referenceRows() []referenceRow {
	var c Config
	var whole Subscription
	whole.Adopt = &Adopt{}
	whole.Adopt.SetDefaults()
	whole.ClaimCheck = &ClaimCheck{}
	whole.ClaimCheck.SetDefaults()
	whole.Format = &WireFormat{format.Config{Kind: format.CloudEvents}}
	whole.Format.SetDefaults()
	// Defaults that are explained in words: raw has none of the others, and these depend on names.
	whole.Format.Kind, whole.Format.Source, whole.Format.Extensions = format.Raw, "", nil
	c.Subscriptions = []Subscription{whole}
	c.Serve = &Serve{Outboxes: []ServeOutbox{{}}}
	c.Workers = []Worker{{}}
	c.SetDefaults()
	return rowsOf("", reflect.ValueOf(&c).Elem())
}

// sinkFields are the sinks, each with fields that exist only on request.
func sinkFields() (all []field) {
	for _, name := range drivers.SinkNames() {
		s, _ := drivers.SinkNamed(name)
		c := s.Config()
		if n, ok := c.(*nats.Config); ok {
			n.CreateStream = &nats.StreamConfig{}
			n.SetDefaults()
			embedded := nats.Config{Embedded: &nats.EmbeddedConfig{}}
			embedded.SetDefaults()
			n.Embedded = embedded.Embedded
		} else {
			s.SetDefaults()
		}
		all = append(all, field{name, reflect.ValueOf(c)})
	}
	return all
}

func rowsOf(path string, v reflect.Value) (rows []referenceRow) {
	fields := sinkFields()
	if _, isSink := v.Interface().(Sink); !isSink {
		fields = fieldsOf(v)
	}
	for _, f := range fields {
		p := join(path, f.key)
		value := f.value
		if value.Kind() == reflect.Pointer {
			value = value.Elem()
		}
		_, isSink := value.Addr().Interface().(*Sink)
		switch {
		case p == "subscriptions[].relay": // the same keys as above
			rows = append(rows, referenceRow{p, "as `relay`", ""})
		case value.Kind() == reflect.Slice && value.Type().Elem().Kind() == reflect.Struct:
			rows = append(rows, referenceRow{p, "list", preset(p, reflect.Zero(value.Type()))})
			rows = append(rows, rowsOf(p+"[]", value.Index(0))...)
		case isSink:
			rows = append(rows, referenceRow{p, "one sink", preset(p, value)})
			rows = append(rows, rowsOf(p, value)...)
		case value.Type() == reflect.TypeFor[Adopt]():
			rows = append(rows, referenceRow{p, "table", ""})
			rows = append(rows, rowsOf(p, value)...)
		case value.Type() == reflect.TypeFor[WireFormat]():
			rows = append(rows, referenceRow{p, "format", "`raw`"})
			rows = append(rows, rowsOf(p, value)...)
		case value.Type() == reflect.TypeFor[ClaimCheck]():
			rows = append(rows, referenceRow{p, "claim check", ""})
			rows = append(rows, rowsOf(p, value)...)
		case value.Type() == reflect.TypeFor[penstock.Filter]():
			rows = append(rows, referenceRow{p, "filter", ""})
			rows = append(rows, rowsOf(p, value)...)
		case value.Kind() == reflect.Struct && !isScalar(value):
			rows = append(rows, rowsOf(p, value)...)
		default:
			rows = append(rows, referenceRow{p, typeName(p, value), preset(p, value)})
		}
	}
	return rows
}

func typeName(path string, v reflect.Value) string {
	switch v.Interface().(type) {
	case URL:
		return "URL"
	case time.Duration:
		return "duration"
	case slog.Level:
		return "debug, info, warn, error"
	case Format:
		return "text, json"
	case Output:
		return "inherit, discard"
	case adopted.Delivered:
		return "delete, mark, status, archive"
	case Start:
		return "beginning, now"
	case OnDead:
		return "continue, hold"
	case Attempts:
		return "number, unlimited"
	case Age:
		return "duration, unlimited"
	case adopted.Value:
		return "value"
	case []adopted.Value:
		return "list of values"
	case []string:
		return "list of texts"
	case []URL:
		return "list of URLs"
	case []int:
		return "list of numbers"
	case []webhook.Secret:
		return "list of texts"
	case map[string]string, map[string]webhook.Secret:
		return "text by name"
	}
	switch {
	case v.Kind() == reflect.String:
		return "text"
	case v.Kind() == reflect.Bool:
		return "true, false"
	case settings.IsSize(path):
		return "size"
	}
	return "number"
}

func preset(path string, v reflect.Value) string {
	if slices.Contains(required, path) {
		return "required"
	}
	switch s := fmt.Sprint(show(path, v)); s {
	case "", "[]", "[[]]":
		return ""
	default:
		return "`" + strings.ReplaceAll(s, "guest:xxxxx", "guest:guest") + "`"
	}
}
