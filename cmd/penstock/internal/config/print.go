package config

import (
	"encoding"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/penstock/penstock/internal/redact"
	"github.com/penstock/penstock/internal/settings"
)

// String is the configuration as YAML, with all values that the file or a default sets, and
// without passwords.
func (c Config) String() string { return asYAML(c.tree()) }

// Format makes every fmt verb print String.
func (c Config) Format(f fmt.State, verb rune) { formatted(f, verb, c.String()) }

// MarshalJSON keeps passwords out of JSON.
func (c Config) MarshalJSON() ([]byte, error) { return asJSON(c.tree()) }

// MarshalYAML keeps passwords out of YAML.
func (c Config) MarshalYAML() (any, error) { return c.tree(), nil }

// tree shows only a subscription's own limits.
func (c Config) tree() yaml.MapSlice {
	c.Subscriptions = slices.Clone(c.Subscriptions)
	for i := range c.Subscriptions {
		s := &c.Subscriptions[i]
		s.Relay = s.Relay.except(c.Relay)
	}
	return tree(c)
}

// String is the sink's configuration as YAML, without passwords.
func (s Sink) String() string { return asYAML(tree(s)) }

// Format makes every fmt verb print String.
func (s Sink) Format(f fmt.State, verb rune) { formatted(f, verb, s.String()) }

// MarshalJSON keeps passwords out of JSON.
func (s Sink) MarshalJSON() ([]byte, error) { return asJSON(tree(s)) }

// MarshalYAML keeps passwords out of YAML.
func (s Sink) MarshalYAML() (any, error) { return tree(s), nil }

// tree builds the part of a struct with yaml tags that anyone may see, with each $ escaped as in a file.
func tree(config any) yaml.MapSlice {
	v := reflect.New(reflect.TypeOf(config)).Elem()
	v.Set(reflect.ValueOf(config))
	return showStruct(v)
}

func showStruct(v reflect.Value) yaml.MapSlice {
	out := yaml.MapSlice{}
	isLimits := v.Type() == reflect.TypeFor[Relay]()
	for _, f := range fieldsOf(v) {
		if f.value.Kind() == reflect.Pointer && f.value.IsNil() || isLimits && f.value.IsZero() {
			continue
		}
		value := show(f.key, f.value)
		if nested, ok := value.(yaml.MapSlice); value == "" || ok && len(nested) == 0 && f.value.Kind() != reflect.Pointer || f.value.Kind() == reflect.Slice && f.value.Len() == 0 {
			continue
		}
		out = append(out, yaml.MapItem{Key: f.key, Value: value})
	}
	return out
}

func show(key string, v reflect.Value) any {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch x := v.Interface().(type) {
	case time.Duration:
		return formatDuration(x)
	case Attempts:
		if x > 0 {
			return int(x) // and not a text, which would be quoted
		}
	case slog.Level:
		return strings.ToLower(x.String())
	case encoding.TextMarshaler:
		text, _ := x.MarshalText()
		return escapeDollar(string(text))
	}
	switch v.Kind() {
	case reflect.Struct:
		return showStruct(v)
	case reflect.Slice:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = show(key, v.Index(i))
		}
		return list
	case reflect.Map:
		table := yaml.MapSlice{}
		for k, e := range v.Seq2() {
			table = append(table, yaml.MapItem{Key: k.String(), Value: show(k.String(), e)})
		}
		slices.SortFunc(table, func(a, b yaml.MapItem) int { return strings.Compare(a.Key.(string), b.Key.(string)) })
		return table
	case reflect.String:
		if redact.Secret(key) && v.String() != "" {
			return redact.Masked
		}
		return escapeDollar(redact.Text(v.String()))
	case reflect.Int, reflect.Int64:
		if settings.IsSize(key) {
			return formatSize(v.Int())
		}
	}
	return v.Interface()
}

func asYAML(tree yaml.MapSlice) string {
	out, err := yaml.Marshal(tree)
	if err != nil {
		return "the configuration cannot be printed: " + err.Error()
	}
	return string(out)
}

func asJSON(tree yaml.MapSlice) ([]byte, error) {
	var plain map[string]any
	if err := yaml.Unmarshal([]byte(asYAML(tree)), &plain); err != nil {
		return nil, err
	}
	return json.Marshal(plain)
}

func escapeDollar(s string) string { return strings.ReplaceAll(s, "$", "$$") }
