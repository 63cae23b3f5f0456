package config

import (
	"fmt"
	"log/slog"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// masked stands where a secret was.
const masked = "xxxxx"

// URL is a URL that may hold a password. However it is printed, logged or
// marshalled, the password is masked; Reveal gives the URL itself.
type URL string

// Reveal returns the URL with its password, for opening a connection.
func (u URL) Reveal() string { return string(u) }

func (u URL) String() string { return Redact(string(u)) }

// Format makes every verb print the masked URL, %#v too.
func (u URL) Format(f fmt.State, verb rune) { formatted(f, verb, u.String()) }

// LogValue masks the URL in slog.
func (u URL) LogValue() slog.Value { return slog.StringValue(u.String()) }

// MarshalText masks the URL in JSON and YAML.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

func formatted(f fmt.State, verb rune, s string) {
	switch verb {
	case 'q':
		_, _ = fmt.Fprintf(f, "%q", s)
	case 'v':
		if f.Flag('#') {
			_, _ = fmt.Fprintf(f, "%#v", s)
			return
		}
		fallthrough
	default:
		_, _ = fmt.Fprint(f, s)
	}
}

var (
	// From the first colon to the last @: a name or password that should have been
	// escaped may itself hold a slash, an @ or a space.
	userinfo = regexp.MustCompile(`(://[^:]*):.*@`)
	// NATS takes a bare token in the place of the user.
	natsToken = regexp.MustCompile(`(?i)\b((?:nats|tls|wss?)://)[^:@/\s]+@`)
	parameter = regexp.MustCompile(`(?i)([?&;\s"'][a-z0-9_.-]*` + secretWords + `[a-z0-9_.-]*=)[^&;#\s"']+`)
	secretKey = regexp.MustCompile(`(?i)` + secretWords)
	// A key and its value in one line of YAML.
	yamlPair = regexp.MustCompile(`(?i)((?:^|[\s{,"'-])["']?[a-z0-9_.-]*` + secretWords + `[a-z0-9_.-]*["']?\s*:\s*)(\S.*)$`)
)

const secretWords = `(?:passw(?:or)?d|passphrase|pwd|secret|token|seed|\bnkey|_nkey|private[_-]?key|api[_-]?key|access[_-]?key|sign(?:ing|ature)|authori[sz]ation|x-auth|bearer|cookie|credential)`

// Redact masks the passwords in a URL, or in a text with a URL in it.
func Redact(s string) string {
	s = userinfo.ReplaceAllStringFunc(s, func(found string) string {
		if found == "://user:password@" { // as hints show a URL's form
			return found
		}
		return userinfo.ReplaceAllString(found, "${1}:"+masked+"@")
	})
	s = natsToken.ReplaceAllString(s, "${1}"+masked+"@")
	return parameter.ReplaceAllString(s, "${1}"+masked)
}

// Passwords returns the passwords in a URL, as they are written in it and
// decoded, for a writer that masks them wherever they come out. The URL need not
// be a valid one, and may have several hosts, which net/url does not take.
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
		if key, value, _ := strings.Cut(pair, "="); isSecret(key) {
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

// isSecret tells by its name whether a key holds a secret. A key that names a
// file does not.
func isSecret(key string) bool {
	return secretKey.MatchString(key) && !strings.HasSuffix(key, "_file")
}

// isSecretType tells the types that hide what they hold, whatever their key is
// called. A URL hides its password alone, and knows how.
func isSecretType(v reflect.Value) bool {
	_, hides := v.Addr().Interface().(interface{ Reveal() string })
	return hides && v.Type() != reflect.TypeFor[URL]()
}

// redactLine masks what may be secret in a line of YAML. A line that is neither
// a key nor a list entry may be the rest of a secret that began above it, and
// is not shown at all.
func redactLine(line string) string {
	trimmed := strings.TrimSpace(line)
	if !strings.Contains(trimmed, ":") && !strings.HasPrefix(trimmed, "-") {
		return ""
	}
	line = Redact(line)
	if m := yamlPair.FindStringSubmatchIndex(line); m != nil {
		key, value := line[m[2]:m[3]], line[m[4]:m[5]]
		if !strings.Contains(key, "_file") && !reference.MatchString(value) {
			line = line[:m[4]] + masked
		}
	}
	return line
}

// reference is a value that only says where the secret is.
var reference = regexp.MustCompile(`^["']?(?:\$\{[A-Za-z0-9_]+\}|file:[^\s"']+)["']?\s*(?:#.*)?$`)
