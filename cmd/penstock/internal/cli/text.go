package cli

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/shell"
)

func Plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return Count(n) + " " + what + "s"
}

func PluralVerb(n int64, what, one, many string) string {
	if n == 1 {
		return Plural(n, what) + " " + one
	}
	return Plural(n, what) + " " + many
}

// Count writes 1234567 as 1,234,567.
func Count(n int64) string {
	s := fmt.Sprint(n)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// Size writes bytes for people.
func Size(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, suffix := float64(n), ""
	for _, suffix = range []string{"KiB", "MiB", "GiB", "TiB"} {
		if f /= unit; f < unit {
			break
		}
	}
	return fmt.Sprintf("%.1f %s", f, suffix)
}

// Age writes a duration with the precision that people look for.
func Age(d time.Duration) string {
	switch {
	case d == 0:
		return "-"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d >= 100*time.Hour:
		return Coarse(d)
	}
	return d.Round(time.Second).String()
}

func OrDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func YesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// Visible writes s so that it stays in its line and moves no cursor.
func Visible(s string) string { return shell.Visible(s) }

// shorten keeps s within most characters, 0 for any number.
func shorten(s string, most int) string {
	if most == 0 || utf8.RuneCountInString(s) <= most {
		return s
	}
	runes := []rune(s)
	return string(runes[:most-1]) + "…"
}

// ShellWord quotes s for a command line that is suggested, where it needs it.
func ShellWord(s string) string { return shell.Word(s) }

// Wrap breaks a sentence at spaces, into lines of so many columns; those after the first begin with indent.
func Wrap(s, indent string, columns int) string {
	var out strings.Builder
	line := 0
	for i, word := range strings.Split(s, " ") {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case line+1+n > columns:
			out.WriteString("\n" + indent)
			line = len(indent)
		default:
			out.WriteString(" ")
			line++
		}
		out.WriteString(word)
		line += n
	}
	return out.String()
}

func Rate(perSecond float64) string {
	if perSecond >= 10 {
		return Count(int64(perSecond+0.5)) + "/s"
	}
	return fmt.Sprintf("%.1f/s", perSecond)
}

// RetentionText says it for people.
func RetentionText(r penstock.Retention) string {
	switch {
	case r.Age > 0 && r.Bytes > 0:
		return SpanText(r.Age) + " or " + Size(r.Bytes)
	case r.Age > 0:
		return SpanText(r.Age)
	case r.Bytes > 0:
		return Size(r.Bytes)
	}
	return "not at all"
}
