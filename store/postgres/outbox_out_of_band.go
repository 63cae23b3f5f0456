package postgres

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/pg"
)

// outOfBand has the other messages to read, next to the stream. A poll reports them. The
// Fetches that follow take one batch of each before the next poll. So neither the stream nor
// out-of-band messages wait for the other to end.
type outOfBand struct {
	deadLetters, parked, replay bool // the last poll or peek has seen some

	peeked   time.Time      // when that was
	none     time.Time      // when no parked key was due
	released time.Time      // when held keys were checked
	inFlight map[int64]bool // dead letters returned and not settled

	// How far the schedule has been read. Every state that is due up to here was read; of new ones
	// only those are due earlier that are written after the clock was set back (see settle.sql).
	// The caller has Source.writing.
	due string
	n   int64

	size      int    // average of a message, 0: not known
	gone      []gone // parked keys whose message is gone
	replaying replaying
	waited    bool // the stream had the last turn
}

// turn is true every second time.
func (a *outOfBand) turn() bool {
	a.waited = !a.waited
	return a.waited
}

// While a backlog is paged through there are no polls: peek this often. And read
// this often which parked keys have become due.
const (
	peekEvery = 50 * time.Millisecond
	dueEvery  = 20 * time.Millisecond
)

func newOutOfBand() outOfBand { return outOfBand{inFlight: map[int64]bool{}, due: "-infinity"} }

func (a *outOfBand) any() bool { return a.deadLetters || a.parked || a.replay }

// saw notes the flags that a poll or a peek returns, d and r. Of parked keys the
// source knows whether there are any.
func (src *Source) saw(sess *session, flags string) {
	a, now := &sess.outOfBand, time.Now()
	if src.req.Ephemeral {
		return // it reads the stream only
	}
	src.mu.Lock()
	some, changed := !src.parkedKeys.exact || len(src.parkedKeys.all) > 0, src.parkedKeys.changed
	src.parkedKeys.changed = false
	src.mu.Unlock()
	a.deadLetters, a.replay = strings.Contains(flags, "d"), strings.Contains(flags, "r")
	a.parked = some && (changed || now.Sub(a.none) >= dueEvery)
	a.peeked = now
}

// fetchOutOfBand returns one batch of the messages out of band, nil if there is nothing.
func (src *Source) fetchOutOfBand(ctx context.Context, sess *session, limit driver.Limit) (*pending, error) {
	if src.req.Ephemeral {
		return nil, nil
	}
	a := &sess.outOfBand
	if (sess.at.paging() || sess.at.rebase != nil) && time.Since(a.peeked) > peekEvery {
		if _, err := src.peek(ctx, sess); err != nil {
			return nil, err
		}
	}
	if err := src.unhold(ctx, sess); err != nil {
		return nil, err
	}
	for _, kind := range []struct {
		due  *bool
		read func(context.Context, *session, driver.Limit) (*pending, error)
	}{{&a.deadLetters, src.fetchDeadLetters}, {&a.parked, src.fetchParked}, {&a.replay, src.fetchReplay}} {
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

// peek is the first row of a poll alone.
type peek struct {
	high int64
	oid  string
	snap string
}

func (src *Source) peek(ctx context.Context, sess *session) (t peek, err error) {
	result := sess.read.PgConn().ExecPrepared(ctx, stmtPeek, [][]byte{number(src.id)}, nil, nil).Read()
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
		return nil, errNoPeek
	}
	return result.Rows[0], nil
}

// firstRows is how many rows are asked for while nothing is known of their size.
const firstRows = 64

// rows is how many rows may come: rows beyond limit.Bytes are not kept, but
// they have to cross the wire.
func (a *outOfBand) rows(limit driver.Limit) int {
	if a.size == 0 {
		return min(limit.Messages, firstRows)
	}
	return max(1, min(limit.Messages, limit.Bytes/a.size))
}

// measure notes the average size of a page's messages.
func (a *outOfBand) measure(bytes, n int) {
	if n > 0 {
		a.size = max(1, bytes/n)
	}
}

// setKeyOrder grows keyOrder as needed: most batches have none.
func (p *pending) setKeyOrder(at int, order driver.KeyOrder) {
	for len(p.keyOrder) <= at {
		p.keyOrder = append(p.keyOrder, driver.InOrder)
	}
	p.keyOrder[at] = order
}

// releasedAtOnce is how many keys one write of unhold makes due.
const releasedAtOnce = 1000

// unhold makes parked keys due, about once a second: held ones whose dead letter is gone, and those that an operator has
// ordered to be tried at once. It does the same for keys whose first message an operator has given up.
func (src *Source) unhold(ctx context.Context, sess *session) error {
	if time.Since(sess.outOfBand.released) < time.Second {
		return nil
	}
	src.mu.Lock()
	mayHold, some := src.parkedKeys.mayHold(), !src.parkedKeys.exact || len(src.parkedKeys.all) > 0
	src.mu.Unlock()
	sess.outOfBand.released = time.Now()
	var wanted []string // names, "" for all
	var upTo []int64    // and which of their states
	givenUp := 0
	if some {
		if err := sess.read.QueryRow(ctx, "select coalesce(array_agg(parked_key) filter (where reason is null), '{}'), coalesce(array_agg(n) filter (where reason is null), '{}'), count(reason) from "+
			src.store.table("_retry")+" where subscription = $1", src.id).Scan(&wanted, &upTo, &givenUp); err != nil {
			return err
		}
	}
	if !mayHold && len(wanted)+len(sess.outOfBand.gone)+givenUp == 0 {
		return nil
	}
	src.writing.Lock()
	defer src.writing.Unlock()
	w := src.nothing()
	release := func(name string, args ...any) (n int, err error) {
		rows, _ := sess.read.Query(ctx, statement(name, src.store.schema, src.req.Outbox), args...)
		var g gone
		_, err = pgx.ForEachRow(rows, []any{&g.name, &g.head}, func() error {
			n++
			w.parking.release(g.name, g.head, pg.History{})
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
	for _, g := range sess.outOfBand.gone {
		w.parking.release(g.name, g.head, pg.History{})
	}
	sess.outOfBand.gone = nil
	var over []gone
	if givenUp > 0 {
		if over, err = src.giveUp(ctx, sess, &w.parking); err != nil {
			return err
		}
	}
	if !w.parking.empty() {
		if err := src.persist(ctx, sess, w); err != nil {
			return err
		}
	}
	if retried == releasedAtOnce || len(over) == releasedAtOnce { // there may be more
		sess.outOfBand.released = time.Time{}
	}
	if retried == releasedAtOnce {
		wanted, upTo = nil, nil
	}
	for _, g := range over {
		wanted, upTo = append(wanted, g.name), append(upTo, g.head)
	}
	if len(wanted) > 0 {
		_, err = sess.read.Exec(ctx, "delete from "+src.store.table("_retry")+
			" where subscription = $1 and (parked_key, n) in (select * from unnest($2::text[], $3::bigint[]))", src.id, wanted, upTo)
	}
	return err
}

// giveUp makes the keys due whose first message an operator has given up, and notes that with the message. It returns the orders that
// need no other look. An order about a message in flight waits for its verdict.
func (src *Source) giveUp(ctx context.Context, sess *session, parking *parking) (over []gone, err error) {
	rows, _ := sess.read.Query(ctx, statement("given_up", src.store.schema, src.req.Outbox), src.id, releasedAtOnce)
	var g gone
	var reason string
	var first, waits bool
	var attempt int
	var failures []byte
	var since *time.Time
	_, err = pgx.ForEachRow(rows, []any{&g.name, &g.head, &reason, &first, &waits, &attempt, &failures, &since}, func() error {
		switch {
		case !first:
		case waits && !src.isInFlight(g.name):
			h := pg.History{Attempt: attempt}
			if since != nil {
				h.Since = since.UTC()
			}
			h.Parse(failures)
			parking.release(g.name, g.head, h.GiveUp(reason))
		default:
			return nil
		}
		over = append(over, g)
		return nil
	})
	return over, err
}
