package config

import (
	"fmt"
	"log/slog"
	"reflect"
	"regexp"
	"strings"

	"github.com/penstock/penstock/internal/redact"
)

// URL is a URL that may hold a password. When it is printed, logged or marshalled, the password is
// masked; Reveal gives the URL itself.
type URL string

// Reveal returns the URL with its password, for opening a connection.
func (u URL) Reveal() string { return string(u) }

func (u URL) String() string { return redact.Text(string(u)) }

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

// A key and its value in one line of YAML.
var yamlPair = regexp.MustCompile(`(?i)((?:^|[\s{,"'-])["']?[a-z0-9_.-]*` + redact.Words + `[a-z0-9_.-]*["']?\s*:\s*)(\S.*)$`)

// isSecretType reports types that hide their value, whatever the key. A URL hides only its
// password by itself.
func isSecretType(v reflect.Value) bool {
	_, hides := v.Addr().Interface().(interface{ Reveal() string })
	return hides && v.Type() != reflect.TypeFor[URL]()
}

// redactLine masks possible secrets in a line of YAML. A line that is neither a key nor a list
// entry may be the rest of a secret that began above it, and is not shown.
func redactLine(line string) string {
	trimmed := strings.TrimSpace(line)
	if !strings.Contains(trimmed, ":") && !strings.HasPrefix(trimmed, "-") {
		return ""
	}
	line = redact.Text(line)
	if m := yamlPair.FindStringSubmatchIndex(line); m != nil {
		key, value := line[m[2]:m[3]], line[m[4]:m[5]]
		if !strings.Contains(key, "_file") && !reference.MatchString(value) {
			line = line[:m[4]] + redact.Masked
		}
	}
	return line
}

// reference is a value that only says where the secret is.
var reference = regexp.MustCompile(`^["']?(?:\$\{[A-Za-z0-9_]+\}|file:[^\s"']+)["']?\s*(?:#.*)?$`)
