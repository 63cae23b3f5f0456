package pgerror

import (
	"strings"
	"unicode/utf8"
)

// NoSuchCharacter is the SQLSTATE for text that the encoding of the database cannot express.
const NoSuchCharacter = "22P05"

// ASCII is text that a database of any encoding can hold.
func ASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= utf8.RuneSelf {
			return '?'
		}
		return r
	}, s)
}
