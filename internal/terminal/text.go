package terminal

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
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

// CountOf is a figure of a status, with a plus if it is among those that were not counted to their end.
func CountOf(n int64, name string, atLeast []string) string {
	if slices.Contains(atLeast, name) {
		return Count(n) + "+"
	}
	return Count(n)
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

// shorten keeps s within most characters; 0 means no limit.
func shorten(s string, most int) string {
	if most == 0 || utf8.RuneCountInString(s) <= most {
		return s
	}
	runes := []rune(s)
	return string(runes[:most-1]) + "…"
}

// Wrap breaks a sentence at spaces, into lines of a number of columns; those after the first begin with
// indent.
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
