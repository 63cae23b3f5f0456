package postgres

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
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

// setKeyOrder grows lines as needed: most batches have none.
func (p *pending) setKeyOrder(at int, line penstock.KeyOrder) {
	for len(p.lines) <= at {
		p.lines = append(p.lines, penstock.InOrder)
	}
	p.lines[at] = line
}

// releasedAtOnce is how many lines one write of unhold makes due.
const releasedAtOnce = 1000

// unhold makes lines due, about once a second: held ones whose dead letter is gone, and those that somebody
// wants tried at once.
func (src *Source) unhold(ctx context.Context, sess *session) error {
	if time.Since(sess.aside.released) < time.Second {
		return nil
	}
	src.mu.Lock()
	mayHold, some := src.lines.mayHold(), !src.lines.exact || len(src.lines.all) > 0
	src.mu.Unlock()
	sess.aside.released = time.Now()
	var wanted []string // lines, "" for all
	var upTo []int64    // and which of their states
	if some {
		if err := sess.read.QueryRow(ctx, "select coalesce(array_agg(line), '{}'), coalesce(array_agg(n), '{}') from "+src.store.table("_retry")+
			" where subscription = $1", src.id).Scan(&wanted, &upTo); err != nil {
			return err
		}
	}
	if !mayHold && len(wanted)+len(sess.aside.gone) == 0 {
		return nil
	}
	src.writing.Lock()
	defer src.writing.Unlock()
	src.mu.Lock()
	w := src.leading()
	src.mu.Unlock()
	release := func(name string, args ...any) (n int, err error) {
		rows, err := sess.read.Query(ctx, statement(name, src.store.schema, src.req.Outbox), args...)
		if err != nil {
			return 0, err
		}
		var g gone
		_, err = pgx.ForEachRow(rows, []any{&g.line, &g.head}, func() error {
			n++
			w.parking.release(g.line, g.head)
			return nil
		})
		return n, err
	}
	if _, err := release("released", src.id, releasedAtOnce); err != nil {
		return err
	}
	retried, err := release("retried", src.id, wanted, upTo, releasedAtOnce)
	if err != nil {
		return err
	}
	for _, g := range sess.aside.gone {
		w.parking.release(g.line, g.head)
	}
	sess.aside.gone = nil
	if !w.parking.empty() {
		if err := src.persist(ctx, sess, w); err != nil {
			return err
		}
	}
	if retried == releasedAtOnce { // there may be more
		sess.aside.released = time.Time{}
	} else if len(wanted) > 0 {
		_, err = sess.read.Exec(ctx, "delete from "+src.store.table("_retry")+
			" where subscription = $1 and (line, n) in (select * from unnest($2::text[], $3::bigint[]))", src.id, wanted, upTo)
	}
	return err
}
