package postgres

import (
	"context"
	"encoding/binary"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
)

// aside is what there is to read beside the stream. A poll says what; the Fetches
// that follow take one batch of each before the next poll, so that neither the
// stream nor what lies aside waits for the other to end.
type aside struct {
	letters, parked, replay bool // the last look has seen some

	looked   time.Time      // when that was
	none     time.Time      // when no line was due
	released time.Time      // when held lines were looked at
	flying   map[int64]bool // dead letters returned and not settled

	// How far the lines' schedule has been read. Every state that is due up to
	// here was read; new ones are written with a later time (see settle.sql).
	due string
	n   int64

	size      int    // average of a message, 0: not known
	gone      []gone // lines whose message is gone
	replaying replaying
	waited    bool // the stream had the last turn
}

// turn is true every second time.
func (a *aside) turn() bool {
	a.waited = !a.waited
	return a.waited
}

// While a backlog is paged through there are no polls: look this often. And this
// often for lines that have become due.
const (
	lookEvery    = 50 * time.Millisecond
	lookForLines = 20 * time.Millisecond
)

func newAside() aside { return aside{flying: map[int64]bool{}, due: "-infinity"} }

func (a *aside) any() bool { return a.letters || a.parked || a.replay }

// saw notes the letters that a poll or a tick returns, d and r. Of parked lines the
// source knows whether there are any.
func (src *Source) saw(sess *session, flags string) {
	a, now := &sess.aside, time.Now()
	if src.req.Ephemeral {
		return // it reads the stream only
	}
	src.mu.Lock()
	lines, changed := !src.lines.exact || len(src.lines.all) > 0, src.lines.changed
	src.lines.changed = false
	src.mu.Unlock()
	a.letters, a.replay = strings.Contains(flags, "d"), strings.Contains(flags, "r")
	a.parked = lines && (changed || now.Sub(a.none) >= lookForLines)
	a.looked = now
}

// fetchAside returns one batch of what lies aside, nil if there is nothing.
func (src *Source) fetchAside(ctx context.Context, sess *session, limit penstock.Limit) (*pending, error) {
	if src.req.Ephemeral {
		return nil, nil
	}
	a := &sess.aside
	if (sess.at.paging() || sess.at.rebase != nil) && time.Since(a.looked) > lookEvery {
		if _, err := src.tick(ctx, sess); err != nil {
			return nil, err
		}
	}
	if err := src.unhold(ctx, sess); err != nil {
		return nil, err
	}
	for _, kind := range []struct {
		due  *bool
		read func(context.Context, *session, penstock.Limit) (*pending, error)
	}{{&a.letters, src.fetchLetters}, {&a.parked, src.fetchParked}, {&a.replay, src.fetchReplay}} {
		if !*kind.due {
			continue
		}
		*kind.due = false
		if p, err := kind.read(ctx, sess, limit); err != nil || p != nil {
			return p, err
		}
	}
	return nil, nil
}

// tick is the first row of a poll alone.
type tick struct {
	high int64
	oid  string
	snap string
}

func (src *Source) tick(ctx context.Context, sess *session) (t tick, err error) {
	result := sess.read.PgConn().ExecPrepared(ctx, stmtTick, [][]byte{number(src.id)}, nil, nil).Read()
	if result.Err != nil {
		return t, result.Err
	}
	row, err := oneRow(result, 4)
	if err != nil {
		return t, err
	}
	if t.high, err = strconv.ParseInt(string(row[0]), 10, 64); err != nil {
		return t, err
	}
	t.oid, t.snap = string(row[1]), string(row[3])
	src.saw(sess, string(row[2]))
	return t, nil
}

func oneRow(result *pgconn.Result, columns int) ([][]byte, error) {
	if len(result.Rows) != 1 || len(result.Rows[0]) != columns {
		return nil, errNoTick
	}
	return result.Rows[0], nil
}

// dueFloor is the end of the part of the schedule that was read, for settle.sql. The
// caller holds Source.writing.
func (sess *session) dueFloor() string { return sess.aside.due }

// floor is the part of the schedule that was read, as parameters.
func (a *aside) floor() [][]byte { return [][]byte{[]byte(a.due), number(a.n)} }

// leastPerLine is how many messages of a line one batch takes at least, if it
// takes more than the first.
const leastPerLine = 64

// firstRows is how many rows are asked for while nothing is known of their size.
const firstRows = 64

// rows is how many rows may come: of what is beyond limit.Bytes nothing is kept, but
// it has to cross the wire.
func (a *aside) rows(limit penstock.Limit) int {
	if a.size == 0 {
		return min(limit.Messages, firstRows)
	}
	return max(1, min(limit.Messages, limit.Bytes/a.size))
}

// measure notes the average size of a page's messages.
func (a *aside) measure(bytes, n int) {
	if n > 0 {
		a.size = max(1, bytes/n)
	}
}

// fetchParked returns messages of the lines that are due.
//
// It keeps writes out meanwhile. Then every state that is due by now is visible, and
// the schedule can be read on from where it ends, over nothing that was read before.
func (src *Source) fetchParked(ctx context.Context, sess *session, limit penstock.Limit) (*pending, error) {
	src.writing.Lock()
	defer src.writing.Unlock()
	src.mu.Lock()
	limit.Messages = sess.aside.rows(limit)
	perLine := limit.Messages
	if src.lines.exact && len(src.lines.all) > 0 {
		perLine = max(leastPerLine, 2*limit.Messages/len(src.lines.all))
	} else if !src.lines.exact {
		perLine = leastPerLine
	}
	src.mu.Unlock()

	a := &sess.aside
	params := append([][]byte{number(src.id)}, a.floor()...)
	params = append(params, number(int64(limit.Messages)), number(int64(perLine)))
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
	a.due, a.n = due, n
	a.measure(bytes, len(p.messages))
	a.parked = full || rows >= limit.Messages // there may be more: do not wait for a poll to say so
	if len(p.messages) == 0 {
		if a.parked {
			return src.fetchMoreParked(ctx, sess, limit)
		}
		a.none = time.Now()
		return nil, nil
	}
	return p, nil
}

// fetchMoreParked goes on after rows that were all past states.
func (src *Source) fetchMoreParked(ctx context.Context, sess *session, limit penstock.Limit) (*pending, error) {
	src.writing.Unlock() // a write may want its turn
	defer src.writing.Lock()
	return src.fetchParked(ctx, sess, limit)
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
		if out.history.attempt, err = strconv.Atoi(string(row[dueAttempt])); err != nil {
			return err
		}
		if err := out.history.parse(row[dueFailures]); err != nil {
			return err
		}
		if since := row[dueSince]; since != nil {
			us, err := strconv.ParseInt(string(since), 10, 64)
			if err != nil {
				return err
			}
			out.history.since = time.UnixMicro(us).UTC()
		}
		m.Attempt, m.FailedSince = out.history.attempt+1, out.history.since
		p.handed = append(p.handed, out)
	}
	out := &p.handed[len(p.handed)-1]
	out.to = at + 1
	out.p = append(out.p, int64(binary.BigEndian.Uint64(row[dueP])))
	if keyOf(name) == "" && m.Key != "" {
		p.setLine(at, penstock.Alone)
	}
	return nil
}

// setLine grows lines as needed: most batches have none.
func (p *pending) setLine(at int, line penstock.Line) {
	for len(p.lines) <= at {
		p.lines = append(p.lines, penstock.InLine)
	}
	p.lines[at] = line
}

// unhold makes held lines due whose dead letter is gone, about once a second.
func (src *Source) unhold(ctx context.Context, sess *session) error {
	if time.Since(sess.aside.released) < time.Second {
		return nil
	}
	src.mu.Lock()
	mayHold := src.lines.mayHold()
	src.mu.Unlock()
	sess.aside.released = time.Now()
	if !mayHold && len(sess.aside.gone) == 0 {
		return nil
	}
	src.writing.Lock()
	defer src.writing.Unlock()
	rows, err := sess.read.Query(ctx, statement("released", src.store.schema, src.req.Outbox), src.id, 1000)
	if err != nil {
		return err
	}
	src.mu.Lock()
	w := src.leading()
	src.mu.Unlock()
	var name string
	var head int64
	found := false
	for rows.Next() {
		if err := rows.Scan(&name, &head); err != nil {
			rows.Close()
			return err
		}
		found = true
		w.parking.release(name, head)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, g := range sess.aside.gone {
		found = true
		w.parking.release(g.line, g.head)
	}
	sess.aside.gone = nil
	if !found {
		return nil
	}
	return src.persist(ctx, sess, w)
}
