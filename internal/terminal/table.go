package terminal

import (
	"io"
	"strings"
	"unicode/utf8"

	"github.com/penstock/penstock/internal/shell"
)

// Table lays out rows of cells for people: one line each, whatever the cells contain. The first
// rows determine the width of the columns. From then on it writes at once, so a million rows take
// no memory.
type Table struct {
	w       io.Writer
	columns []Column
	widths  []int
	rows    [][]string // not written yet
	err     error      // the first of a write, which Flush returns
	Fit     int        // characters per line, for which columns with a most are shortened further; 0 means no limit
}

// Column is a column of the table.
type Column struct {
	Title string
	Most  int // characters; longer cells are shortened; 0 means no limit
	right bool
}

// Cells is a writer that lays out rows itself, as a page does.
type Cells interface {
	Cells(head []Column, rows [][]string)
}

// Right reports whether cells are aligned right.
func (c Column) Right() bool { return c.right }

func Left(title string) Column  { return Column{Title: title} }
func Right(title string) Column { return Column{Title: title, right: true} }

// Cut is a column whose cells are shortened to most characters.
func Cut(title string, most int) Column { return Column{Title: title, Most: most} }

// shortest is the least width to which a cell is shortened.
const shortest = 6

// squeeze shortens cells until the lines fit, those of the widest column first.
func (t *Table) squeeze() {
	for t.Fit > 0 {
		line, widest := 2*(len(t.widths)-1), -1
		for i, width := range t.widths {
			line += width
			if t.columns[i].Most > 0 && width > shortest && (widest < 0 || width > t.widths[widest]) {
				widest = i
			}
		}
		if line <= t.Fit || widest < 0 {
			return
		}
		t.widths[widest]--
	}
}

// learnFrom is how many rows are held back to determine the widths.
const learnFrom = 200

func NewTable(w io.Writer, columns ...Column) *Table {
	t := &Table{w: w, columns: columns, widths: make([]int, len(columns))}
	titles := make([]string, len(columns))
	for i, c := range columns {
		titles[i] = c.Title
	}
	if _, ok := w.(Cells); !ok { // which has them from the columns
		t.add(titles)
	}
	return t
}

// Row adds a line with one cell per column; an empty cell is shown as a dash.
func (t *Table) Row(cells ...string) {
	line := make([]string, len(cells))
	for i, cell := range cells {
		if line[i] = shorten(shell.Visible(cell), t.columns[i].Most); cell == "" {
			line[i] = "-"
		}
	}
	t.add(line)
	if len(t.rows) > learnFrom {
		_ = t.Flush()
	}
}

// Err is the error of Flush so far: a long list ends when its reader has gone.
func (t *Table) Err() error { return t.err }

func (t *Table) add(line []string) {
	for i, cell := range line {
		t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
	}
	t.rows = append(t.rows, line)
}

// Flush writes the rows added since the last Flush. Nothing is written after an error.
func (t *Table) Flush() error {
	if page, ok := t.w.(Cells); ok {
		page.Cells(t.columns, t.rows)
		t.rows = nil
		return nil
	}
	if t.err != nil {
		return t.err
	}
	t.squeeze()
	var out strings.Builder
	for _, line := range t.rows {
		for i, cell := range line {
			cell = shorten(cell, t.widths[i])
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
	_, t.err = io.WriteString(t.w, out.String())
	return t.err
}
