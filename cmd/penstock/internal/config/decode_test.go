package config

import (
	"encoding"
	"reflect"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/drivers"
)

// Every field that a file can set has a key, and a type that can be decoded.
func TestEveryFieldCanBeDecoded(t *testing.T) {
	var walk func(path string, typ reflect.Type)
	walk = func(path string, typ reflect.Type) {
		v := reflect.New(typ).Elem()
		switch {
		case isScalar(v):
			if v.Kind() == reflect.Struct && !typ.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
				t.Errorf("%s: %s can be read and not printed", path, typ)
			}
		case typ.Kind() == reflect.Pointer, typ.Kind() == reflect.Slice:
			walk(path, typ.Elem())
		case typ.Kind() == reflect.Map && typ.Key().Kind() == reflect.String:
			walk(path+".*", typ.Elem())
		case typ.Kind() == reflect.Struct:
			for i := range typ.NumField() {
				f := typ.Field(i)
				key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
				switch {
				case !f.IsExported(), key == "-":
				case key == "" && !strings.Contains(f.Tag.Get("yaml"), "inline"):
					t.Errorf("%s: %s.%s has no yaml key", path, typ, f.Name)
				default:
					walk(join(path, key), f.Type)
				}
			}
		default:
			t.Errorf("%s: no YAML is decoded into %s", path, typ)
		}
	}
	walk("", reflect.TypeFor[Config]())
	for _, name := range drivers.SinkNames() {
		s, _ := drivers.SinkNamed(name)
		walk(name, reflect.TypeOf(s.Config()))
	}
}
