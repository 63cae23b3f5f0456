package sqlite

import (
	"database/sql"
	"fmt"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/messageid"
	"github.com/penstock/penstock/internal/seqset"
	"github.com/penstock/penstock/internal/tables"
)

// page collects the messages of one Fetch.
type page struct {
	limit    driver.Limit
	ids      messageid.Outbox
	from     origin
	msgs     []penstock.Message
	keyOrder []driver.KeyOrder // nil: all are InOrder
	bytes    int
	// full: there was a message that did not fit.
	full bool
	// end is the position behind the messages, in the log or in the replay.
	end    int64
	replay int64
	parked []place // of each message, if they are from the park
}

func newPage(ids messageid.Outbox, limit driver.Limit, size int) *page {
	return &page{limit: limit, ids: ids, msgs: make([]penstock.Message, 0, min(limit.Messages, 2*size+16))}
}

// room is how many rows to ask for: one more than fit, to learn whether there
// are more.
func (p *page) room() int { return p.limit.Messages - len(p.msgs) + 1 }

// add takes m if it fits. The first one always does.
func (p *page) add(m *penstock.Message) bool {
	size := m.Size()
	if n := len(p.msgs); n > 0 && (n >= p.limit.Messages || p.bytes+size > p.limit.Bytes) {
		p.full = true
		return false
	}
	p.bytes += size
	p.msgs = append(p.msgs, *m)
	return true
}

// setKeyOrder notes how the i-th message is ordered in its key.
func (p *page) setKeyOrder(i int, order driver.KeyOrder) {
	for len(p.keyOrder) < len(p.msgs) {
		p.keyOrder = append(p.keyOrder, driver.InOrder)
	}
	p.keyOrder[i] = order
}

// readLog reads the rows of an outbox's table, up to the first that does not fit, but
// for those that are settled. It returns how many there were, and the seq of the last.
func (p *page) readLog(rows *sql.Rows, settled seqset.Set) (n int, last int64, err error) {
	defer func() { _ = rows.Close() }()
	var r row
	dest := r.dest()
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return n, last, err
		}
		if settled == nil || !settled.Has(r.seq) {
			m := r.message(p.ids)
			if !p.add(&m) {
				break
			}
		}
		n, last = n+1, r.seq
	}
	return n, last, rows.Err()
}

// readOn reads page after page of what is behind a seq until one has something that is
// not settled. It returns the seq to read on from.
func (p *page) readOn(after int64, settled seqset.Set, query func(after int64, limit int) (*sql.Rows, error)) (int64, error) {
	for {
		room := p.room()
		rows, err := query(after, room)
		if err != nil {
			return after, err
		}
		n, last, err := p.readLog(rows, settled)
		if err != nil {
			return after, err
		}
		after = max(after, last)
		p.full = p.full || n == room
		if len(p.msgs) > 0 || n < room {
			return after, nil
		}
		p.full = false
	}
}

// fetched is what Settle needs to know about the page.
func (p *page) fetched() *fetched {
	b := &fetched{from: p.from, end: p.end, replay: p.replay, parked: p.parked, count: len(p.msgs), first: p.msgs[0].Seq}
	for i := range p.msgs {
		if p.msgs[i].Seq != b.first+int64(i) { // gaps, or other keys
			b.seqs = make([]int64, len(p.msgs))
			for i := range p.msgs {
				b.seqs[i] = p.msgs[i].Seq
			}
			break
		}
	}
	return b
}

// row is the columns that messages are read from, in the order of the queries.
type row struct {
	seq, createdAt          int64
	id, key, topic, headers string
	payload                 payload
}

func (r *row) dest() []any {
	return []any{&r.seq, &r.createdAt, &r.id, &r.key, &r.topic, &r.headers, &r.payload}
}

// payload keeps the driver's slice. database/sql would copy it once more, for
// drivers that use it again; this one makes a fresh slice for each row.
type payload []byte

func (p *payload) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*p = nil
	case []byte:
		if *p = v; v == nil {
			*p = []byte{}
		}
	case string: // who publishes by INSERT may leave text in the column
		*p = []byte(v)
	default: // or a number
		*p = fmt.Append(nil, v)
	}
	return nil
}

// message makes the message, on its first attempt; ids are its outbox's.
func (r *row) message(ids messageid.Outbox) penstock.Message {
	m := penstock.Message{
		ID:        r.id,
		Seq:       r.seq,
		Key:       r.key,
		Topic:     r.topic,
		Headers:   tables.Headers([]byte(r.headers)),
		Payload:   r.payload,
		CreatedAt: time.UnixMilli(r.createdAt).UTC(),
		Attempt:   1,
	}
	if m.Payload == nil {
		m.Payload = []byte{}
	}
	if m.ID == "" {
		m.ID = ids.ID(r.seq, m.CreatedAt)
	}
	return m
}
