package adopt

import (
	"slices"
	"strings"
)

// layout lists the values that a statement selects of a row, each value once.
type layout struct {
	fields []selected
	// Indexes of fields.
	key, order                           []int
	createdAt, payload, headers, tracing int   // -1: not mapped
	wanted                               []int // by templates
	// spoken are the fields whose texts are needed: key, order and wanted.
	spoken []int
}

func (l *layout) add(f selected) int {
	if i := slices.IndexFunc(l.fields, func(known selected) bool { return known.sql == f.sql }); i >= 0 {
		return i
	}
	l.fields = append(l.fields, f)
	return len(l.fields) - 1
}

// speak adds a column whose text is needed.
func (l *layout) speak(c *column) int {
	i := l.add(valueOf(c))
	if !slices.Contains(l.spoken, i) {
		l.spoken = append(l.spoken, i)
	}
	return i
}

// narrow is a row's id and place.
func (m *mapping) narrow() *layout {
	l := &layout{createdAt: -1, payload: -1, headers: -1, tracing: -1}
	for _, c := range m.key {
		l.key = append(l.key, l.speak(c))
	}
	for _, c := range m.order {
		l.order = append(l.order, l.speak(c))
	}
	return l
}

// wide also has all other columns of a message.
func (m *mapping) wide() *layout {
	l := m.narrow()
	for _, c := range m.wanted {
		l.wanted = append(l.wanted, l.speak(c))
	}
	for _, f := range []struct {
		at *int
		of *column
		as func(*column) selected
	}{{&l.createdAt, m.createdAt, valueOf}, {&l.payload, m.payload, bytesOf}, {&l.headers, m.headers, valueOf}, {&l.tracing, m.tracing, valueOf}} {
		if f.of != nil {
			*f.at = l.add(f.as(f.of))
		}
	}
	return l
}

// sql is the list of a select.
func (l *layout) sql() string { return l.join(func(f *selected) string { return f.sql }) }

// nulls is such a list without a table.
func (l *layout) nulls() string { return l.join(func(f *selected) string { return f.null }) }

func (l *layout) join(part func(*selected) string) string {
	parts := make([]string, len(l.fields))
	for i := range l.fields {
		parts[i] = part(&l.fields[i])
	}
	return strings.Join(parts, ", ")
}
