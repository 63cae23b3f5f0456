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
		name, value, ok := "", "", true
		switch p.kind {
		case literal:
			b.WriteString(p.text)
			continue
		case topic:
			name, value = "topic", m.Topic
		case key:
			name, value = "key", m.Key
		case header:
			name = "header." + p.text
			value, ok = m.Headers[p.text]
		}
		if !ok {
			return "", penstock.Permanent(&MissingHeaderError{Template: t.source, Header: p.text})
		}
		escaped, err := escape(name, value)
		if err != nil {
			return "", err
		}
		b.WriteString(escaped)
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
