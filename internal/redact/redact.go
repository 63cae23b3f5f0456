// Package redact keeps passwords and other secrets out of output.
package redact

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Masked replaces a secret.
const Masked = "xxxxx"

var (
	// From the first colon to the last @: a name or password that should have been
	// escaped may itself hold a slash, an @ or a space.
	userinfo = regexp.MustCompile(`(://[^:]*):.*@`)
	// NATS accepts a bare token instead of the user.
	natsToken = regexp.MustCompile(`(?i)\b((?:nats|tls|wss?)://)[^:@/\s]+@`)
	parameter = regexp.MustCompile(`(?i)([?&;\s"'][a-z0-9_.-]*` + Words + `[a-z0-9_.-]*=)[^&;#\s"']+`)
	secretKey = regexp.MustCompile(`(?i)` + Words)
)

// Words occur in the names of secrets.
const Words = `(?:passw(?:or)?d|passphrase|pwd|secret|token|seed|\bnkey|_nkey|private[_-]?key|api[_-]?key|access[_-]?key|sign(?:ing|ature)|authori[sz]ation|x-auth|bearer|cookie|credential)`

// Text masks the passwords in a URL, or in a text with a URL in it.
func Text(s string) string {
	s = userinfo.ReplaceAllStringFunc(s, func(found string) string {
		if found == "://user:password@" { // as hints show a URL's form
			return found
		}
		return userinfo.ReplaceAllString(found, "${1}:"+Masked+"@")
	})
	s = natsToken.ReplaceAllString(s, "${1}"+Masked+"@")
	return parameter.ReplaceAllString(s, "${1}"+Masked)
}

// Passwords returns the passwords in a URL, as written and decoded, for a writer that masks them
// in its output. The URL need not be valid, and may have several hosts, which net/url does not
// accept.
func Passwords(u string) []string {
	var found []string
	for _, part := range strings.Split(u, "://")[1:] {
		end := strings.IndexAny(part, "/?#")
		if end < 0 || !strings.Contains(part[:end], "@") {
			end = len(part) // a password that should have been escaped
		}
		login := part[:max(0, strings.LastIndexByte(part[:end], '@'))]
		if _, password, ok := strings.Cut(login, ":"); ok {
			found = append(found, password)
		}
	}
	_, query, _ := strings.Cut(u, "?")
	for pair := range strings.SplitSeq(query, "&") {
		if key, value, _ := strings.Cut(pair, "="); Secret(key) {
			found = append(found, value)
		}
	}
	for _, password := range found {
		for _, decode := range []func(string) (string, error){url.PathUnescape, url.QueryUnescape} {
			if plain, err := decode(password); err == nil {
				found = append(found, plain)
			}
		}
	}
	slices.Sort(found)
	return slices.DeleteFunc(slices.Compact(found), func(s string) bool { return s == "" })
}

// Secret reports whether a key's name says that it holds a secret. A key that names a file does
// not.
func Secret(key string) bool {
	return secretKey.MatchString(key) && !strings.HasSuffix(key, "_file")
}
