package config

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/goccy/go-yaml/ast"

	"github.com/penstock/penstock/internal/adopted"
	"github.com/penstock/penstock/internal/drivers"
)

// Adopt describes an existing table that a subscription reads instead of an outbox: a mapping, or
// only the name of a preset.
type Adopt struct {
	adopted.Config `yaml:",inline"`
}

func (a *Adopt) decodeNode(d *decoder, n ast.Node, path string) {
	raw, _, single := scalarText(n)
	if !single {
		d.structure(n, reflect.ValueOf(a).Elem(), path)
		return
	}
	if name, ok := d.resolved(raw, nodePlace(n), path); ok {
		a.Preset = name
	}
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
func (a Adopt) String() string { return tree(a).String() }

// MarshalJSON writes the keys of the file.
func (a Adopt) MarshalJSON() ([]byte, error) { return json.Marshal(tree(a).plain()) }
