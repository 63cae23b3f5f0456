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
	at     int // of the column among those that templates want
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
			t = append(t, templatePart{text: name, column: true})
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

// bind says where the values of the columns are.
func (t rowTemplate) bind(at func(column string) int) {
	for i := range t {
		if t[i].column {
			t[i].at = at(t[i].text)
		}
	}
}

// expand fills in the row's values. The error is errNull if one is NULL, with the text
// that has nothing in its place.
func (t rowTemplate) expand(value func(at int) (text string, there bool)) (string, error) {
	var err error
	part := func(p *templatePart) string {
		if !p.column {
			return p.text
		}
		text, there := value(p.at)
		if !there {
			err = errNull
			return ""
		}
		return text
	}
	switch len(t) {
	case 0:
		return "", nil
	case 1:
		return part(&t[0]), err
	}
	var b strings.Builder
	for i := range t {
		b.WriteString(part(&t[i]))
	}
	return b.String(), err
}
