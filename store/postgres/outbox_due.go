package postgres

import (
	"context"
	"encoding/binary"
	"slices"
	"strconv"
	"time"

	"github.com/penstock/penstock"
)

// dueFloor is the end of the part of the schedule that was read, for settle.sql. The
// caller holds Source.writing.
func (sess *session) dueFloor() string { return sess.aside.due }

// floor is the part of the schedule that was read, as parameters.
func (a *aside) floor() [][]byte { return [][]byte{[]byte(a.due), number(a.n)} }

// rereadLines begins with the schedule anew, but for the lines that are handed out: their
// next states come with their verdicts. The caller holds Source.writing and mu.
func (src *Source) rereadLines(sess *session) {
	a := &sess.aside
	a.due, a.n = "-infinity", 0
	handed := slices.Clone(a.handed) // not among the pending for a moment
	for i := range src.pending {
		handed = append(handed, src.pending[i].handed...)
	}
	for i := range handed {
		if out := &handed[i]; out.from < out.to {
			src.holdInHand(out.line)
		}
	}
}

// leastPerLine is how many messages of a line one batch takes at least, if it
// takes more than the first.
const leastPerLine = 64

// fetchParked returns messages of the lines that are due, nil if there are none.
func (src *Source) fetchParked(ctx context.Context, sess *session, limit penstock.Limit) (*pending, error) {
	a := &sess.aside
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

// perLine is how many messages of one line a batch of so many takes: of few lines
// many, of many lines few, so that keys need not wait for each other.
func (src *Source) perLine(messages int) int {
	src.mu.Lock()
	defer src.mu.Unlock()
	switch n := len(src.lines.all); {
	case !src.lines.exact:
		return leastPerLine
	case n == 0:
		return messages
	default:
		return max(leastPerLine, 2*messages/n)
	}
}

// readDue reads on in the schedule. It keeps writes out meanwhile: then every state
// that is due by now is visible, and reading can go on where it ends, over nothing that
// was read before.
func (src *Source) readDue(ctx context.Context, sess *session, limit penstock.Limit) (*pending, error) {
	src.writing.Lock()
	defer src.writing.Unlock()
	a := &sess.aside
	params := append([][]byte{number(src.id)}, a.floor()...)
	params = append(params, number(int64(limit.Messages)), number(int64(src.perLine(limit.Messages))))
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
		if src.isInHand(string(row[dueLine])) {
			continue // its next state comes with the verdicts that are missing
		}
		if row[colSeq] == nil {
			if head := row[dueHead]; head != nil {
				a.gone = append(a.gone, gone{string(row[dueLine]), int64(binary.BigEndian.Uint64(head))})
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
	a.due, a.n, a.handed = due, n, p.handed
	a.measure(bytes, len(p.messages))
	a.parked = full || rows >= limit.Messages // there may be more: do not wait for a poll to say so
	return p, nil
}

// holdInHand has readDue pass over a line until all that was handed out of it has verdicts.
func (src *Source) holdInHand(line string) {
	if src.inHand == nil {
		src.inHand = map[string]bool{}
	}
	src.inHand[line] = true
}

// isInHand reports whether readDue is to pass over a line.
func (src *Source) isInHand(line string) bool {
	src.mu.Lock()
	defer src.mu.Unlock()
	return src.inHand[line]
}

// Columns of due.sql after the message's.
const (
	dueLine = messageColumns + iota
	dueN
	dueP
	dueDue
	dueAttempt
	dueFailures
	dueSince
	dueHead
)

var dueFormats = []int16{1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1}

// gone is a line without messages. There is no way to make one but to delete rows by
// hand; it would be parked for ever.
type gone struct {
	line string
	head int64
}

// addParked adds a row of due.sql to the batch.
func (p *pending) addParked(sess *session, row [][]byte) error {
	p.messages = append(p.messages, penstock.Message{})
	m := &p.messages[len(p.messages)-1]
	if err := sess.decoder.decode(m, row); err != nil {
		return err
	}
	name := string(row[dueLine])
	at := len(p.messages) - 1
	if last := len(p.handed) - 1; last < 0 || p.handed[last].line != name {
		out := handedOut{line: name, from: at}
		var err error
		if out.history.Attempt, err = strconv.Atoi(string(row[dueAttempt])); err != nil {
			return err
		}
		if err := out.history.Parse(row[dueFailures]); err != nil {
			return err
		}
		if since := row[dueSince]; since != nil {
			us, err := strconv.ParseInt(string(since), 10, 64)
			if err != nil {
				return err
			}
			out.history.Since = time.UnixMicro(us).UTC()
		}
		m.Attempt, m.FailedSince = out.history.Attempt+1, out.history.Since
		p.handed = append(p.handed, out)
	}
	out := &p.handed[len(p.handed)-1]
	out.to = at + 1
	out.p = append(out.p, int64(binary.BigEndian.Uint64(row[dueP])))
	if keyOf(name) == "" && m.Key != "" {
		p.setKeyOrder(at, penstock.OutOfOrder)
	}
	return nil
}
