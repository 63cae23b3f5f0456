// Package sinkurl parses the configuration of a sink from the parameters of a URL, for a command
// line.
package sinkurl

import (
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/settings"
)

// Config has the methods of a sink's pointer to its configuration.
type Config[C any] interface {
	*C
	SetDefaults()
	Validate() error
}

// Read completes a configuration with the fields that a query names, and with the defaults, and validates it. kind
// is for messages: "a Kafka URL".
func Read[C any, P Config[C]](c C, query, kind string) (C, error) {
	var none C
	values, err := Parse(query)
	if err != nil {
		return none, err
	}
	if err := Set(&c, values, kind); err != nil {
		return none, err
	}
	P(&c).SetDefaults()
	err = P(&c).Validate()
	return c, err
}

// ReadServer is Read for a URL that may have a password. config makes the configuration of the part before the query.
// No error quotes the URL.
func ReadServer[C any, P Config[C]](u, kind string, config func(server string) C) (C, error) {
	server, query, _ := strings.Cut(u, "?")
	if strings.Contains(query, "@") && !strings.Contains(server, "@") { // the query may be the end of a password
		var none C
		return none, settings.Field("url", "is not "+kind, "in user and password write special characters as %%XX")
	}
	return Read[C, P](config(server), query, kind)
}

// Parse splits name=value pairs, which are separated by &. Its error, a
// *penstock.FieldError, does not quote them: the URL may hold a password.
func Parse(query string) (url.Values, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, &penstock.FieldError{Field: "url", Problem: "has parameters that cannot be read", Hint: "separate them by & and write special characters as %XX"}
	}
	return values, nil
}

// Set sets fields of a configuration, to which c points, by their names in YAML. A field of a group has
// the group's name and a dot in front, as has an entry of a table. It sets no field with the tag url:"-". kind is the kind of URL,
// as in "a Kafka URL". It returns a *penstock.FieldError for the first name, in alphabetical order,
// that is unknown, is given twice, or has an unusable value.
func Set(c any, values url.Values, kind string) error {
	config := reflect.ValueOf(c).Elem()
	known := map[string][]int{}
	note(known, config.Type(), "", nil)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		path, ok := known[name]
		group, entry, _ := strings.Cut(name, ".")
		if !ok && entry != "" {
			path, ok = known[group+".NAME"]
		}
		v := values[name]
		switch {
		case !ok:
			return settings.Field(name, "is not a parameter of "+kind, "use one of %s", strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		case len(v) > 1:
			return settings.Field(name, "is given twice", "give it once; lists are separated by commas")
		}
		field := at(config, path).Addr().Interface()
		table, isTable := field.(*map[string]string)
		size, isNumber := field.(*int)
		switch {
		case isTable:
			if *table == nil {
				*table = map[string]string{}
			}
			(*table)[entry] = v[0]
		case isNumber && settings.IsSize(name):
			n, problem, hint := settings.ParseSize(v[0])
			if problem != "" {
				return settings.Field(name, problem, "%s", hint)
			}
			*size = int(n)
		default:
			if err := settings.Parse(field, v[0]); err != nil {
				return settings.Field(name, fmt.Sprintf("is %q", v[0]), "%v", err)
			}
		}
	}
	return nil
}

// note records the places of a struct's fields, by name.
func note(known map[string][]int, of reflect.Type, prefix string, path []int) {
	for i := range of.NumField() {
		f := of.Field(i)
		if f.Tag.Get("url") == "-" {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		name, at := prefix+name, append(slices.Clone(path), i)
		group := f.Type
		if group.Kind() == reflect.Pointer {
			group = group.Elem()
		}
		switch {
		case f.Anonymous: // inline
			note(known, group, prefix, at)
		case group.Kind() == reflect.Struct:
			note(known, group, name+".", at)
		case group.Kind() == reflect.Map:
			known[name+".NAME"] = at
		default:
			known[name] = at
		}
	}
}

// at is the field at a path. A missing group on the way is created: naming a field of it enables it.
func at(v reflect.Value, path []int) reflect.Value {
	for _, i := range path {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		v = v.Field(i)
	}
	return v
}

// WithoutOptions returns a *penstock.FieldError if the field url of a configuration has options. Only the URL of a
// command line has them: here they would be ignored.
func WithoutOptions(u string) error {
	if strings.ContainsAny(u, "?#") {
		return settings.Field("url", "has options after the server", "write them as separate fields, or in one line behind a ?")
	}
	return nil
}

// CutHosts splits a URL around its hosts, which are separated by commas.
func CutHosts(u string) (before string, hosts []string, after string) {
	if scheme, rest, ok := strings.Cut(u, "://"); ok {
		before, u = scheme+"://", rest
	}
	if end := strings.IndexAny(u, "/?#"); end >= 0 {
		u, after = u[:end], u[end:]
	}
	if at := strings.LastIndexByte(u, '@'); at >= 0 {
		before, u = before+u[:at+1], u[at+1:]
	}
	return before, strings.Split(u, ","), after
}

// PerHost returns a URL for each of its hosts, for clients that support one.
func PerHost(u string) []string {
	before, hosts, after := CutHosts(u)
	urls := make([]string, len(hosts))
	for i, host := range hosts {
		urls[i] = before + host + after
	}
	return urls
}
