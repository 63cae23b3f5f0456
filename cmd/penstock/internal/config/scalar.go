package config

import (
	"encoding"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/internal/redact"
	"github.com/penstock/penstock/internal/settings"
)

var (
	durationType = reflect.TypeFor[time.Duration]()
	levelType    = reflect.TypeFor[slog.Level]()
)

// scalar decodes one value. The error shows its text in the file, never the value of an environment
// variable or a secret file.
func (d *decoder) scalar(n ast.Node, v reflect.Value, path string) {
	at := nodePlace(n)
	if isNull(n) {
		d.fail(d.near(path), path, problem{"has no value", "write one, or remove the key to have the default"})
		return
	}
	raw, quoted, ok := scalarText(n)
	if !ok {
		d.fail(at, path, problem{"is " + describe(n) + ", not " + wanted(v, path), bracesHint(n)})
		return
	}
	if raw == "" && n.Type() == ast.LiteralType {
		d.fail(at, path, problem{"is a > or | with no text below it", `put the character in quotes: ">"`})
		return
	}
	text, ok := d.resolved(raw, at, path)
	if !ok {
		return
	}
	outside := text != raw && (strings.Contains(raw, "${") || strings.HasPrefix(raw, "file:"))
	if (redact.Secret(path[strings.LastIndexByte(path, '.')+1:]) || isSecretType(v)) && len(text) >= 3 {
		d.filledIn[text] = redact.Masked
	}
	if p := d.assign(n, v, path, text, quoted && !outside); p != nil {
		// A value from outside is named by the file's text.
		what := d.scrub(p.what)
		if outside {
			what = strings.ReplaceAll(p.what, strconv.Quote(text), redact.Text(raw))
		}
		d.fail(at, path, problem{what, p.hint})
	}
}

// resolved replaces the references in raw.
func (d *decoder) resolved(raw string, at position, path string) (string, bool) {
	text, p := d.resolve.resolve(raw)
	switch {
	case p != nil:
	case strings.IndexByte(text, 0) >= 0:
		p = &problem{"has a NUL character in it", "remove it"}
	case !utf8.ValidString(text):
		p = &problem{"is not valid UTF-8", "write it in UTF-8"}
	default:
		return text, true
	}
	d.fail(at, path, *p)
	return "", false
}

func scalarText(n ast.Node) (text string, quoted, ok bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, n.Token.Type == token.SingleQuoteType || n.Token.Type == token.DoubleQuoteType, true
	case *ast.LiteralNode:
		return n.Value.Value, true, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, false, true
	}
	return "", false, false
}

// assign converts text; the error's words quote the text with %q.
func (d *decoder) assign(n ast.Node, v reflect.Value, path, text string, quoted bool) *problem {
	switch v.Type() {
	case durationType:
		t, p := parseDuration(text)
		v.SetInt(int64(t))
		return p
	case levelType:
		level, p := parseLevel(text)
		v.SetInt(int64(level))
		return p
	}
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if err := u.UnmarshalText([]byte(text)); err != nil {
			if hinted, ok := errors.AsType[*hintError](err); ok {
				return &hinted.problem
			}
			return &problem{err.Error(), ""}
		}
		return nil
	}
	if v.Kind() == reflect.String {
		if _, isText := n.(*ast.StringNode); !isText && n.Type() != ast.LiteralType {
			return &problem{"is " + describe(n) + ", not a text", fmt.Sprintf("put it in quotes: %q", text)}
		}
		v.SetString(text)
		return nil
	}
	if quoted {
		return &problem{"is a quoted text, not " + wanted(v, path), "take the quotes off"}
	}
	return assignNumber(v, path, text)
}

func assignNumber(v reflect.Value, path, text string) *problem {
	wrong := &problem{fmt.Sprintf("is %q, not %s", text, wanted(v, path)), "write it in plain digits"}
	tooLarge := &problem{fmt.Sprintf("is %q, which is too large", text), "write a smaller number"}
	switch v.Kind() {
	case reflect.Bool:
		switch text {
		case "true", "false":
			v.SetBool(text == "true")
			return nil
		}
		return &problem{fmt.Sprintf("is %q, not true or false", text), "write true or false"}
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || f-f != 0 { // infinities and NaN
			return wrong
		}
		v.SetFloat(f)
		return nil
	}
	var n int64
	if settings.IsSize(path) {
		var what, hint string
		if n, what, hint = settings.ParseSize(text); what != "" {
			return &problem{what, hint}
		}
	} else {
		var err error
		if n, err = strconv.ParseInt(text, 10, 64); errors.Is(err, strconv.ErrRange) {
			return tooLarge
		} else if err != nil || strings.HasPrefix(text, "+") {
			return wrong
		}
	}
	if v.CanUint() {
		if n < 0 {
			return &problem{fmt.Sprintf("is %q, which is negative", text), "write 0 or more"}
		}
		if v.OverflowUint(uint64(n)) {
			return tooLarge
		}
		v.SetUint(uint64(n))
		return nil
	}
	if v.OverflowInt(n) {
		return tooLarge
	}
	v.SetInt(n)
	return nil
}

// wanted names the type of v for "is …, not …".
func wanted(v reflect.Value, path string) string {
	switch {
	case v.Type() == durationType:
		return "a duration such as 15s"
	case v.Kind() == reflect.String, v.Addr().Type().Implements(textUnmarshaler):
		return "a text"
	case v.Kind() == reflect.Bool:
		return "true or false"
	case settings.IsSize(path):
		return "a size such as 32MiB"
	case v.Kind() == reflect.Float64:
		return "a number"
	}
	return "a whole number"
}

// bracesHint is for {topic} and ${NAME} inside { }, which YAML takes for a
// mapping.
func bracesHint(n ast.Node) string {
	if m, ok := n.(*ast.MappingNode); ok && m.IsFlowStyle && len(m.Values) == 1 && isNull(m.Values[0].Value) {
		return fmt.Sprintf(`put it in quotes: "{%s}"`, m.Values[0].Key.GetToken().Value)
	}
	return "write a single value"
}

func parseDuration(text string) (time.Duration, *problem) {
	t, err := time.ParseDuration(text)
	if err != nil {
		if _, err := strconv.ParseFloat(text, 64); err == nil {
			return 0, &problem{fmt.Sprintf("is %q, which has no unit", text), fmt.Sprintf("write %ss for seconds or %sms for milliseconds", text, text)}
		}
		return 0, &problem{fmt.Sprintf("is %q, not a duration", text), "write a number with ms, s, m or h, such as 15s or 1m30s"}
	}
	if t < 0 {
		return 0, &problem{fmt.Sprintf("is %q, which is negative", text), "write a positive duration"}
	}
	return t, nil
}

// levels are those of slog, each four above the one before.
var levels = []string{"debug", "info", "warn", "error"}

func parseLevel(text string) (slog.Level, *problem) {
	i := slices.Index(levels, text)
	if i < 0 {
		return 0, notOneOf(text, levels)
	}
	return slog.LevelDebug + 4*slog.Level(i), nil
}

// formatDuration writes 1m and not 1m0s.
func formatDuration(t time.Duration) string {
	s := t.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// oneOf sets a text that must be one of the names.
func oneOf[T ~string](to *T, b []byte, names ...T) error {
	all := make([]string, len(names))
	for i, name := range names {
		if all[i] = string(name); all[i] == string(b) {
			*to = name
			return nil
		}
	}
	return &hintError{*notOneOf(string(b), all)}
}

func notOneOf(text string, names []string) *problem {
	p := &problem{fmt.Sprintf("is %q", text), "write " + drivers.OneOf(names)}
	if near := nearest(text, names); near != "" {
		p.hint = fmt.Sprintf("did you mean %s? (%s)", near, drivers.OneOf(names))
	}
	return p
}

// formatSize writes n with the largest unit that leaves it whole.
func formatSize(n int64) string {
	for _, u := range settings.SizeUnits {
		if n != 0 && n%u.Bytes == 0 {
			return strconv.FormatInt(n/u.Bytes, 10) + u.Name
		}
	}
	return strconv.FormatInt(n, 10)
}

// hintError is the error of UnmarshalText of this package's types.
type hintError struct{ problem }

func (e *hintError) Error() string { return e.what + ": " + e.hint }

// problem is a mistake whose place is not known yet.
type problem struct{ what, hint string }

// resolver fills ${ENV} and file: into single values. It works on values that YAML has parsed
// already, so nothing it fills in can become a key, a list or a second value. It does not expand
// filled-in text again.
type resolver struct {
	lookupEnv func(string) (string, bool)
	readFile  func(string) ([]byte, error)
	dir       string // of the configuration file; relative paths start here
	// filledIn is called with every value that came from outside, and with the file's text for it.
	filledIn func(value, raw string)
}

// maxSecretFile bounds a file named by file:.
const maxSecretFile = 64 << 10

// resolve returns the value of raw:
//
//	${NAME}            the environment variable, which must be set
//	${NAME:-default}   the same, or default if it is unset or empty
//	$$                 a literal $
//	file:PATH          the whole value is the file's content without its last newline
func (r *resolver) resolve(raw string) (string, *problem) {
	path, isFile := strings.CutPrefix(raw, "file:")
	value, p := r.interpolate(path)
	if p != nil || !isFile {
		return value, p
	}
	text, p := r.file(value)
	if p == nil {
		r.filledIn(text, raw)
	}
	return text, p
}

func (r *resolver) interpolate(s string) (string, *problem) {
	var b strings.Builder
	for {
		text, rest, found := strings.Cut(s, "$")
		b.WriteString(text)
		if !found {
			return b.String(), nil
		}
		switch {
		case strings.HasPrefix(rest, "$"):
			b.WriteByte('$')
			s = rest[1:]
		case strings.HasPrefix(rest, "{"):
			inside, after, closed := strings.Cut(rest[1:], "}")
			if !closed {
				return "", &problem{"has a ${ that is never closed", "write ${NAME}, or $$ for a literal $"}
			}
			value, p := r.env(inside)
			if p != nil {
				return "", p
			}
			b.WriteString(value)
			s = after
		default:
			return "", &problem{"has a lone $", "write ${NAME} for an environment variable, or $$ for a literal $"}
		}
	}
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (r *resolver) env(inside string) (string, *problem) {
	name, fallback, hasFallback := strings.Cut(inside, ":-")
	if !envName.MatchString(name) || strings.Contains(fallback, "$") {
		return "", &problem{"has a ${…} that is not an environment variable",
			"write ${NAME} or ${NAME:-default} with a name of letters, digits and _, or $$ for a literal $"}
	}
	value, set := r.lookupEnv(name)
	if hasFallback && value == "" {
		return fallback, nil
	}
	if !set {
		return "", &problem{fmt.Sprintf("needs the environment variable %s, which is not set", name),
			fmt.Sprintf("set it, or give a default with ${%s:-…}", name)}
	}
	r.filledIn(value, "${"+name+"}")
	return value, nil
}

func (r *resolver) file(path string) (string, *problem) {
	if path == "" {
		return "", &problem{"has file: without a path", "write file:/path/to/the/secret"}
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(r.dir, path)
	}
	data, err := r.readFile(path)
	if err != nil {
		// The path may come from an environment variable, so only the reason is taken from the error. The
		// line that names the file is shown anyway.
		reason := "cannot be read"
		switch {
		case errors.Is(err, fs.ErrNotExist):
			reason = "does not exist"
		case errors.Is(err, fs.ErrPermission):
			reason = "may not be read by this user"
		}
		return "", &problem{"names a file that " + reason, "a file: value is replaced by that file's content; create the file or correct the path"}
	}
	if len(data) > maxSecretFile {
		return "", &problem{fmt.Sprintf("names a file that is larger than %d bytes", maxSecretFile), "a file: value holds one secret and nothing else"}
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	if text == "" {
		return "", &problem{"names a file that is empty", "write the secret into it"}
	}
	return text, nil
}
