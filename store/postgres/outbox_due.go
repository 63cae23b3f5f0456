package postgres

import (
	"context"
	"encoding/binary"
	"strconv"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// dueFloor is the end of the part of the schedule that was read, for settle.sql. The
// caller holds Source.writing.
func (sess *session) dueFloor() string { return sess.outOfBand.due }

// floor is the part of the schedule that was read, as parameters.
func (a *outOfBand) floor() [][]byte { return [][]byte{[]byte(a.due), number(a.n)} }

// rereadSchedule begins with the schedule anew. The caller holds Source.writing.
func (sess *session) rereadSchedule() { sess.outOfBand.due, sess.outOfBand.n = "-infinity", 0 }

// leastPerKey is how many messages of a key one batch takes at least, if it
// takes more than the first.
const leastPerKey = 64

// fetchParked returns messages of the parked keys that are due, nil if there are none.
func (src *Source) fetchParked(ctx context.Context, sess *session, limit driver.Limit) (*pending, error) {
	a := &sess.outOfBand
	for {
		limit.Messages = a.rows(limit)
		p, err := src.readDue(ctx, sess, limit)
		if err != nil || len(p.messages) > 0 {
			return p, err
		}
		if !a.parked { // not even past states are left
			a.none = time.Now()
			return nil, nil
		}
	}
}

// perKey is how many messages of one key a batch of this size takes. It takes many of few keys and
// few of many keys, so that keys need not wait for each other.
func (src *Source) perKey(messages int) int {
	src.mu.Lock()
	defer src.mu.Unlock()
	switch n := len(src.parkedKeys.all); {
	case !src.parkedKeys.exact:
		return leastPerKey
	case n == 0:
		return messages
	default:
		return max(leastPerKey, 2*messages/n)
	}
}

// readDue reads on in the schedule. It keeps writes out meanwhile. Then every state that is due by
// now is visible, and reading can continue where it ends, without reading states again.
func (src *Source) readDue(ctx context.Context, sess *session, limit driver.Limit) (*pending, error) {
	src.writing.Lock()
	defer src.writing.Unlock()
	a := &sess.outOfBand
	params := append([][]byte{number(src.id)}, a.floor()...)
	params = append(params, number(int64(limit.Messages)), number(int64(src.perKey(limit.Messages))))
	result := sess.read.PgConn().ExecPrepared(ctx, stmtDue, params, nil, dueFormats)
	p := &pending{origin: fromPark}
	bytes, rows, full := 0, 0, false
	due, n := a.due, a.n
	for result.NextRow() {
		row := result.Values()
		rows++
		if full || bytes > 0 && bytes+len(row[colPayload]) > limit.Bytes {
			full = true
			continue
		}
		due, n = string(row[dueDue]), int64(binary.BigEndian.Uint64(row[dueN]))
		if src.isInFlight(string(row[dueName])) {
			continue // its next state comes with the verdicts that are missing
		}
		if row[colSeq] == nil {
			if head := row[dueHead]; head != nil {
				a.gone = append(a.gone, gone{string(row[dueName]), int64(binary.BigEndian.Uint64(head))})
			}
			continue
		}
		if err := p.addParked(sess, row); err != nil {
			_, _ = result.Close()
			return nil, err
		}
		bytes += p.messages[len(p.messages)-1].Size()
	}
	if _, err := result.Close(); err != nil {
		return nil, err
	}
	src.mu.Lock()
	for i := range p.fetched {
		src.inFlight[p.fetched[i].name] = true // its next state comes with its verdicts
	}
	src.mu.Unlock()
	a.due, a.n = due, n
	a.measure(bytes, len(p.messages))
	a.parked = full || rows >= limit.Messages // there may be more: do not wait for a poll to say so
	return p, nil
}

// isInFlight reports whether readDue is to pass over a key.
func (src *Source) isInFlight(name string) bool {
	src.mu.Lock()
	defer src.mu.Unlock()
	return src.inFlight[name]
}

// Columns of due.sql after the message's.
const (
	dueName = messageColumns + iota
	dueN
	dueP
	dueDue
	dueAttempt
	dueFailures
	dueSince
	dueHead
)

var dueFormats = []int16{1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1}

// gone is a parked key without messages. There is no way to make one but to delete rows by
// hand; it would be parked for ever.
type gone struct {
	name string
	head int64
}

// addParked adds a row of due.sql to the batch.
func (p *pending) addParked(sess *session, row [][]byte) error {
	p.messages = append(p.messages, penstock.Message{})
	m := &p.messages[len(p.messages)-1]
	if err := sess.decoder.decode(m, row); err != nil {
		return err
	}
	name := string(row[dueName])
	at := len(p.messages) - 1
	if last := len(p.fetched) - 1; last < 0 || p.fetched[last].name != name {
		out := fetchedKey{name: name, from: at}
		var err error
		if out.history.Attempt, err = strconv.Atoi(string(row[dueAttempt])); err != nil {
			return err
		}
		out.history.Parse(row[dueFailures])
		if since := row[dueSince]; since != nil {
			us, err := strconv.ParseInt(string(since), 10, 64)
			if err != nil {
				return err
			}
			out.history.Since = time.UnixMicro(us).UTC()
		}
		m.Attempt, m.FailedSince = out.history.Attempt+1, out.history.Since
		if reason, given := out.history.GivenUp(); given {
			if p.givenUp == nil {
				p.givenUp = map[int]string{}
			}
			p.givenUp[at] = reason
		}
		p.fetched = append(p.fetched, out)
	}
	out := &p.fetched[len(p.fetched)-1]
	out.to = at + 1
	out.p = append(out.p, int64(binary.BigEndian.Uint64(row[dueP])))
	if keyOf(name) == "" && m.Key != "" {
		p.setKeyOrder(at, driver.OutOfOrder)
	}
	return nil
}
