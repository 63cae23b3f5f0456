package stdout

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sort"
	"time"
	"unicode/utf8"

	"github.com/penstock/penstock"
)

// line is the written form of a message.
type line struct {
	ID      string            `json:"id"`
	Seq     int64             `json:"seq"`
	Key     string            `json:"key"`
	Topic   string            `json:"topic"`
	Headers map[string]string `json:"headers,omitempty"`
	// Exactly one of the two is there.
	Payload       *string `json:"payload,omitempty"`
	PayloadBase64 []byte  `json:"payload_base64,omitempty"`
	CreatedAt     string  `json:"created_at"`
	Attempt       int     `json:"attempt"`
}

// chunk has whole lines, to be written together.
type chunk struct {
	bytes []byte
	ends  []int // where each line ends
}

// linesIn is how many whole lines there are in the first n bytes.
func (c chunk) linesIn(n int) int { return sort.SearchInts(c.ends, n+1) }

// encode turns the first messages, about chunkBytes of them and at least one,
// into lines. After a torn line it starts on a new one.
func encode(msgs []penstock.Message, torn bool) chunk {
	var (
		buf  bytes.Buffer
		ends []int
	)
	if torn {
		buf.WriteByte('\n')
	}
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	for i := range msgs {
		m := &msgs[i]
		l := line{
			ID: m.ID, Seq: m.Seq, Key: m.Key, Topic: m.Topic, Headers: m.Headers,
			CreatedAt: m.CreatedAt.UTC().Format(time.RFC3339Nano), Attempt: m.Attempt,
		}
		if utf8.Valid(m.Payload) {
			text := string(m.Payload)
			l.Payload = &text
		} else {
			l.PayloadBase64 = m.Payload
		}
		if err := enc.Encode(l); err != nil {
			panic(fmt.Sprintf("stdout: strings, bytes and numbers did not encode: %v", err))
		}
		ends = append(ends, buf.Len())
		if buf.Len() >= chunkBytes {
			break
		}
	}
	return chunk{buf.Bytes(), ends}
}
