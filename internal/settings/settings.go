// Package settings fills in and checks a configuration by the tags of its fields:
//
//	yaml:"timeout"             its name, for messages; otherwise that in Go
//	default:"10s"              replaces the zero value
//	min:"1" max:"64"           limits of a number or a duration; the least is 0 otherwise
//	oneof:"sent created"       the values that a text may have
//	template:"orders.{topic}"  the text is a template; this is an example, for messages
//	needs:"user"               it must not be set without that field
//
// Structs, and pointers to structs unless they are nil, are groups of fields.
package settings

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/template"
)

// Defaults sets the fields that are zero. c points to the configuration.
func Defaults(c any) {
	_ = each(reflect.ValueOf(c).Elem(), "", func(_ string, f *field) error {
		if text, ok := f.tag.Lookup("default"); ok && f.IsZero() {
			f.must(text, f.Value)
		}
		return nil
	})
}

// Check returns a *penstock.FieldError for the first field whose value its tags do not allow.
func Check(c any) error {
	return each(reflect.ValueOf(c).Elem(), "", func(name string, f *field) error {
		if f.Kind() == reflect.String && f.tag.Get("template") != "" {
			if _, err := template.Parse(f.String()); err != nil {
				return Field(name, fmt.Sprintf("cannot be used (%v)", err), "write a template such as %s", f.tag.Get("template"))
			}
		}
		words, other := strings.Fields(f.tag.Get("oneof")), f.tag.Get("needs")
		switch {
		case len(words) > 0 && !slices.Contains(words, f.String()):
			return Field(name, fmt.Sprintf("is %q", f.String()), "choose %s", OneOf(words))
		case other != "" && !f.IsZero() && f.sibling(other).IsZero():
			return Field(name, "is set without "+other, "set %s too, or leave it out", other)
		case f.CanInt():
			return f.within(name)
		}
		return nil
	})
}

// field is a field of a configuration.
type field struct {
	reflect.Value
	of  reflect.Value // the struct
	tag reflect.StructTag
}

// each visits the fields of a struct, and of those in it.
func each(of reflect.Value, prefix string, visit func(name string, f *field) error) error {
	for i := range of.NumField() {
		at := of.Type().Field(i)
		name, options, _ := strings.Cut(at.Tag.Get("yaml"), ",")
		if name == "" && options == "" && !at.Anonymous {
			name = at.Name
		}
		v := of.Field(i)
		if v.Kind() == reflect.Pointer {
			v = v.Elem() // no Kind if it is nil
		}
		var err error
		switch {
		case name == "-", !at.IsExported():
		case v.Kind() == reflect.Struct && name == "":
			err = each(v, prefix, visit)
		case v.Kind() == reflect.Struct:
			err = each(v, prefix+name+".", visit)
		case v.IsValid():
			err = visit(prefix+name, &field{v, of, at.Tag})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *field) sibling(name string) (v reflect.Value) {
	return f.of.FieldByNameFunc(func(field string) bool {
		at, _ := f.of.Type().FieldByName(field)
		return at.Tag.Get("yaml") == name
	})
}

// within checks the limits of a number or a duration.
func (f *field) within(name string) error {
	n, least, most := f.Int(), f.limit("min", 0), f.limit("max", math.MaxInt64)
	switch {
	case n >= least && n <= most:
		return nil
	case most < math.MaxInt64:
		return Field(name, fmt.Sprintf("is %v", f.Value), "choose %s to %s", cmp.Or(f.tag.Get("min"), "0"), f.tag.Get("max"))
	case least > 0:
		return Field(name, fmt.Sprintf("is %v", f.Value), "choose %s or more", f.tag.Get("min"))
	case f.Type() == reflect.TypeFor[time.Duration]():
		return Field(name, "is negative", "write a duration such as 5s")
	}
	return Field(name, "is negative", "write 0 or more")
}

func (f *field) limit(key string, none int64) int64 {
	text, ok := f.tag.Lookup(key)
	if !ok {
		return none
	}
	limit := reflect.New(f.Type()).Elem()
	f.must(text, limit)
	return limit.Int()
}

// must parses the text of a tag.
func (f *field) must(text string, into reflect.Value) {
	if err := Parse(into.Addr().Interface(), text); err != nil {
		panic(fmt.Sprintf("settings: the tag %s: %v", f.tag, err))
	}
}

// Parse sets the variable to which a pointer leads. Its error suggests a correct text.
func Parse(to any, text string) (err error) {
	switch f := to.(type) {
	case *string:
		*f = text
	case *[]string:
		*f = strings.Split(text, ",")
	case *int:
		if *f, err = strconv.Atoi(text); err != nil {
			return errors.New("write a whole number")
		}
	case *[]int:
		for part := range strings.SplitSeq(text, ",") {
			n, err := strconv.Atoi(part)
			if err != nil {
				return errors.New("write whole numbers separated by commas")
			}
			*f = append(*f, n)
		}
	case *bool:
		if *f, err = strconv.ParseBool(text); err != nil {
			return errors.New("write true or false")
		}
	case *time.Duration:
		if *f, err = time.ParseDuration(text); err != nil {
			return errors.New("write a duration such as 500ms, 5s or 2m")
		}
	default:
		return errors.New("write it into the configuration file")
	}
	return nil
}

// IsSize reports whether the field of that name is a number of bytes, which ParseSize parses.
func IsSize(name string) bool { return strings.HasSuffix(name, "bytes") }

// SizeUnits are the units of a size, the largest first.
var SizeUnits = []struct {
	Name  string
	Bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}, {"", 1}}

// ParseSize parses a number of bytes, with or without a unit. problem is empty if it can.
func ParseSize(text string) (n int64, problem, hint string) {
	for _, u := range SizeUnits {
		digits, ok := strings.CutSuffix(text, u.Name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		switch {
		case errors.Is(err, strconv.ErrRange) || err == nil && n > (1<<62)/u.Bytes:
			return 0, fmt.Sprintf("is %q, which is too large", text), "write a smaller size"
		case err != nil || strings.HasPrefix(digits, "+"):
			return 0, fmt.Sprintf("is %q, not a size", text), "write a whole number with KiB, MiB or GiB, such as 32MiB"
		case n < 0:
			return 0, fmt.Sprintf("is %q, which is negative", text), "write a positive size"
		}
		return n * u.Bytes, "", ""
	}
	return 0, "", "" // not reached: every text ends in ""
}

// OneOf writes "a, b or c".
func OneOf(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// Field is a *penstock.FieldError for a field of a configuration.
func Field(name, problem, hint string, args ...any) error {
	return &penstock.FieldError{Field: name, Problem: problem, Hint: fmt.Sprintf(hint, args...)}
}
