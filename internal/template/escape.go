package template

import (
	"strings"

	"github.com/penstock/penstock"
)

// Escape fills the template as Execute does. Every value is passed through escape, and the text
// between them is unchanged. escape also gets the placeholder, as in "header.region"; its error
// ends Escape.
func (t *Template) Escape(m *penstock.Message, escape func(placeholder, value string) (string, error)) (string, error) {
	var b strings.Builder
	for _, p := range t.parts {
		value, ok := p.value(m)
		if !ok {
			return "", penstock.Permanent(&MissingHeaderError{Template: t.source, Header: p.text})
		}
		if p.kind != literal {
			name, err := p.text, error(nil)
			if p.kind == header {
				name = "header." + name
			}
			if value, err = escape(name, value); err != nil {
				return "", err
			}
		}
		b.WriteString(value)
	}
	return b.String(), nil
}

// Fixed reports whether the template has no placeholders.
func (t *Template) Fixed() bool {
	for _, p := range t.parts {
		if p.kind != literal {
			return false
		}
	}
	return true
}

// Headers returns the names of the headers that a message needs.
func (t *Template) Headers() (names []string) {
	for _, p := range t.parts {
		if p.kind == header {
			names = append(names, p.text)
		}
	}
	return names
}
