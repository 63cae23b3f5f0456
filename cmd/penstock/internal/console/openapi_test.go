package console

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"time"
)

// Document describes the served API by its routes and the types of their requests and answers: OpenAPI 3.1.
func Document() []byte {
	d := &describer{schemas: map[string]any{}}
	type object = map[string]any
	answer := func(text string, t reflect.Type) object {
		return object{"description": text, "content": object{"application/json": object{"schema": d.schema(t)}}}
	}
	paths := map[string]object{}
	for _, r := range routes {
		op := object{"summary": r.summary, "operationId": operationID(r.method + r.path), "responses": object{
			"200": answer("It was read, or done.", r.answer), "default": answer("It could not be.", reflect.TypeFor[problem]())}}
		params := []any{}
		for _, m := range pathParam.FindAllStringSubmatch(r.path, -1) {
			params = append(params, object{"name": m[1], "in": "path", "required": true, "schema": object{"type": "string"}})
		}
		for _, name := range r.params {
			params = append(params, object{"name": name, "in": "query", "schema": object{"type": "string"}})
		}
		op["parameters"] = params
		if r.body != nil {
			op["requestBody"] = object{"required": true, "content": object{"application/json": object{"schema": d.schema(r.body)}}}
			op["security"] = []any{object{"operate": []string{}}}
		}
		if paths[r.path] == nil {
			paths[r.path] = object{}
		}
		paths[r.path][strings.ToLower(r.method)] = op
	}
	all := object{
		"openapi":  "3.1.0",
		"info":     object{"title": "Penstock", "version": "1", "description": "What penstock console shows, and what can be done there. Times in *_ns are nanoseconds."},
		"servers":  []any{object{"url": "api/v1"}},
		"security": []any{object{"read": []string{}}, object{"operate": []string{}}},
		"paths":    paths,
		"components": object{"schemas": d.schemas, "securitySchemes": object{
			"read":    object{"type": "http", "scheme": "bearer", "description": "The token of the role read, or as the password of the user read."},
			"operate": object{"type": "http", "scheme": "bearer", "description": "The token of the role operate, or as the password of the user operate."}}},
	}
	text, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		panic(err) // it is made of maps and texts
	}
	return append(text, '\n')
}

var pathParam = regexp.MustCompile(`\{(\w+)\}`)

func operationID(text string) string {
	return strings.Trim(regexp.MustCompile(`\W+`).ReplaceAllString(text, "_"), "_")
}

type describer struct{ schemas map[string]any }

// schema is the schema of a type as encoding/json writes it.
func (d *describer) schema(t reflect.Type) map[string]any {
	type object = map[string]any
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[json.RawMessage]():
		return object{} // any JSON
	case t == reflect.TypeFor[[]byte]():
		return object{"type": "string", "contentEncoding": "base64"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return d.schema(t.Elem())
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return object{"type": "integer"}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Slice:
		return object{"type": "array", "items": d.schema(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": d.schema(t.Elem())}
	case reflect.Struct:
		name := typeName.ReplaceAllString(t.Name(), "")
		if _, known := d.schemas[name]; !known {
			d.schemas[name] = nil // it may contain itself
			of := object{"type": "object", "additionalProperties": false}
			properties, required := object{}, []string{}
			d.fields(t, properties, &required)
			of["properties"], of["required"] = properties, required
			d.schemas[name] = of
		}
		return object{"$ref": "#/components/schemas/" + name}
	}
	panic("no schema for " + t.String())
}

var typeName = regexp.MustCompile(`[^\w]|github\.com/[\w/]+\.`)

func (d *describer) fields(t reflect.Type, properties map[string]any, required *[]string) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			d.fields(f.Type, properties, required)
		case name != "-" && f.IsExported():
			properties[name] = d.schema(f.Type)
			if !strings.Contains(options, "omit") {
				*required = append(*required, name)
			}
		}
	}
}
