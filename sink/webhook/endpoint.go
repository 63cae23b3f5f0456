package webhook

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/template"
)

// maxURLBytes bounds the path and query that a message can produce; servers refuse longer ones.
const maxURLBytes = 8 << 10

// endpoint is the configured URL: scheme and host as they are, path and query as
// templates.
type endpoint struct {
	base        url.URL // without path, query and user
	basic       string  // the value of Authorization that the URL's user asks for
	path, query *template.Template
	fixed       *url.URL // the whole URL if there are no placeholders
}

// parseEndpoint never quotes the URL in its errors.
func parseEndpoint(raw string) (*endpoint, error) {
	if raw == "" {
		return nil, field("url", "is missing", "write the endpoint's URL: https://host/path")
	}
	scheme, rest, _ := strings.Cut(raw, "://")
	if scheme = strings.ToLower(scheme); scheme != "http" && scheme != "https" {
		return nil, field("url", "is not a webhook's URL", "write https://host/path, or http:// without TLS")
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority := rest[:end]
	if strings.ContainsAny(authority, "{}") {
		return nil, field("url", "has a placeholder in the host", "use placeholders in path and query only: a message must not decide which host the relay talks to")
	}
	if strings.Contains(rest, "#") {
		return nil, field("url", "has a #", "remove the # and the text after it: a fragment is not sent over HTTP")
	}
	server, err := url.Parse(scheme + "://" + authority)
	if err != nil || server.Hostname() == "" || server.Opaque != "" {
		return nil, field("url", "has no host that can be used", "write https://host/path; in user and password write special characters as %%XX")
	}
	e := &endpoint{base: url.URL{Scheme: scheme, Host: server.Host}}
	if u := server.User; u != nil {
		password, _ := u.Password()
		e.basic = "Basic " + base64.StdEncoding.EncodeToString([]byte(u.Username()+":"+password))
	}
	path, query, hasQuery := strings.Cut(rest[end:], "?")
	if path == "" {
		path = "/"
	}
	for _, part := range []struct {
		name, source string
		target       **template.Template
	}{{"path", path, &e.path}, {"query", query, &e.query}} {
		if *part.target, err = template.Parse(part.source); err != nil {
			return nil, field("url", "has a "+part.name+" that is not a template", "allowed are %s", template.Allowed)
		}
	}
	return e, e.check(path, query, hasQuery)
}

// check fills the templates once to see whether the text around placeholders is valid in a URL.
func (e *endpoint) check(path, query string, hasQuery bool) error {
	sample := penstock.Message{Topic: "x", Key: "x", Headers: map[string]string{}}
	for _, name := range append(e.path.Headers(), e.query.Headers()...) {
		sample.Headers[name] = "x"
	}
	samplePath, err := e.path.Execute(&sample)
	if err != nil {
		return err
	}
	sampleQuery, err := e.query.Execute(&sample)
	if err != nil {
		return err
	}
	u := e.base
	u.RawQuery, u.ForceQuery = sampleQuery, hasQuery && query == ""
	if err := setPath(&u, samplePath); err != nil || u.EscapedPath() != samplePath || strings.ContainsFunc(sampleQuery, notInQuery) {
		return field("url", "has characters in path or query that no URL can have", "write them as %%XX")
	}
	if e.path.Fixed() && e.query.Fixed() {
		e.fixed = &u
	}
	return nil
}

// tokens are the parts of path and query that may be secrets: many services give every customer a
// URL that cannot be guessed, and quote it in error pages.
func (e *endpoint) tokens() (found []string) {
	parts := strings.FieldsFunc(e.path.String()+"&"+e.query.String(), func(r rune) bool { return strings.ContainsRune("/&=;", r) })
	for _, part := range parts {
		if len(part) >= 16 && !strings.ContainsAny(part, "{}") {
			found = append(found, part)
		}
	}
	return found
}

func notInQuery(r rune) bool {
	return r <= ' ' || r > '~' || strings.ContainsRune("\"<>\\^`{|}", r)
}

func setPath(u *url.URL, escaped string) (err error) {
	u.RawPath = escaped
	u.Path, err = url.PathUnescape(escaped)
	return err
}

// url is the URL for m. The error is Permanent.
func (e *endpoint) url(m *penstock.Message) (*url.URL, error) {
	if e.fixed != nil {
		return e.fixed, nil
	}
	path, err := e.path.Escape(m, pathSegment)
	if err != nil {
		return nil, err
	}
	if climbs(path) {
		return nil, unsendable("use values other than . and ..", "the message makes . or .. a part of the URL's path")
	}
	query, err := e.query.Escape(m, func(_, value string) (string, error) { return url.QueryEscape(value), nil })
	if err != nil {
		return nil, err
	}
	if n := len(path) + len(query); n > maxURLBytes {
		return nil, unsendable("shorten the values in the URL", "the message makes a URL of %d bytes, more than %d", n, maxURLBytes)
	}
	u := e.base
	u.RawQuery = query
	if err := setPath(&u, path); err != nil {
		return nil, penstock.Permanent(fmt.Errorf("the message makes a path that is not valid in a URL: %w", err))
	}
	return &u, nil
}

func pathSegment(placeholder, value string) (string, error) {
	if value == "" {
		return "", unsendable("publish it with a value, or take it out of the URL", "the URL's path needs {%s}, which is empty", placeholder)
	}
	return url.PathEscape(value), nil
}

// climbs reports whether a part of the path is . or .., in any encoding: servers and proxies
// resolve them, and the request would reach another path.
func climbs(path string) bool {
	if !strings.Contains(path, "/.") && !strings.Contains(path, "%2") {
		return false
	}
	for part := range strings.SplitSeq(strings.ToLower(path), "/") {
		if part = strings.ReplaceAll(part, "%2e", "."); part == "." || part == ".." {
			return true
		}
	}
	return false
}
