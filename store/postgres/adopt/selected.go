package adopt

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"time"
)

// selected is a value that a statement selects, in the form that is the least work for the server.
// It is binary if this package can make the same text of it as the server, and otherwise text.
type selected struct {
	column string // its name
	sql    string
	null   string                                // its text in a row without a table
	text   func(buf []byte, value []byte) []byte // appends the value as text
}

// valueOf is how a column is read.
func valueOf(c *column) selected {
	f := selected{column: c.Name, sql: own(c), null: "null::" + c.Type}
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
		return selected{column: c.Name, sql: asText(c), null: "null::text", text: appendBytes}
	}
	return f
}

// bytesOf is how a payload is read: a bytea is its bytes and not the text of them.
func bytesOf(c *column) selected {
	if c.Type == "bytea" {
		return selected{column: c.Name, sql: own(c), null: "null::bytea", text: appendBytes}
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
	year := t.Year()
	if year <= 0 { // the year before 1 is 1 BC
		year, zone = 1-year, zone+" BC"
	}
	return append(t.AppendFormat(fmt.Appendf(buf, "%04d", year), "-01-02 15:04:05.999999"), zone...)
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
