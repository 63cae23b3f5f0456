package format

import (
	"errors"
	"mime"
	"net/url"
	"strings"
	"unicode/utf8"
)

// checkText reports characters that the type String of CloudEvents does not allow. Consumers may
// refuse or damage the whole event because of them.
func checkText(s string) error {
	ascii := true
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c < ' ' || c == 0x7f:
			return errControl
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	if ascii {
		return nil
	}
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)):
			return errNotUTF8
		case r >= 0x80 && r < 0xa0:
			return errControl
		case r >= 0xfdd0 && r <= 0xfdef, r&0xfffe == 0xfffe:
			return errNoncharacter
		}
	}
	return nil
}

var (
	errControl      = errors.New("has a control character")
	errNoncharacter = errors.New("has a code point that is not a character")
	errNotUTF8      = errors.New("is not valid UTF-8")
)

// percentEncode encodes as the HTTP and NATS bindings have it (section 3.1.3.2):
// space, double quote, percent and all that is not printable ASCII.
func percentEncode(s string) string {
	n := 0
	for i := 0; i < len(s); i++ {
		if needsPercent(s[i]) {
			n++
		}
	}
	if n == 0 {
		return s
	}
	const hex = "0123456789ABCDEF"
	b := make([]byte, 0, len(s)+2*n)
	for i := 0; i < len(s); i++ {
		if c := s[i]; needsPercent(c) {
			b = append(b, '%', hex[c>>4], hex[c&15])
		} else {
			b = append(b, c)
		}
	}
	return string(b)
}

func needsPercent(c byte) bool { return c <= ' ' || c > '~' || c == '"' || c == '%' }

// uriCharacters are allowed in URIs, in addition to letters, digits and %XX (RFC 3986, section 2).
const uriCharacters = "-._~:/?#[]@!$&'()*+,;="

// isURIReference is stricter than net/url, which accepts references that consumers in other
// languages do not.
func isURIReference(s string) bool {
	if s == "" {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && c != '%' && strings.IndexByte(uriCharacters, c) < 0 {
			return false
		}
	}
	_, err := url.Parse(s)
	return err == nil
}

func isURI(s string) bool {
	if !isURIReference(s) {
		return false
	}
	u, err := url.Parse(s)
	return err == nil && u.Scheme != ""
}

// mediaType is a content type as it was given, as it is sent, and whether it
// declares JSON.
type mediaType struct {
	given, text string
	json        bool
}

// parseMediaType recognizes JSON as the JSON event format does (section 3.1.1):
// */json and */*+json, whatever the parameters. Case means nothing in the
// names of types, but some consumers compare them as they are: they are sent in
// lower case.
func parseMediaType(s string) (mediaType, error) {
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return mediaType{}, errors.New("not ASCII")
	}
	name, _, err := mime.ParseMediaType(s)
	if err != nil {
		return mediaType{}, err
	}
	_, sub, ok := strings.Cut(name, "/")
	if !ok {
		return mediaType{}, errors.New("no subtype")
	}
	name, parameters, some := strings.Cut(s, ";")
	text := strings.ToLower(name)
	if some {
		text += ";" + parameters
	}
	return mediaType{given: s, text: text, json: sub == "json" || strings.HasSuffix(sub, "+json")}, nil
}
