package postgres

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"
	"unsafe"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/messageid"
)

// Columns of every statement that returns messages, and how they are asked for:
// binary but for the headers, which are wanted as JSON text.
const (
	colSeq = iota
	colCreatedAt
	colID
	colKey
	colTopic
	colHeaders
	colPayload
	messageColumns
)

var resultFormats = []int16{1, 1, 1, 1, 1, 0, 1}

// decoder turns wire rows into messages. The contents of messages are copied into chunks that they
// share, so a message needs no separate allocation. A chunk lives as long as any of its messages.
type decoder struct {
	ids   messageid.Outbox
	chunk []byte
	topic string // the last one: neighbours mostly share it
}

const chunkBytes = 256 << 10

// keep copies b into the current chunk.
func (d *decoder) keep(b []byte) []byte {
	if len(b) > cap(d.chunk)-len(d.chunk) {
		if len(b) > chunkBytes/4 {
			return append(make([]byte, 0, len(b)), b...)
		}
		d.chunk = make([]byte, 0, chunkBytes)
	}
	start := len(d.chunk)
	d.chunk = append(d.chunk, b...)
	return d.chunk[start:len(d.chunk):len(d.chunk)]
}

// text is keep for strings: the bytes of a chunk are written once.
func (d *decoder) text(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	kept := d.keep(b)
	return unsafe.String(&kept[0], len(kept))
}

// decode fills m from a row; values are only valid during the call.
func (d *decoder) decode(m *penstock.Message, row [][]byte) error {
	if len(row) < messageColumns || len(row[colSeq]) != 8 || len(row[colCreatedAt]) != 8 {
		return fmt.Errorf("a row of %d columns does not look like a message", len(row))
	}
	m.Seq = int64(binary.BigEndian.Uint64(row[colSeq]))
	m.CreatedAt = timestamp(row[colCreatedAt])
	m.Attempt = 1
	if id := row[colID]; len(id) > 0 {
		m.ID = d.text(id)
	} else {
		var buf [64]byte
		m.ID = d.text(d.ids.Append(buf[:0], m.Seq, m.CreatedAt))
	}
	m.Key = d.text(row[colKey])
	if topic := row[colTopic]; string(topic) != d.topic {
		d.topic = string(topic)
	}
	m.Topic = d.topic
	m.Payload = d.keep(row[colPayload])
	m.Headers = nil
	if len(row[colHeaders]) > 0 {
		headers, err := decodeHeaders(row[colHeaders])
		if err != nil {
			return fmt.Errorf("headers of message %d: %w", m.Seq, err)
		}
		m.Headers = headers
	}
	return nil
}

// timestamp decodes PostgreSQL's binary form: microseconds since 2000-01-01, UTC.
func timestamp(b []byte) time.Time {
	const epoch = 946684800 * 1_000_000
	return time.UnixMicro(int64(binary.BigEndian.Uint64(b)) + epoch).UTC()
}

// decodeHeaders reads a JSON object. A value that is not a string is passed on as its JSON text;
// null is an empty value.
func decodeHeaders(text []byte) (map[string]string, error) {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, err
	}
	if len(raw) == 0 {
		return nil, nil
	}
	headers := make(map[string]string, len(raw))
	for name, value := range raw {
		var s string
		switch {
		case bytes.Equal(value, []byte("null")):
		case len(value) > 0 && value[0] == '"':
			if err := json.Unmarshal(value, &s); err != nil {
				return nil, err
			}
		default:
			s = string(value)
		}
		headers[name] = s
	}
	return headers, nil
}
