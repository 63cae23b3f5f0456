package config

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Limits far above any real file. They are checked before the YAML parser runs, because it is
// recursive, and quadratic in the keys of one mapping.
const (
	MaxBytes   = 1 << 20
	maxDepth   = 32
	maxEntries = 10_000 // keys of one mapping, entries of one list
)

// parse turns the file into the node of its only document, nil if it is empty.
func parse(name string, data []byte) (*source, ast.Node, *Error) {
	src := &source{name: name}
	text, fail := decodeText(src, data)
	if fail != nil {
		return src, nil, fail
	}
	src.lines = strings.Split(text, "\n")
	tokens := lexer.Tokenize(text)
	if fail := checkTokens(src, tokens); fail != nil {
		return src, nil, fail
	}
	root, fail := parseTokens(src, tokens)
	return src, root, fail
}

// decodeText refuses anything but plain UTF-8 text.
func decodeText(src *source, data []byte) (string, *Error) {
	if len(data) > MaxBytes {
		return "", src.errorAt(position{}, "", fmt.Sprintf("is larger than %d bytes", MaxBytes), "is this the right file?")
	}
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		return "", src.errorAt(position{}, "", "is UTF-16", "save it as UTF-8")
	}
	text := string(bytes.TrimPrefix(data, []byte("\ufeff")))
	text = strings.ReplaceAll(text, "\r\n", "\n")
	at := position{1, 1}
	for i, r := range text {
		hint := "remove it"
		switch {
		case r == '\n':
			at = position{at.line + 1, 1}
			continue
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], string(utf8.RuneError)):
			return "", src.errorAt(at, "", fmt.Sprintf("has the byte 0x%02x, which is not UTF-8", text[i]), "save it as UTF-8")
		case r == '\r':
			hint = "end lines with a newline"
			fallthrough
		case r < ' ' && r != '\t', r >= 0x7f && r < 0xa0, r == 0xfeff:
			return "", src.errorAt(at, "", fmt.Sprintf("has the control character U+%04X", r), hint)
		}
		at.column++
	}
	return text, nil
}

// level is an open mapping or list in checkTokens.
type level struct {
	at      position // of its bracket; zero if it is open by indentation
	column  int
	entries int
}

// checkTokens refuses tokens that a configuration does not need and those that would make the parser slow or
// recurse deeply.
func checkTokens(src *source, tokens token.Tokens) *Error {
	var open []level
	flows := 0
	for i, tk := range tokens {
		fail := func(what, hint string) *Error {
			return src.errorAt(place(tk), "", what, hint)
		}
		switch tk.Type {
		case token.AnchorType, token.AliasType, token.MergeKeyType:
			return fail("has a YAML anchor or alias", "write the value out; values that start with & or * need quotes")
		case token.TagType:
			return fail("has a YAML tag", "remove it; a value that starts with ! needs quotes")
		case token.DirectiveType:
			return fail("has a YAML directive", "remove the line")
		case token.MappingKeyType:
			return fail("has a ? key", "write key: value")
		case token.DocumentHeaderType:
			if i > 0 && tokens[i-1].Type != token.CommentType {
				return fail("has a second document", "put everything into one document, without ---")
			}
		case token.MappingStartType, token.SequenceStartType:
			open = append(open, level{at: place(tk)})
			flows++
		case token.MappingEndType, token.SequenceEndType:
			if flows > 0 {
				open, flows = open[:len(open)-1], flows-1
			}
		case token.CollectEntryType:
			if flows > 0 {
				open[len(open)-1].entries++
			}
		case token.SequenceEntryType, token.MappingValueType:
			if flows > 0 {
				break
			}
			column := tk.Position.Column
			if tk.Type == token.MappingValueType && i > 0 {
				column = tokens[i-1].Position.Column
			}
			for len(open) > 0 && open[len(open)-1].column > column {
				open = open[:len(open)-1]
			}
			if len(open) == 0 || open[len(open)-1].column < column {
				open = append(open, level{column: column})
			}
			open[len(open)-1].entries++
		}
		if tk.Type == token.InvalidType {
			return nil // the parser reports the mistake
		}
		if len(open) > maxDepth {
			return fail(fmt.Sprintf("is nested more than %d levels deep", maxDepth), "see docs/reference/configuration.md for the keys there are")
		}
		if len(open) > 0 && open[len(open)-1].entries > maxEntries {
			return fail(fmt.Sprintf("has more than %d entries in one place", maxEntries), "is this the right file?")
		}
	}
	if flows > 0 {
		return src.errorAt(open[len(open)-1].at, "", "has a bracket that is never closed", "close it")
	}
	return nil
}

func parseTokens(src *source, tokens token.Tokens) (root ast.Node, fail *Error) {
	defer func() {
		// A panic of the parser must not crash the relay.
		if r := recover(); r != nil {
			root, fail = nil, src.errorAt(position{}, "", "is not YAML that can be read", "compare it with examples/penstock.yaml")
		}
	}()
	// decode finds duplicate keys, all of them and not only the first.
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, src.syntaxError(err)
	}
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil:
		case root != nil:
			return nil, src.errorAt(place(doc.Body.GetToken()), "", "has a second document", "put everything into one document, without ---")
		default:
			root = doc.Body
		}
	}
	return root, nil
}

// syntaxHints translates the parser's errors for a user who writes a file.
var syntaxHints = []struct{ says, what, hint string }{
	{`character '	'`, "has a tab where YAML needs spaces", "indent with spaces"},
	{"end character of double-quoted", "has a double quote that is never closed", `close it with "`},
	{"end character of single-quoted", "has a single quote that is never closed", "close it with '"},
	{"mapping value is not allowed", "has a second colon in this place", "line up the keys of one level, and quote a value that has a colon and a space in it"},
	{"pre-defined", "has text after the end of a value", "quote the whole value, or line up the keys of one level"},
	{"value is not allowed", "has text where none can stand", "line up the keys of one level"},
	{"reserved character", "has a value that starts with a character YAML reserves", "quote the value"},
	{"'}' must be specified", "has a { that is not closed", `close it, and quote values that hold braces: "${NAME}", "{topic}"`},
	{"']' must be specified", "has a [ that is not closed", "close it with ]"},
	{"flow map content", "has a { that is not closed", `close it, and quote values that hold braces: "${NAME}", "{topic}"`},
	{"flow mapping end", "has a { that is not closed", `close it, and quote values that hold braces: "${NAME}", "{topic}"`},
	{"sequence end token", "has a [ that is not closed", "close it with ]"},
	{"non-map value", "has a line that is not key: value", "write key: value"},
	{"unexpected key name", "has a line that is not key: value", "write key: value"},
}

func (s *source) syntaxError(err error) *Error {
	var ye yaml.Error
	if !errors.As(err, &ye) || ye.GetToken() == nil {
		return s.errorAt(position{}, "", "is not YAML that can be read", "compare it with examples/penstock.yaml")
	}
	at := place(ye.GetToken())
	for _, h := range syntaxHints {
		if strings.Contains(ye.GetMessage(), h.says) {
			return s.errorAt(at, "", h.what, h.hint)
		}
	}
	// The parser's own text is not repeated: it may quote a value.
	return s.errorAt(at, "", "is not valid YAML here", "check the indentation, colons, quotes and brackets of this line and the one above")
}

// place is where a token starts.
func place(tk *token.Token) position {
	if tk == nil || tk.Position == nil {
		return position{}
	}
	return position{tk.Position.Line, tk.Position.Column}
}
