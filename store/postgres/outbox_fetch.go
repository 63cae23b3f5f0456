package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"strconv"

	"github.com/penstock/penstock"
)

// page is the result of one statement.
type page struct {
	messages []penstock.Message
	bytes    int
	cut      bool // rows beyond the byte limit were left for the next page

	// Of a poll only:
	snapshot  snapshotBound // the statement's snapshot
	high      int64         // the sequence's value
	oid       string        // of the outbox
	outOfBand string        // the other sources to read
}

// readNew polls for rows that became visible since the cursor. If there is more than
// one page of it, the poll's snapshot becomes the end of a window.
func (src *Source) readNew(ctx context.Context, sess *session, rows, bytes int) (page, position, error) {
	next := sess.at
	if nothing, err := src.nothingNew(ctx, sess); err != nil || nothing {
		return page{}, next, err
	}
	src.mu.Lock()
	low := src.low // before the snapshot is taken
	src.mu.Unlock()
	p, err := sess.query(ctx, stmtPoll, true, rows, bytes,
		number(next.done.low), []byte(next.done.xip()), []byte(next.done.snap), number(int64(rows)), number(src.id))
	if err != nil {
		return p, next, err
	}
	if p.oid != sess.oid {
		return p, next, noOutbox(src.req.Outbox)
	}
	src.saw(sess, p.outOfBand)
	p.snapshot.low = low
	sess.idle = len(p.messages) == 0
	src.mu.Lock()
	if src.sess == sess {
		src.high = p.high
	}
	src.mu.Unlock()
	if p.cut || len(p.messages) == rows {
		next.upto, next.pos, next.high = p.snapshot, p.messages[len(p.messages)-1].Seq, p.high
	} else {
		next.done = p.snapshot
	}
	return p, next, nil
}

// readPage reads on through the window.
func (src *Source) readPage(ctx context.Context, sess *session, rows, bytes int) (page, position, error) {
	next := sess.at
	p, err := sess.query(ctx, stmtPage, false, rows, bytes,
		number(next.done.low), []byte(next.done.xip()), []byte(next.done.snap), number(next.pos),
		[]byte(next.upto.snap), number(next.high), number(int64(rows)))
	if err != nil {
		return p, next, err
	}
	if p.cut || len(p.messages) == rows {
		next.pos = p.messages[len(p.messages)-1].Seq
	} else {
		next.done, next.upto, next.pos = next.upto, snapshotBound{}, 0
	}
	return p, next, nil
}

// readRebase reads the messages that a restored cursor had not settled. Until it has, the cursor stays the
// other cluster's, with the bound moved on; messages in flight there come again if the relay
// stops half-way.
func (src *Source) readRebase(ctx context.Context, sess *session, rows, bytes int) (page, position, error) {
	next, r := sess.at, *sess.at.rebase
	p, err := sess.query(ctx, stmtRebase, false, rows, bytes,
		number(r.pos), number(r.high), number(r.from.bound()), []byte(r.from.end().xip()), number(int64(rows)))
	if err != nil {
		return p, next, err
	}
	if p.cut || len(p.messages) == rows {
		r.pos = p.messages[len(p.messages)-1].Seq
		next.rebase = &r
		next.cursor = cursor{done: snapshotBound{snap: r.from.end().snap, low: max(r.pos, r.from.bound())}, system: r.from.system}
	} else {
		next.rebase = nil
		next.cursor = cursor{done: r.to, system: sess.system}
	}
	return p, next, nil
}

func number(n int64) []byte { return strconv.AppendInt(nil, n, 10) }

// query runs a prepared statement and decodes its rows as they arrive: rows
// beyond the byte limit are not kept.
func (sess *session) query(ctx context.Context, name string, peeks bool, rows, bytes int, params ...[]byte) (page, error) {
	result := sess.read.PgConn().ExecPrepared(ctx, name, params, nil, resultFormats)
	var p page
	for result.NextRow() {
		values := result.Values()
		if peeks {
			peeks = false
			p.high = int64(binary.BigEndian.Uint64(values[colSeq]))
			p.oid = string(values[colID])
			p.outOfBand = string(values[colKey])
			p.snapshot.snap = string(values[colTopic])
			if err := sess.reader.stays(int64(binary.BigEndian.Uint64(values[colPayload]))); err != nil {
				_, _ = result.Close()
				return page{}, err
			}
			continue
		}
		if p.cut || p.bytes > 0 && p.bytes+len(values[colPayload]) > bytes {
			p.cut = true
			continue
		}
		if p.messages == nil {
			p.messages = make([]penstock.Message, 0, min(rows, max(8, sess.at.count+sess.at.count/4)))
		}
		p.messages = append(p.messages, penstock.Message{})
		m := &p.messages[len(p.messages)-1]
		if err := sess.decoder.decode(m, values); err != nil {
			_, _ = result.Close()
			return page{}, err
		}
		p.bytes += m.Size()
	}
	if _, err := result.Close(); err != nil {
		return page{}, err
	}
	if name == stmtPoll && p.snapshot.snap == "" {
		return page{}, errors.New("the poll returned no snapshot")
	}
	return p, nil
}

func newRebase(from cursor, to snapshotBound, high int64) *rebase {
	r := &rebase{from: from, to: to, high: high, pos: from.bound()}
	if from.end().xip() != "{}" {
		r.pos = -1 // rows in flight may have any seq
	}
	return r
}
