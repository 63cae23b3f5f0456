package check

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode"

	"github.com/penstock/penstock/internal/terminal"
)

// lineWidth is where text is broken. Statements and plans are not broken: users copy them.
const lineWidth = 100

// WriteText writes the report for people. The JSON form is the report itself.
func (r *Report) WriteText(w io.Writer) error {
	t := &text{}
	r.head(t)
	for i := range r.Findings {
		r.Findings[i].write(t)
	}
	if len(r.Unseen) > 0 {
		t.line("")
		t.line("Not seen:")
		for _, u := range r.Unseen {
			s := u.What + ": " + u.Why
			if u.Hint != "" {
				s += " (" + u.Hint + ")"
			}
			t.wrap("  ", s)
		}
	}
	_, err := io.WriteString(w, t.String())
	return err
}

func (r *Report) head(t *text) {
	rows := "a number of rows that is not known before a VACUUM or ANALYZE"
	if r.Table.Rows >= 0 {
		rows = "about " + terminal.Plural(r.Table.Rows, "row")
	}
	if r.Table.DeadRows > 0 {
		rows += ", " + number(float64(r.Table.DeadRows)) + " dead"
	}
	t.wrap("", fmt.Sprintf("%s.%s on PostgreSQL %s: %s, %s, and %s of indexes", r.Table.Schema, r.Table.Name, r.Table.Server,
		rows, bytes(float64(r.Table.Bytes)), bytes(float64(r.Table.IndexBytes))))
	var counts []string
	for s := Critical; ; s-- {
		if n := r.Count(s); n > 0 && s != Critical {
			counts = append(counts, terminal.Plural(int64(n), s.String()))
		} else if n > 0 {
			counts = append(counts, number(float64(n))+" critical")
		}
		if s == Note {
			break
		}
	}
	switch {
	case len(counts) == 0:
		t.line("nothing to report")
	case r.Clean():
		t.line(strings.Join(counts, ", ") + ": nothing to do")
	default:
		t.line(strings.Join(counts, ", "))
	}
}

func (f *Finding) write(t *text) {
	t.line("")
	t.wrap("", fmt.Sprintf("%s  %s [%s]", strings.ToUpper(f.Severity.String()), f.Title, f.Code))
	t.wrap("  ", f.Detail)
	for _, figure := range f.Evidence.Figures {
		t.line("    " + figure.Name + ": " + value(figure))
	}
	for _, line := range f.Evidence.Plan {
		t.line("    | " + line)
	}
	for i, s := range f.Fix {
		switch {
		case s.Alternative && i > 0:
			t.line("  or:")
		case i == 0:
			t.line("  to run:")
		}
		t.line("    " + s.SQL + ";")
		if s.By != "" {
			t.wrap("      -- ", s.By)
		}
		if s.Risk != "" {
			t.wrap("      -- ", s.Risk)
		}
	}
}

// value writes a figure for people.
func value(f Figure) string {
	switch f.Unit {
	case Bytes:
		return bytes(f.Value)
	case Seconds:
		return span(f.Value)
	case Percent:
		return fmt.Sprintf("%.0f %%", f.Value)
	}
	if f.Value != math.Trunc(f.Value) {
		return strconv.FormatFloat(f.Value, 'g', 3, 64)
	}
	return number(f.Value)
}

// bytes writes a size for people.
func bytes(n float64) string {
	for _, unit := range []string{"bytes", "KiB", "MiB", "GiB"} {
		if n < 10_000 {
			return number(n) + " " + unit
		}
		n /= 1024
	}
	return number(n) + " TiB"
}

// number writes a count with thousands separators.
func number(v float64) string { return terminal.Count(int64(math.Round(v))) }

// text collects the output, without control characters that a terminal would obey: names come from
// the database.
type text struct{ strings.Builder }

func (t *text) line(s string) {
	for _, r := range s {
		if unicode.IsPrint(r) || r == ' ' {
			t.WriteRune(r)
		} else {
			fmt.Fprintf(t, `\u%04x`, r)
		}
	}
	t.WriteByte('\n')
}

// wrap writes words in lines that begin with indent.
func (t *text) wrap(indent, s string) {
	for line := range strings.SplitSeq(terminal.Wrap(indent+strings.Join(strings.Fields(s), " "), indent, lineWidth), "\n") {
		t.line(line)
	}
}
