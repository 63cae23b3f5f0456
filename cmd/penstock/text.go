package main

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return count(n) + " " + what + "s"
}

func pluralVerb(n int64, what, one, many string) string {
	if n == 1 {
		return plural(n, what) + " " + one
	}
	return plural(n, what) + " " + many
}

// count writes 1234567 as 1,234,567.
func count(n int64) string {
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

// size writes bytes for people.
func size(n int64) string {
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

// age writes a duration with the precision that people look for.
func age(d time.Duration) string {
	switch {
	case d == 0:
		return "-"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d >= 100*time.Hour:
		return coarse(d)
	}
	return d.Round(time.Second).String()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
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
