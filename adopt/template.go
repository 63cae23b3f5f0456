package adopt

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// rowTemplate makes a text of a row: outbox.event.{aggregatetype}.
type rowTemplate []templatePart

type templatePart struct {
	text   string // the literal, or the column's name
	column bool
}

// parseTemplate compiles s: {name} is a column, {{ and }} are literal braces.
func parseTemplate(s string) (rowTemplate, error) {
	var t rowTemplate
	var lit strings.Builder
	flush := func() {
		if lit.Len() > 0 {
			t = append(t, templatePart{text: lit.String()})
			lit.Reset()
		}
	}
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c != '{' && c != '}':
			lit.WriteByte(c)
			i++
		case i+1 < len(s) && s[i+1] == c:
			lit.WriteByte(c)
			i += 2
		case c == '}':
			return nil, fmt.Errorf("is %q, with a } that closes nothing", s)
		default:
			name, _, closed := strings.Cut(s[i+1:], "}")
			if !closed {
				return nil, fmt.Errorf("is %q, with a { that is never closed", s)
			}
			if name == "" || len(name) > 63 || strings.ContainsAny(name, "{\x00") {
				return nil, fmt.Errorf("is %q, where {%s} is no column", s, name)
			}
			flush()
			t = append(t, templatePart{name, true})
			i += len(name) + 2
		}
	}
	flush()
	return t, nil
}

// columnTemplate is the template of a column alone.
func columnTemplate(name string) string { return "{" + name + "}" }

// literalTemplate is the template of a text.
func literalTemplate(s string) string {
	return strings.NewReplacer("{", "{{", "}", "}}").Replace(s)
}

// columns lists the columns that the template needs.
func (t rowTemplate) columns() (names []string) {
	for _, p := range t {
		if p.column && !slices.Contains(names, p.text) {
			names = append(names, p.text)
		}
	}
	return names
}

var errNull = errors.New("a column is NULL")

// expand fills in the row's values. The error is errNull if one is NULL, with the text
// that has nothing in its place.
func (t rowTemplate) expand(value func(column string) (text []byte)) (string, error) {
	switch {
	case len(t) == 0:
		return "", nil
	case len(t) == 1 && !t[0].column:
		return t[0].text, nil
	}
	var b strings.Builder
	var err error
	for _, p := range t {
		if !p.column {
			b.WriteString(p.text)
			continue
		}
		v := value(p.text)
		if v == nil {
			err = errNull
		}
		b.Write(v)
	}
	return b.String(), err
}
