package config

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
)

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
