// Package template fills routing keys, subjects and the like from a message:
//
//	orders.{header.region}.{topic}
//
// Placeholders are {topic}, {key} and {header.NAME}; {{ and }} are literal
// braces. There are no expressions, no escapes and no defaults, on purpose:
// whatever needs thought belongs to the producer, who can set a header.
package template

import (
	"fmt"
	"strings"

	"github.com/penstock/penstock"
)

// Allowed lists the contents of a template, for messages to the user.
const Allowed = "{topic}, {key}, {header.NAME}, and {{ or }} for a literal brace"

// Template is a parsed template. It is immutable and safe for concurrent use.
type Template struct {
	source string
	parts  []part
}

type part struct {
	kind kind
	text string // the literal, the placeholder, or the header's name
}

type kind uint8

const (
	literal kind = iota
	topic
	key
	header
)

// ParseError shows where a template is wrong.
type ParseError struct {
	Template string
	Offset   int // in bytes, from 0
	Problem  string
}

func (e *ParseError) Error() string {
	return fmt.Sprintf("template %q: at character %d: %s; allowed are %s",
		e.Template, 1+len([]rune(e.Template[:e.Offset])), e.Problem, Allowed)
}

// Piece is a literal, or the text between two braces.
type Piece struct {
	Text   string
	Braces bool
	At     int // in bytes, of the brace
}

// Split takes s apart; {{ and }} are literal braces. A brace without its partner is the problem, and at its place.
func Split(s string) (pieces []Piece, problem string, at int) {
	var lit strings.Builder
	flush := func() {
		if lit.Len() > 0 {
			pieces = append(pieces, Piece{Text: lit.String()})
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
			return nil, "a } that closes nothing", i
		default:
			inside, _, closed := strings.Cut(s[i+1:], "}")
			if !closed {
				return nil, "a { that is never closed", i
			}
			flush()
			pieces = append(pieces, Piece{inside, true, i})
			i += len(inside) + 2
		}
	}
	flush()
	return pieces, "", 0
}

// Parse compiles s. The error is a *ParseError.
func Parse(s string) (*Template, error) {
	t := &Template{source: s}
	pieces, problem, at := Split(s)
	if problem != "" {
		return nil, &ParseError{s, at, problem}
	}
	for _, piece := range pieces {
		p := part{literal, piece.Text}
		if piece.Braces {
			if p, problem = placeholder(piece.Text); problem != "" {
				return nil, &ParseError{s, piece.At, problem}
			}
		}
		t.parts = append(t.parts, p)
	}
	return t, nil
}

func placeholder(name string) (p part, problem string) {
	if h, ok := strings.CutPrefix(name, "header."); ok && h != "" && !strings.Contains(h, "{") {
		return part{header, h}, ""
	}
	switch name {
	case "topic":
		return part{topic, name}, ""
	case "key":
		return part{key, name}, ""
	case "":
		return p, "a placeholder without a name"
	case "header", "header.":
		return p, "a header placeholder without the header's name"
	}
	return p, fmt.Sprintf("unknown placeholder {%s}", name)
}

// Execute fills the template from m. A header that m lacks is a penstock.Permanent error: sending
// the same message again cannot fix it.
func (t *Template) Execute(m *penstock.Message) (string, error) {
	if s, ok := t.Optional(m); ok {
		return s, nil
	}
	return t.Escape(m, func(_, value string) (string, error) { return value, nil }) // which names the header
}

// Optional fills the template from m and reports whether m has every header
// that it needs.
func (t *Template) Optional(m *penstock.Message) (string, bool) {
	// A single part needs no building, so the usual {topic} allocates nothing.
	if len(t.parts) == 1 {
		return t.parts[0].value(m)
	}
	size := 0
	for _, p := range t.parts {
		v, ok := p.value(m)
		if !ok {
			return "", false
		}
		size += len(v)
	}
	var b strings.Builder
	b.Grow(size)
	for _, p := range t.parts {
		v, _ := p.value(m)
		b.WriteString(v)
	}
	return b.String(), true
}

// value is false for a header that m lacks.
func (p part) value(m *penstock.Message) (string, bool) {
	switch p.kind {
	case topic:
		return m.Topic, true
	case key:
		return m.Key, true
	case header:
		v, ok := m.Headers[p.text]
		return v, ok
	}
	return p.text, true
}

// String returns the template as it was written.
func (t *Template) String() string { return t.source }

// MissingHeaderError: the template names a header that the message does not
// have.
type MissingHeaderError struct {
	Template string
	Header   string
}

func (e *MissingHeaderError) Error() string {
	return fmt.Sprintf("the message has no header %q, which the template %q needs: publish messages with that header, or take it out of the template",
		e.Header, e.Template)
}

// Hyphens is for Escape: characters that a name cannot have become hyphens.
func Hyphens(named func(rune) bool) func(placeholder, value string) (string, error) {
	return func(_, value string) (string, error) {
		return strings.Map(func(r rune) rune {
			if named(r) {
				return r
			}
			return '-'
		}, value), nil
	}
}
