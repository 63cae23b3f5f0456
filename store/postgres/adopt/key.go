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
	columns := make([][]*string, len(m.key))
	for i := range columns {
		columns[i] = make([]*string, len(ids))
	}
	for n := range ids {
		if len(m.key) == 1 {
			columns[0][n] = &ids[n]
			continue
		}
		var parts []string
		if json.Unmarshal([]byte(ids[n]), &parts) == nil && len(parts) == len(m.key) {
			for i := range parts {
				columns[i][n] = &parts[i]
			}
		}
	}
	arrays := make([]any, len(m.key))
	for i, c := range m.key {
		if c.Type == "uuid" { // of all types the one whose text costs the server most
			arrays[i] = uuids(columns[i])
			continue
		}
		arrays[i] = textArray(columns[i])
	}
	return arrays
}

func uuids(texts []*string) []pgtype.UUID {
	array := make([]pgtype.UUID, len(texts))
	var digits [32]byte
	for i, t := range texts {
		if t == nil || len(*t) != 36 {
			continue
		}
		n := copy(digits[:], (*t)[:8])
		for _, from := range [...]int{9, 14, 19} {
			n += copy(digits[n:], (*t)[from:from+4])
		}
		copy(digits[n:], (*t)[24:])
		_, err := hex.Decode(array[i].Bytes[:], digits[:])
		array[i].Valid = err == nil
	}
	return array
}

var escaped = strings.NewReplacer(`"`, `\"`, `\`, `\\`)

// textArray is an array of any type as its text.
func textArray(texts []*string) string {
	buf := append(make([]byte, 0, 24*len(texts)+2), '{')
	for i, t := range texts {
		if i > 0 {
			buf = append(buf, ',')
		}
		if t == nil {
			buf = append(buf, "null"...)
		} else {
			buf = append(append(append(buf, '"'), escaped.Replace(*t)...), '"')
		}
	}
	return string(append(buf, '}'))
}
