package main

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// table lays out rows of cells for people: one line each, whatever the cells
// hold. The first rows decide how wide the columns are; then it writes as it
// goes, so that a million rows take no memory.
type table struct {
	w       io.Writer
	columns []column
	widths  []int
	rows    [][]string // not written yet
}

// column is one of a table.
type column struct {
	title string
	most  int // characters; longer cells are shortened; 0 for any
	right bool
}

// learnFrom is how many rows are held back to learn the widths from.
const learnFrom = 200

func newTable(w io.Writer, columns ...column) *table {
	t := &table{w: w, columns: columns, widths: make([]int, len(columns))}
	titles := make([]string, len(columns))
	for i, c := range columns {
		titles[i] = c.title
	}
	t.add(titles)
	return t
}

// row adds a line of one cell per column; an empty one is shown as a dash.
func (t *table) row(cells ...string) error {
	line := make([]string, len(cells))
	for i, cell := range cells {
		if line[i] = shorten(visible(cell), t.columns[i].most); cell == "" {
			line[i] = "-"
		}
	}
	t.add(line)
	if len(t.rows) > learnFrom {
		return t.flush()
	}
	return nil
}

func (t *table) add(line []string) {
	for i, cell := range line {
		t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
	}
	t.rows = append(t.rows, line)
}

// flush writes what was added since the last one.
func (t *table) flush() error {
	var out strings.Builder
	for _, line := range t.rows {
		for i, cell := range line {
			pad := strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(cell))
			if i > 0 {
				out.WriteString("  ")
			}
			switch last := i == len(line)-1; {
			case t.columns[i].right:
				out.WriteString(pad + cell)
			case last:
				out.WriteString(cell)
			default:
				out.WriteString(cell + pad)
			}
		}
		out.WriteByte('\n')
	}
	t.rows = t.rows[:0]
	_, err := io.WriteString(t.w, out.String())
	return err
}

// visible writes what a terminal would act on, or hide, as an escape. Names,
// keys and errors come from anywhere: they must neither break a table nor move
// the cursor.
func visible(s string) string {
	if strings.IndexFunc(s, hidden) < 0 && utf8.ValidString(s) {
		return s
	}
	var out strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)):
			fmt.Fprintf(&out, `\x%02x`, s[i])
		case r == '\n':
			out.WriteString(`\n`)
		case r == '\r':
			out.WriteString(`\r`)
		case r == '\t':
			out.WriteString(`\t`)
		case hidden(r) && r < 0x100:
			fmt.Fprintf(&out, `\x%02x`, r)
		case hidden(r) && r < 0x10000:
			fmt.Fprintf(&out, `\u%04x`, r)
		case hidden(r):
			fmt.Fprintf(&out, `\U%08x`, r)
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}

// hidden is true of what is no letter, mark, number, sign or plain space:
// control characters, and those that turn the direction of the text around.
func hidden(r rune) bool { return !unicode.IsPrint(r) }

// shorten keeps s within most characters, 0 for any number.
func shorten(s string, most int) string {
	if most == 0 || utf8.RuneCountInString(s) <= most {
		return s
	}
	runes := []rune(s)
	return string(runes[:most-1]) + "…"
}

// shellWord quotes s for a command line that is suggested, where it needs it.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r)) || strings.ContainsRune("-_./:@%+=,", r)
	}
	switch {
	case s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0:
		return s
	case strings.IndexFunc(s, hidden) >= 0:
		return `$'` + strings.NewReplacer(`'`, `\'`).Replace(visible(strings.ReplaceAll(s, `\`, `\\`))) + `'`
	}
	return `'` + strings.ReplaceAll(s, `'`, `'\''`) + `'`
}
