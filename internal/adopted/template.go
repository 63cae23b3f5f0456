package adopted

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock/penstock/internal/template"
)

// Template builds a text from a row: outbox.event.{aggregatetype}.
type Template []Part

// Part of a template.
type Part struct {
	Text   string // the literal, or the column's name
	Column bool
	at     int // of the column among those of all templates
}

// ParseTemplate compiles s: {name} is a column, {{ and }} are literal braces.
func ParseTemplate(s string) (Template, error) {
	pieces, problem, _ := template.Split(s)
	if problem != "" {
		return nil, fmt.Errorf("is %q, with %s", s, problem)
	}
	t := make(Template, len(pieces))
	for i, p := range pieces {
		if p.Braces && (p.Text == "" || len(p.Text) > 63 || strings.ContainsAny(p.Text, "{\x00")) {
			return nil, fmt.Errorf("is %q, where {%s} is not a column", s, p.Text)
		}
		t[i] = Part{Text: p.Text, Column: p.Braces}
	}
	return t, nil
}

// ColumnTemplate is the template with one column and nothing else.
func ColumnTemplate(name string) string { return "{" + name + "}" }

// LiteralTemplate is the template of a text.
func LiteralTemplate(s string) string {
	return strings.NewReplacer("{", "{{", "}", "}}").Replace(s)
}

// Columns lists the columns that the template needs.
func (t Template) Columns() (names []string) {
	for _, p := range t {
		if p.Column && !slices.Contains(names, p.Text) {
			names = append(names, p.Text)
		}
	}
	return names
}

var ErrNull = errors.New("a column is NULL")

// Bind sets the places of the columns' values.
func (t Template) Bind(at func(column string) int) {
	for i := range t {
		if t[i].Column {
			t[i].at = at(t[i].Text)
		}
	}
}

// Expand inserts the row's values. If one is NULL, the error is ErrNull, and the text has nothing
// in its place.
func (t Template) Expand(value func(at int) (text string, there bool)) (string, error) {
	var err error
	part := func(p *Part) string {
		if !p.Column {
			return p.Text
		}
		text, there := value(p.at)
		if !there {
			err = ErrNull
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
