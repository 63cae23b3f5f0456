package config

import (
	"cmp"
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/internal/redact"
)

// decoder fills structs from YAML nodes by their yaml tags. It continues after a mistake, to find
// all mistakes of a file together. It remembers the place of each value, so later errors of
// Validate also have a place.
type decoder struct {
	src     *source
	resolve *resolver
	errs    Errors
	keys    map[string]position // path → its key or list entry
	values  map[string]position // path → its value, for single values
	broken  map[string]bool     // paths with a mistake at or below them
	opaque  map[string]bool     // paths whose keys could not be looked at
	given   map[string]bool     // paths set already, whose values in the file are not resolved
	// filledIn maps the replacements of ${ENV} and file: to the file's text, and secrets to the mask.
	// So neither shows in an error.
	filledIn map[string]string
}

func newDecoder(src *source, r *resolver) *decoder {
	d := &decoder{src: src, resolve: r, keys: map[string]position{}, values: map[string]position{}, broken: map[string]bool{},
		opaque: map[string]bool{}, given: map[string]bool{}, filledIn: map[string]string{}}
	r.filledIn = func(value, raw string) {
		if len(value) >= 4 { // replacing shorter ones would only garble the words around them
			d.filledIn[value] = redact.Text(raw)
		}
	}
	return d
}

func (d *decoder) fail(at position, path string, p problem) {
	d.errs = append(d.errs, d.src.errorAt(at, path, p.what, p.hint))
	d.markBroken(path)
}

// failed are the mistakes, with secrets masked in the lines that they show, or nil.
func (d *decoder) failed() error {
	if len(d.errs) == 0 {
		return nil
	}
	for _, e := range d.errs {
		for value, shown := range d.filledIn {
			if shown == redact.Masked && strings.Contains(e.Source, value) {
				e.Source, e.caret = strings.ReplaceAll(e.Source, value, redact.Masked), 0
			}
		}
	}
	slices.SortStableFunc(d.errs, func(a, b *Error) int { return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column)) })
	return d.errs
}

func (d *decoder) markBroken(path string) {
	for path != "" {
		d.broken[path] = true
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	d.broken[""] = true
}

// nodeDecoder is a type that is not decoded field by field, and shorthander one for which a single value may stand.
type (
	nodeDecoder interface {
		decodeNode(d *decoder, n ast.Node, path string)
	}
	shorthander interface{ shorthand(text string) error }
)

// value decodes n into v.
func (d *decoder) value(n ast.Node, v reflect.Value, path string) {
	if d.given[path] {
		return
	}
	if raw, _, single := scalarText(n); single {
		d.values[path] = nodePlace(n)
		if short, ok := v.Addr().Interface().(shorthander); ok {
			if text, ok := d.resolved(raw, nodePlace(n), path); ok {
				if err := short.shorthand(text); err != nil {
					d.fail(nodePlace(n), path, problem{d.scrub(err.Error()), ""})
				}
			}
			return
		}
	}
	if custom, ok := v.Addr().Interface().(nodeDecoder); ok {
		custom.decodeNode(d, n, path)
		return
	}
	if isScalar(v) {
		d.scalar(n, v, path)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(n, v.Elem(), path)
	case reflect.Struct:
		d.structure(n, v, path)
	case reflect.Slice:
		d.list(n, v, path)
	case reflect.Map:
		d.table(n, v, path)
	default:
		// A test walks every configuration type, so this cannot be reached.
		panic(fmt.Sprintf("config: %s has a type that no YAML is decoded into: %s", path, v.Type()))
	}
}

var textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()

func isScalar(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int64, reflect.Int32, reflect.Uint, reflect.Uint64, reflect.Uint32, reflect.Uint16, reflect.Float64:
		return true
	}
	return v.Addr().Type().Implements(textUnmarshaler)
}

// structure decodes a mapping. A key without a value ("relay:" above lines that are all commented
// out) is an empty mapping.
func (d *decoder) structure(n ast.Node, v reflect.Value, path string) {
	fields := fieldsOf(v)
	d.mapping(n, path, func(key string, at position, child ast.Node) {
		i := slices.IndexFunc(fields, func(f field) bool { return f.key == key })
		if i < 0 {
			d.unknown(at, path, key, keysOf(fields))
			return
		}
		d.value(child, fields[i].value, join(path, key))
	})
}

func (d *decoder) unknown(at position, path, key string, known []string) {
	hint := "known keys are " + drivers.OneOf(known)
	if len(known) == 0 {
		hint = "remove it: there are no settings here"
	} else if k := nearest(key, known); k != "" {
		hint = fmt.Sprintf("did you mean %s?", k)
		d.broken[join(path, k)] = true // it is misspelt, not missing
	}
	d.fail(at, join(path, printable(key)), problem{"is not a known key", hint})
}

// table decodes a mapping whose keys the user chooses.
func (d *decoder) table(n ast.Node, v reflect.Value, path string) {
	v.Set(reflect.MakeMap(v.Type()))
	d.mapping(n, path, func(key string, _ position, child ast.Node) {
		elem := reflect.New(v.Type().Elem()).Elem()
		d.value(child, elem, join(path, printable(key)))
		v.SetMapIndex(reflect.ValueOf(key).Convert(v.Type().Key()), elem)
	})
}

// mapping calls each for every key of n, and reports duplicate keys.
func (d *decoder) mapping(n ast.Node, path string, each func(key string, at position, child ast.Node)) {
	var pairs []*ast.MappingValueNode
	switch m := n.(type) {
	case *ast.MappingNode:
		pairs = m.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{m}
	case *ast.NullNode, nil:
		return
	default:
		d.opaque[path] = true
		d.fail(nodePlace(n), path, problem{"is " + describe(n) + ", not keys with values", "write key: value lines, indented below it"})
		return
	}
	first := map[string]int{}
	for _, pair := range pairs {
		key, at := pair.Key.GetToken().Value, place(pair.Key.GetToken())
		if line, twice := first[key]; twice {
			d.fail(at, join(path, printable(key)), problem{fmt.Sprintf("is given twice, first in line %d", line), "keep one"})
			continue
		}
		first[key] = at.line
		d.keys[join(path, printable(key))] = at
		each(key, at, pair.Value)
	}
}

func (d *decoder) list(n ast.Node, v reflect.Value, path string) {
	seq, ok := n.(*ast.SequenceNode)
	switch {
	case isNull(n):
		d.fail(d.near(path), path, problem{"has no value", "write a list, one entry per line that starts with -"})
		return
	case !ok:
		d.fail(nodePlace(n), path, problem{"is " + describe(n) + ", not a list", "start every entry with -"})
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(seq.Values), len(seq.Values)))
	for i, child := range seq.Values {
		entry := fmt.Sprintf("%s[%d]", path, i)
		d.keys[entry] = nodePlace(child)
		d.value(child, v.Index(i), entry)
	}
}

// near is the best known place of a path: its value, its key, or that of the
// closest parent.
func (d *decoder) near(path string) position {
	for {
		if at, ok := d.values[path]; ok {
			return at
		}
		if at, ok := d.keys[path]; ok {
			return at
		}
		if path == "" {
			return position{1, 1}
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
}

// scrub removes from a text all that the file itself does not show: the values of environment
// variables and secret files, and passwords.
func (d *decoder) scrub(text string) string {
	// Longest first: one value may be part of another.
	values := slices.SortedFunc(maps.Keys(d.filledIn), func(a, b string) int { return len(b) - len(a) })
	for _, v := range values {
		text = strings.ReplaceAll(text, v, d.filledIn[v])
		quoted := strconv.Quote(v) // as %q writes it in a longer text
		text = strings.ReplaceAll(text, quoted[1:len(quoted)-1], d.filledIn[v])
	}
	return redact.Text(text)
}

// field is a struct field that a key stands for.
type field struct {
	key   string
	value reflect.Value
}

// fieldsOf lists the fields with a yaml tag, in order; inlined structs are
// flattened.
func fieldsOf(v reflect.Value) []field {
	var out []field
	if sink, ok := v.Interface().(Sink); ok {
		if sink.Name() == "" {
			return nil
		}
		return []field{{sink.Name(), reflect.ValueOf(sink.Config())}}
	}
	for i := range v.NumField() {
		key, options, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
		switch {
		case key == "-":
		case strings.Contains(options, "inline"):
			out = append(out, fieldsOf(v.Field(i))...)
		case key != "":
			out = append(out, field{key, v.Field(i)})
		}
	}
	return out
}

func keysOf(fields []field) []string {
	out := make([]string, len(fields))
	for i, f := range fields {
		out[i] = f.key
	}
	return out
}

func join(path, key string) string {
	switch {
	case path == "":
		return key
	case key == "":
		return path
	}
	return path + "." + key
}

// printable is a user's key as an error can show it.
func printable(key string) string {
	if len(key) > 100 {
		key = strings.ToValidUTF8(key[:20], "") + "…"
	}
	if q := fmt.Sprintf("%q", key); len(q) != len(key)+2 || key == "" || strings.ContainsAny(key, " .[]:@") {
		return redact.Text(q)
	}
	return key
}

func isNull(n ast.Node) bool {
	_, null := n.(*ast.NullNode)
	return null || n == nil
}

func nodePlace(n ast.Node) position {
	switch n := n.(type) {
	case nil:
		return position{1, 1}
	case *ast.MappingNode:
		// The mapping's own token is the first colon.
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return place(n.Values[0].Key.GetToken())
		}
	case *ast.MappingValueNode:
		return place(n.Key.GetToken())
	}
	return place(n.GetToken())
}

// describe names the type of a node, for "is a list, not …".
func describe(n ast.Node) string {
	switch n := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number"
	case *ast.BoolNode:
		return "true or false"
	case *ast.NullNode:
		return "empty"
	case *ast.StringNode:
		if n.Token.Type == token.SingleQuoteType || n.Token.Type == token.DoubleQuoteType {
			return "a quoted text"
		}
	}
	return "a text"
}
