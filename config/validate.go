package config

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/relay"
)

// SetDefaults fills in what is not set.
func (c *Config) SetDefaults() {
	c.Relay.SetDefaults()
	if c.Log.Format == "" {
		c.Log.Format = Text
	}
	if scheme(c.DatabaseURL.Reveal()) != "sqlite" && c.Schema == "" {
		c.Schema = "penstock"
	}
	for i := range c.Subscriptions {
		c.Subscriptions[i].Sink.setDefaults()
	}
}

// SetDefaults fills in the relay's own defaults.
func (r *Relay) SetDefaults() {
	rc := r.Config()
	rc.SetDefaults()
	from, to := reflect.ValueOf(rc), reflect.ValueOf(r).Elem()
	for i := range to.NumField() {
		to.Field(i).Set(from.FieldByName(to.Type().Field(i).Name))
	}
}

// Config is a relay.Config with these limits and nothing else set.
func (r *Relay) Config() relay.Config {
	var rc relay.Config
	from, to := reflect.ValueOf(r).Elem(), reflect.ValueOf(&rc).Elem()
	for i := range from.NumField() {
		to.FieldByName(from.Type().Field(i).Name).Set(from.Field(i))
	}
	return rc
}

// validate checks what no single value shows. What is below a mistake that was
// reported already is left alone: a misspelt key would be missed once more.
func (d *decoder) validate(c *Config) {
	d.required("", "database_url", c.DatabaseURL.Reveal(), `write database_url: ${PENSTOCK_DATABASE_URL}, or postgres://… or sqlite:FILE itself`)
	if url := c.DatabaseURL.Reveal(); url != "" {
		if err := checkStoreURL(url, c.Schema); err != nil {
			d.invalid("", err)
		}
	}
	if !d.broken["relay"] {
		d.relay(&c.Relay)
	}
	if len(c.Subscriptions) == 0 && !d.broken["subscriptions"] && !d.opaque[""] {
		d.fail(d.near("subscriptions"), "subscriptions", problem{"is missing or empty", "list at least one, with name, outbox and sink"})
	}
	names := map[[2]string]string{}
	for i, s := range c.Subscriptions {
		path := fmt.Sprintf("subscriptions[%d]", i)
		if d.opaque[path] {
			continue
		}
		d.name(path, "name", s.Name, "name the subscription: the cursor is kept under this name")
		d.name(path, "outbox", s.Outbox, "name the outbox to read")
		id := [2]string{s.Outbox, s.Name}
		if first, twice := names[id]; twice && s.Name != "" && s.Outbox != "" {
			d.fail(d.near(path+".name"), path+".name", problem{fmt.Sprintf("is %q like %s of the same outbox", d.scrub(s.Name), first),
				"choose another name: each subscription has a cursor of its own"})
		} else if !twice {
			names[id] = path
		}
		d.sink(path+".sink", &c.Subscriptions[i].Sink)
	}
}

func (d *decoder) required(parent, key, value, hint string) bool {
	path := join(parent, key)
	if value != "" || d.broken[path] || d.opaque[parent] {
		return value != ""
	}
	what := "is missing"
	if _, given := d.keys[path]; given {
		what = "is empty"
	}
	d.fail(d.near(path), path, problem{what, hint})
	return false
}

const maxName = 48

func (d *decoder) name(parent, key, value, hint string) {
	if d.required(parent, key, value, hint) && len(value) > maxName {
		path := join(parent, key)
		d.fail(d.near(path), path, problem{fmt.Sprintf("is %d bytes long", len(value)), fmt.Sprintf("use at most %d", maxName)})
	}
}

// relay asks relay.Config, whose errors name its fields as Go does.
func (d *decoder) relay(r *Relay) {
	rc := r.Config()
	rc.Sink = unused{}
	rc.Open = func(context.Context) (penstock.Source, error) { return nil, penstock.ErrClosed }
	var f *penstock.FieldError
	if errors.As(rc.Validate(), &f) {
		d.invalid("relay", &penstock.FieldError{Field: yamlNames(f.Field), Problem: yamlNames(f.Problem), Hint: yamlNames(f.Hint)})
	}
}

// yamlNames replaces the names of Relay's fields in a text by their keys.
func yamlNames(text string) string {
	t := reflect.TypeFor[Relay]()
	fields := reflect.VisibleFields(t)
	// The longest first: MaxInFlight is also the start of MaxInFlightBytes.
	slices.SortFunc(fields, func(a, b reflect.StructField) int { return len(b.Name) - len(a.Name) })
	for _, f := range fields {
		text = strings.ReplaceAll(text, f.Name, f.Tag.Get("yaml"))
	}
	return text
}

// unused is a sink for checking the rest of a relay.Config.
type unused struct{ penstock.Sink }

func (d *decoder) sink(path string, s *Sink) {
	if d.broken[path] {
		return
	}
	cfg, name := s.config()
	if cfg == nil {
		d.fail(d.near(path), path, problem{"is missing", "write one of " + oneOf(sinkNames())})
		return
	}
	if _, asURL := d.values[path]; asURL {
		return // ParseSink has looked at it
	}
	d.invalid(path+"."+name, cfg.Validate())
}

// invalid places what a Validate found: a *penstock.FieldError names the field
// by its yaml name, dotted where fields are nested.
func (d *decoder) invalid(parent string, err error) {
	switch e := err.(type) { //nolint:errorlint // walks the tree itself
	case nil:
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			d.invalid(parent, err)
		}
	case *penstock.FieldError:
		path := join(parent, e.Field)
		d.fail(d.near(path), path, problem{d.scrub(e.Problem), d.scrub(e.Hint)})
	default:
		var f *penstock.FieldError
		if errors.As(err, &f) {
			d.invalid(parent, f)
			return
		}
		d.fail(d.near(parent), parent, problem{"cannot be used", d.scrub(err.Error())})
	}
}
