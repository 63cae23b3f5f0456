// Package shell formats text that a person reads in a terminal and copies from there.
package shell

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Visible escapes characters that a terminal would obey or hide. Names, keys and errors come from
// anywhere: they must neither break a table nor move the cursor.
func Visible(s string) string {
	if strings.IndexFunc(s, Hidden) < 0 && utf8.ValidString(s) {
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
		case Hidden(r) && r < 0x100:
			fmt.Fprintf(&out, `\x%02x`, r)
		case Hidden(r) && r < 0x10000:
			fmt.Fprintf(&out, `\u%04x`, r)
		case Hidden(r):
			fmt.Fprintf(&out, `\U%08x`, r)
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}

// Hidden is true for a character that is not a letter, mark, number, sign or plain space: control
// characters, and those that change the direction of the text around them.
func Hidden(r rune) bool { return !unicode.IsPrint(r) }

// Word quotes s for a suggested command line if necessary.
func Word(s string) string {
	plain := func(r rune) bool {
		return r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r)) || strings.ContainsRune("-_./:@%+=,", r)
	}
	switch {
	case s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0:
		return s
	case strings.IndexFunc(s, Hidden) >= 0:
		return `$'` + strings.NewReplacer(`'`, `\'`).Replace(Visible(strings.ReplaceAll(s, `\`, `\\`))) + `'`
	}
	return `'` + strings.ReplaceAll(s, `'`, `'\''`) + `'`
}
