package adopt

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
)

// place is where a row stands in the order: the values of the order's columns as
// text. nil is before all rows.
type place []string

// wide is how a whole row is selected: as texts, but for a payload of bytes.
//
//	row id · order's columns · created at, in µs · payload · headers · tracing · what templates want
type wide struct{ sql, nulls string }

func (m *mapping) wide() wide {
	var values, nulls []string
	add := func(value, null string) { values, nulls = append(values, value), append(nulls, null) }
	text := func(c *column) {
		if c == nil {
			add("null::text", "null::text")
		} else {
			add(asText(c), "null::text")
		}
	}
	add(m.rowID(), "null::text") // the first column of read.sql is replaced by the snapshot
	for _, c := range m.order {
		text(c)
	}
	switch c := m.createdAt; {
	case c == nil:
		text(nil)
	default:
		add("(extract(epoch from case when isfinite("+own(c)+") then "+own(c)+" end) * 1000000)::bigint::text", "null::text")
	}
	switch c := m.payload; {
	case c != nil && c.typ == "bytea":
		add(own(c), "null::bytea")
	default:
		text(c)
	}
	text(m.headers)
	text(m.tracing)
	for _, c := range m.wanted {
		text(c)
	}
	return wide{strings.Join(values, ", "), strings.Join(nulls, ", ")}
}

// row is one as it was read.
type row struct {
	id      string // _adopt_row.row_id
	at      place
	message penstock.Message
}

// decode makes a row of the values of wide. They are copied.
func (m *mapping) decode(values [][]byte) row {
	r := row{id: string(values[0]), at: make(place, len(m.order))}
	values = values[1:]
	for i := range r.at {
		r.at[i] = string(values[i])
	}
	values = values[len(m.order):]
	msg := &r.message
	if us, err := strconv.ParseInt(string(values[0]), 10, 64); err == nil {
		msg.CreatedAt = time.UnixMicro(us).UTC()
	}
	msg.Payload = slices.Clone(values[1])
	msg.Attempt = 1
	wanted := values[4:]
	value := func(name string) []byte {
		return wanted[slices.IndexFunc(m.wanted, func(c *column) bool { return c.name == name })]
	}
	msg.ID, _ = m.messageID.expand(value)
	msg.Key, _ = m.keys.expand(value)
	msg.Topic, _ = m.topic.expand(value)
	msg.Headers = m.decodeHeaders(values[2], values[3], value)
	return r
}

func (m *mapping) decodeHeaders(object, tracing []byte, value func(string) []byte) map[string]string {
	if m.headers == nil && m.tracing == nil && len(m.headerNames) == 0 {
		return nil
	}
	headers := map[string]string{}
	if tracing != nil {
		properties(string(tracing), headers)
	}
	if object != nil {
		flatten(object, headers)
	}
	for i, t := range m.headerTemplates {
		if text, err := t.expand(value); !errors.Is(err, errNull) {
			headers[m.headerNames[i]] = text
		}
	}
	if len(headers) == 0 {
		return nil
	}
	return headers
}

// flatten takes the members of a JSON object: texts as they are, anything else as JSON.
// What is no object, or has a member without a name, is left out.
func flatten(object []byte, into map[string]string) {
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

// properties reads the Java properties that Debezium's tracing column has: a line per
// name, "=" or ":" before the value, backslashes before special characters.
func properties(text string, into map[string]string) {
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

// splitID takes a row's id apart: one text per column of the key, nil if it is of
// another key.
func (m *mapping) splitID(id string) []string {
	if len(m.key) == 1 {
		return []string{id}
	}
	var parts []string
	if json.Unmarshal([]byte(id), &parts) != nil || len(parts) != len(m.key) {
		return nil
	}
	return parts
}

// keyArrays are the ids as the parameters of a statement: one array per column of the key.
func (m *mapping) keyArrays(ids []string) []any {
	arrays := make([]any, len(m.key))
	if len(m.key) == 1 {
		arrays[0] = ids
		return arrays
	}
	columns := make([][]*string, len(m.key))
	for _, id := range ids {
		parts := m.splitID(id)
		for i := range columns {
			if parts == nil {
				columns[i] = append(columns[i], nil) // matches nothing
			} else {
				columns[i] = append(columns[i], &parts[i])
			}
		}
	}
	for i := range columns {
		arrays[i] = columns[i]
	}
	return arrays
}

// shorten makes a row that cannot be a message one that can be set aside.
func shorten(s string, limit int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	for len(s) > limit {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return s
}

// rawRows calls f with the values of each row.
func rawRows(rows pgx.Rows, f func(values [][]byte)) error {
	defer rows.Close()
	for rows.Next() {
		f(rows.RawValues())
	}
	return rows.Err()
}
