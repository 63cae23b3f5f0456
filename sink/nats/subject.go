package nats

import (
	"fmt"
	"strings"

	"github.com/penstock/penstock"
)

// checkSubject refuses subjects that no stream stores under that name, as Permanent:
// wildcards, empty words, spaces, and the subjects by which a server is
// administered. A topic is data from a producer, and must not be able to delete
// a stream.
func checkSubject(subject string) error {
	if !validSubject(subject) {
		return penstock.Permanent(penstock.WithHint(fmt.Errorf("%q is not a NATS subject to publish to", subject),
			"subjects are words separated by single dots, without spaces, * and >; change the topic or the subject template"))
	}
	if subject[0] == '$' && (strings.HasPrefix(subject, "$JS.") || strings.HasPrefix(subject, "$SYS.")) {
		return penstock.Permanent(penstock.WithHint(fmt.Errorf("the subject %q administers the NATS server", subject),
			"let the subject template begin with a fixed word, as in orders.{topic}"))
	}
	return nil
}

func validSubject(s string) bool {
	word := 0 // bytes since the last dot
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '.':
			if word == 0 {
				return false
			}
			word = -1
		case c <= ' ' || c == 0x7f:
			return false
		case c == '*' || c == '>':
			// Elsewhere in a word they are plain characters.
			if word == 0 && (i+1 == len(s) || s[i+1] == '.') {
				return false
			}
		}
		word++
	}
	return word > 0
}
