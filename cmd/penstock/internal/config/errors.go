package config

import (
	"fmt"
	"log/slog"
	"reflect"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/penstock/penstock/internal/redact"
)

// Error is one mistake in a configuration file.
type Error struct {
	File         string
	Line, Column int    // from 1; 0 if the mistake has no place
	Path         string // such as subscriptions[0].sink.rabbitmq.url; empty for the file itself
	Problem      string
	Hint         string // the text to write instead
	Source       string // the offending line with passwords taken out
	caret        int    // column in Source, 0 for none
}

// Error is a line from which editors and terminals can jump, and the offending line below it.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", e.Line, e.Column)
	}
	b.WriteString(": ")
	if e.Path != "" {
		b.WriteString(e.Path + " ")
	}
	b.WriteString(e.Problem)
	if e.Hint != "" {
		b.WriteString(": " + e.Hint)
	}
	if e.Source == "" {
		return b.String()
	}
	fmt.Fprintf(&b, "\n    | %s", e.Source)
	if e.caret > 0 {
		b.WriteString("\n    | " + indentLike(e.Source, e.caret-1) + "^")
	}
	return b.String()
}

// indentLike is as wide as the first n characters of s, tabs included.
func indentLike(s string, n int) string {
	var b strings.Builder
	for _, r := range s {
		if n--; n < 0 {
			break
		}
		if r == '\t' {
			b.WriteByte('\t')
		} else {
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// Errors are all mistakes found in one file, in the order of their lines.
type Errors []*Error

// maxShown bounds the output; a file that is not a configuration would fill the screen.
const maxShown = 20

func (es Errors) Error() string {
	var lines []string
	for _, e := range es[:min(len(es), maxShown)] {
		lines = append(lines, e.Error())
	}
	if n := len(es) - maxShown; n > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As reach each *Error.
func (es Errors) Unwrap() []error {
	out := make([]error, len(es))
	for i, e := range es {
		out[i] = e
	}
	return out
}

// source is the text that positions refer to.
type source struct {
	name  string
	lines []string
}

type position struct{ line, column int }

func (s *source) errorAt(p position, path, problem, hint string) *Error {
	e := &Error{File: s.name, Line: p.line, Column: max(p.column, 1), Path: shorten(path), Problem: shorten(problem), Hint: shorten(hint)}
	if p.line < 1 || p.line > len(s.lines) {
		if len(s.lines) > 0 { // the parser's end of the text may be a line further
			e.Line = min(e.Line, len(s.lines))
		}
		return e
	}
	// A line that is cut before the search for passwords could show half of one, and searching a very
	// long line takes long.
	const widest, longest = 160, 4096
	if len(s.lines[p.line-1]) > longest {
		return e
	}
	shown := redactLine(s.lines[p.line-1])
	if key := secretIn(path); key != "" && !strings.Contains(shown, key) {
		return e // a secret on a line below its key
	}
	if utf8.RuneCountInString(shown) > widest {
		shown = string([]rune(shown)[:widest]) + " …"
	}
	e.Source = shown
	// A caret is shown only if redaction has not shifted its position.
	if p.column <= widest && sameStart(shown, s.lines[p.line-1], p.column-1) {
		e.caret = p.column
	}
	return e
}

// shorten keeps a key or value of a megabyte from filling the screen.
func shorten(s string) string {
	const most = 600
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most/2], "") + " … " + strings.ToValidUTF8(s[len(s)-most/2:], "")
}

// secretIn returns the key in a path that holds a secret, if there is one.
func secretIn(path string) string {
	for _, key := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		if redact.Secret(key) {
			return key
		}
	}
	return ""
}

func sameStart(a, b string, n int) bool {
	ra, rb := []rune(a), []rune(b)
	return n >= 0 && n <= len(ra) && n <= len(rb) && string(ra[:n]) == string(rb[:n])
}

// nearest returns the word of known that s probably means, or "".
func nearest(s string, known []string) string {
	s = normal(s)
	if len(s) > 64 {
		return ""
	}
	best, least := "", 1+len(s)/3
	for _, k := range known {
		if d := distance(s, normal(k)); d <= least && (best == "" || d < least) {
			best, least = k, d
		}
	}
	return best
}

// normal maps maxInFlight, max-in-flight and max_in_flight to one form.
func normal(s string) string {
	return strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(s))
}

// distance is how many letters must be changed, added, removed or swapped with a neighbour to turn
// a into b.
func distance(a, b string) int {
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	for j := range rows[1] {
		rows[1][j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row := rows[(i-1)%3], rows[i%3], rows[(i+1)%3]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return rows[(len(a)+1)%3][len(b)]
}

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
// password alone.
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

// reference is a value that only shows where the secret is.
var reference = regexp.MustCompile(`^["']?(?:\$\{[A-Za-z0-9_]+\}|file:[^\s"']+)["']?\s*(?:#.*)?$`)
