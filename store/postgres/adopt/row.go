package adopt

import (
	"cmp"
	"context"
	"errors"
	"unicode/utf8"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/adopted"
)

// place is where a row stands in the order: the values of the order's columns as
// text. nil is before all rows.
type place []string

// row is one as it was read.
type row struct {
	id      string // _adopt_row.row_id
	at      place
	message penstock.Message
	unread  error // parts that the server could not show, or that are not text; the message lacks them
	passed  bool  // it has a place here, and is not to be delivered now
}

func (r row) rowID() string { return r.id }

// unfit is why the row cannot be a message.
func (r *row) unfit() error { return cmp.Or(r.unread, r.message.Validate()) }

// decoder makes rows of the server's answer. A row has one string for all its texts, and
// payloads and places share chunks, which live as long as any of theirs. Not safe for concurrent use.
type decoder struct {
	m     *mapping
	l     *layout
	texts []string // of the present row, by field
	null  []bool
	buf   []byte
	ends  []int

	payloads []byte
	places   []string
}

// chunkBytes is the size of a chunk of payloads; of places a chunk has chunkRows.
const (
	chunkBytes = 64 << 10
	chunkRows  = 256
)

func (m *mapping) decoder(l *layout) *decoder {
	return &decoder{m: m, l: l, texts: make([]string, len(l.fields)), null: make([]bool, len(l.fields)), ends: make([]int, len(l.spoken))}
}

// load takes the values of a row, which are valid only during the call.
func (d *decoder) load(values [][]byte) {
	d.buf = d.buf[:0]
	for n, i := range d.l.spoken {
		if d.null[i] = values[i] == nil; !d.null[i] {
			d.buf = d.l.fields[i].text(d.buf, values[i])
		}
		d.ends[n] = len(d.buf)
	}
	all, from := string(d.buf), 0
	for n, i := range d.l.spoken {
		d.texts[i] = all[from:d.ends[n]]
		from = d.ends[n]
	}
}

// id is the id of the row that was loaded.
func (d *decoder) id() string {
	if len(d.l.key) == 1 {
		return d.texts[d.l.key[0]]
	}
	d.buf = append(d.buf[:0], '[')
	for n, i := range d.l.key {
		if n > 0 {
			d.buf = append(d.buf, ", "...)
		}
		d.buf = appendQuoted(d.buf, d.texts[i])
	}
	return string(append(d.buf, ']'))
}

// at is the place of the row that was loaded.
func (d *decoder) at() place {
	if n := len(d.l.order); cap(d.places)-len(d.places) < n {
		d.places = make([]string, 0, n*chunkRows)
	}
	from := len(d.places)
	for _, i := range d.l.order {
		d.places = append(d.places, d.texts[i])
	}
	return d.places[from:len(d.places):len(d.places)]
}

// decode makes a row of the values of the mapping's whole layout.
func (d *decoder) decode(values [][]byte) row {
	d.load(values)
	r := row{id: d.id(), at: d.at()}
	msg := &r.message
	if i := d.l.createdAt; i >= 0 {
		msg.CreatedAt, _ = timeOf(values[i])
	}
	msg.Payload = d.payload(values)
	msg.Attempt = 1
	msg.ID, _ = d.m.parts.MessageID.Expand(d.wanted)
	msg.Key, _ = d.m.parts.Key.Expand(d.wanted)
	msg.Topic, _ = d.m.parts.Topic.Expand(d.wanted)
	msg.Headers, r.unread = d.headers(values)
	return r
}

// wanted is the text of a column that templates want; false if it is NULL.
func (d *decoder) wanted(i int) (text string, there bool) {
	i = d.l.wanted[i]
	return d.texts[i], !d.null[i]
}

func (d *decoder) payload(values [][]byte) []byte {
	i := d.l.payload
	if i < 0 || values[i] == nil {
		return nil
	}
	if n := len(values[i]); n > cap(d.payloads)-len(d.payloads) {
		if n > chunkBytes/4 {
			return d.l.fields[i].text(make([]byte, 0, n), values[i])
		}
		d.payloads = make([]byte, 0, chunkBytes)
	}
	from := len(d.payloads)
	d.payloads = d.l.fields[i].text(d.payloads, values[i])
	return d.payloads[from:len(d.payloads):len(d.payloads)]
}

func (d *decoder) headers(values [][]byte) (headers map[string]string, err error) {
	if d.l.headers < 0 && d.l.tracing < 0 && len(d.m.parts.HeaderNames) == 0 {
		return nil, nil
	}
	headers = map[string]string{}
	if i := d.l.tracing; i >= 0 && values[i] != nil {
		adopted.Properties(string(values[i]), headers)
	}
	if i := d.l.headers; i >= 0 && values[i] != nil {
		object := d.l.fields[i].text(nil, values[i])
		if !utf8.Valid(object) { // Go's JSON would replace text that is not
			err = &penstock.FieldError{Field: "headers", Problem: "are not valid UTF-8"}
		}
		adopted.Flatten(object, headers)
	}
	for i, t := range d.m.parts.Headers {
		if text, err := t.Expand(d.wanted); !errors.Is(err, adopted.ErrNull) {
			headers[d.m.parts.HeaderNames[i]] = text
		}
	}
	if len(headers) == 0 {
		return nil, err
	}
	return headers, err
}

// query calls f with the values of each row that the statement returns.
func query(ctx context.Context, q querier, sql string, args []any, f func(values [][]byte)) error {
	rows, _ := q.Query(ctx, sql, args...)
	defer rows.Close()
	for rows.Next() {
		f(rows.RawValues())
	}
	return rows.Err()
}
