package postgres

import (
	"context"
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
	// here was read; of new ones only those are due earlier that are written after the clock
	// was set back (see settle.sql). For whoever has Source.writing.
	due    string
	n      int64
	handed []handedOut // by the last read

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
	row, err := oneRow(result, 5)
	if err != nil {
		return t, err
	}
	if t.high, err = strconv.ParseInt(string(row[0]), 10, 64); err != nil {
		return t, err
	}
	if pid, err := strconv.ParseInt(string(row[4]), 10, 64); err != nil {
		return t, err
	} else if err := sess.reader.stays(pid); err != nil {
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
