package adopted

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// Flatten takes the members of a JSON object: texts as they are, anything else as JSON. A value
// that is not an object, or has a member without a name, is left out.
func Flatten(object []byte, into map[string]string) {
	var members map[string]json.RawMessage
	if json.Unmarshal(object, &members) != nil {
		return
	}
	for name, value := range members {
		var text string
		switch {
		case name == "" || string(value) == "null":
		case json.Unmarshal(value, &text) == nil:
			into[name] = text
		default:
			into[name] = string(value)
		}
	}
}

// Properties parses the Java properties in Debezium's tracing column: a line per name, "=" or ":"
// before the value, backslashes before special characters.
func Properties(text string, into map[string]string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		var parts [2]strings.Builder
		at := 0
		for i := 0; i < len(line); i++ {
			c := line[i]
			switch {
			case c == '\\' && i+1 < len(line):
				i++
				parts[at].WriteByte(line[i])
			case at == 0 && (c == '=' || c == ':'):
				at = 1
			default:
				parts[at].WriteByte(c)
			}
		}
		if name := strings.TrimSpace(parts[0].String()); name != "" {
			into[name] = strings.TrimSpace(parts[1].String())
		}
	}
}

// Shorten turns a text of a row that cannot be a message into one that can be parked.
func Shorten(s string, limit int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	for len(s) > limit {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return s
}
