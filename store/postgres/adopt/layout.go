package adopt

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// layout lists the values that a statement selects of a row, each value once.
type layout struct {
	fields []selected
	// Indexes of fields.
	key, order                           []int
	createdAt, payload, headers, tracing int   // -1: not mapped
	wanted                               []int // by templates
	// spoken are the fields whose texts are needed: key, order and wanted.
	spoken []int
}

func (l *layout) add(f selected) int {
	if i := slices.IndexFunc(l.fields, func(known selected) bool { return known.sql == f.sql }); i >= 0 {
		return i
	}
	l.fields = append(l.fields, f)
	return len(l.fields) - 1
}

// speak adds a column whose text is needed.
func (l *layout) speak(c *column) int {
	i := l.add(valueOf(c))
	if !slices.Contains(l.spoken, i) {
		l.spoken = append(l.spoken, i)
	}
	return i
}

// narrow is a row's id and place.
func (m *mapping) narrow() *layout {
	l := &layout{createdAt: -1, payload: -1, headers: -1, tracing: -1}
	for _, c := range m.key {
		l.key = append(l.key, l.speak(c))
	}
	for _, c := range m.order {
		l.order = append(l.order, l.speak(c))
	}
	return l
}

// wide also has all other columns of a message.
func (m *mapping) wide() *layout {
	l := m.narrow()
	for _, c := range m.wanted {
		l.wanted = append(l.wanted, l.speak(c))
	}
	for _, f := range []struct {
		at *int
		of *column
		as func(*column) selected
	}{{&l.createdAt, m.createdAt, valueOf}, {&l.payload, m.payload, bytesOf}, {&l.headers, m.headers, valueOf}, {&l.tracing, m.tracing, valueOf}} {
		if f.of != nil {
			*f.at = l.add(f.as(f.of))
		}
	}
	return l
}

// sql is the list of a select.
func (l *layout) sql() string {
	parts := make([]string, len(l.fields))
	for i := range l.fields {
		parts[i] = l.fields[i].sql
	}
	return strings.Join(parts, ", ")
}

// selected is a value that a statement selects, in the form that is the least work for the server.
// It is binary if this package can make the same text of it as the server, and otherwise text.
type selected struct {
	column string // its name
	sql    string
	text   func(buf []byte, value []byte) []byte // appends the value as text
}

// valueOf is how a column is read.
func valueOf(c *column) selected {
	f := selected{column: c.Name, sql: own(c)}
	switch c.Type {
	case "uuid":
		f.text = appendUUID
	case "smallint", "integer", "bigint":
		f.text = appendInt
	case "timestamp with time zone":
		f.text = func(buf, value []byte) []byte { return appendTime(buf, value, "+00") }
	case "timestamp without time zone":
		f.text = func(buf, value []byte) []byte { return appendTime(buf, value, "") }
	case "text", "character varying", "json":
		f.text = appendBytes
	case "jsonb":
		f.text = appendJSONB
	default:
		return selected{column: c.Name, sql: asText(c), text: appendBytes}
	}
	return f
}

// bytesOf is how a payload is read: a bytea is its bytes and not the text of them.
func bytesOf(c *column) selected {
	if c.Type == "bytea" {
		return selected{column: c.Name, sql: own(c), text: appendBytes}
	}
	return valueOf(c)
}

func appendBytes(buf, value []byte) []byte { return append(buf, value...) }

// appendJSONB leaves out the version that its binary form begins with.
func appendJSONB(buf, value []byte) []byte {
	if len(value) == 0 {
		return buf
	}
	return append(buf, value[1:]...)
}

func appendUUID(buf, value []byte) []byte {
	if len(value) != 16 {
		return buf
	}
	for i, part := range [...][]byte{value[:4], value[4:6], value[6:8], value[8:10], value[10:]} {
		if i > 0 {
			buf = append(buf, '-')
		}
		buf = hex.AppendEncode(buf, part)
	}
	return buf
}

func appendInt(buf, value []byte) []byte {
	switch len(value) {
	case 2:
		return strconv.AppendInt(buf, int64(int16(binary.BigEndian.Uint16(value))), 10)
	case 4:
		return strconv.AppendInt(buf, int64(int32(binary.BigEndian.Uint32(value))), 10)
	case 8:
		return strconv.AppendInt(buf, int64(binary.BigEndian.Uint64(value)), 10)
	}
	return buf
}

// epoch is the time that PostgreSQL counts microseconds from: 2000-01-01.
const epoch = 946_684_800

// appendTime writes a time as the server does with datestyle ISO and timezone UTC.
func appendTime(buf, value []byte, zone string) []byte {
	t, finite := timeOf(value)
	switch {
	case len(value) != 8:
		return buf
	case !finite && value[0] == 0x7f:
		return append(buf, "infinity"...)
	case !finite:
		return append(buf, "-infinity"...)
	}
	if year := t.Year(); year <= 0 { // the year before 1 is 1 BC
		return append(t.AppendFormat(fmt.Appendf(buf, "%04d", 1-year), "-01-02 15:04:05.999999"), zone+" BC"...)
	}
	from := len(buf)
	buf = t.AppendFormat(buf, time.RFC3339Nano) // the fastest, …T…Z
	buf[from+bytes.IndexByte(buf[from:], 'T')] = ' '
	return append(buf[:len(buf)-1], zone...)
}

// timeOf is a timestamp, or false if it is infinite.
func timeOf(value []byte) (t time.Time, finite bool) {
	if len(value) != 8 {
		return t, false
	}
	us := int64(binary.BigEndian.Uint64(value))
	if us == math.MaxInt64 || us == math.MinInt64 {
		return t, false
	}
	return time.Unix(us/1e6+epoch, us%1e6*1000).UTC(), true
}
