package adopt

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"
)

// A row's id is its key as one text: _adopt_row.row_id. Where the key has several columns it is the text that the
// server's json_build_array makes of them.

// appendQuoted writes a text as the server does in JSON.
func appendQuoted(buf []byte, text string) []byte {
	buf = append(buf, '"')
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			buf = append(buf, '\\', c)
		case c >= ' ':
			buf = append(buf, c)
		default:
			if at := strings.IndexByte("\b\f\n\r\t", c); at >= 0 {
				buf = append(buf, '\\', "bfnrt"[at])
			} else {
				buf = fmt.Appendf(buf, `\u%04x`, c)
			}
		}
	}
	return append(buf, '"')
}

// keyArrays are the ids as the parameters of a statement: one array per column of the
// key, of the column's type. An id of another key is NULL there, which matches nothing.
func (m *mapping) keyArrays(ids []string) []any {
	parts := make([][]string, len(m.key))
	for i := range parts {
		parts[i] = make([]string, 0, len(ids))
	}
	known := make([]bool, len(ids))
	one := make([]string, len(m.key))
	for n, id := range ids {
		if known[n] = m.splitID(id, one); !known[n] {
			clear(one)
		}
		for i := range parts {
			parts[i] = append(parts[i], one[i])
		}
	}
	arrays := make([]any, len(m.key))
	for i, c := range m.key {
		if c.Type == "uuid" { // of all types the one whose text costs the server most
			arrays[i] = uuidArray(parts[i])
		} else {
			arrays[i] = textArray(parts[i], known)
		}
	}
	return arrays
}

func uuidArray(texts []string) []pgtype.UUID {
	array := make([]pgtype.UUID, len(texts))
	for i, t := range texts {
		if len(t) != 36 {
			continue
		}
		var digits [32]byte
		n := copy(digits[:], t[:8])
		n += copy(digits[n:], t[9:13])
		n += copy(digits[n:], t[14:18])
		n += copy(digits[n:], t[19:23])
		copy(digits[n:], t[24:])
		_, err := hex.Decode(array[i].Bytes[:], digits[:])
		array[i].Valid = err == nil
	}
	return array
}

// textArray is an array of any type as its text.
func textArray(texts []string, known []bool) string {
	buf := make([]byte, 0, 24*len(texts)+2)
	buf = append(buf, '{')
	for n, t := range texts {
		if n > 0 {
			buf = append(buf, ',')
		}
		if known[n] {
			buf = appendElement(buf, t)
		} else {
			buf = append(buf, "null"...)
		}
	}
	return string(append(buf, '}'))
}

// splitID takes a row's id apart: one text per column of the key. false if it is of
// another key.
func (m *mapping) splitID(id string, parts []string) bool {
	if len(m.key) == 1 {
		parts[0] = id
		return true
	}
	var all []string
	if json.Unmarshal([]byte(id), &all) != nil || len(all) != len(m.key) {
		return false
	}
	copy(parts, all)
	return true
}

// appendElement writes an element of an array.
func appendElement(buf []byte, text string) []byte {
	buf = append(buf, '"')
	for i := 0; i < len(text); i++ {
		if c := text[i]; c == '"' || c == '\\' {
			buf = append(buf, '\\')
		}
		buf = append(buf, text[i])
	}
	return append(buf, '"')
}
