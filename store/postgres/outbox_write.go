package postgres

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/pgerror"
)

// persist makes w durable and forgets the batches that it covers.
func (src *Source) persist(ctx context.Context, sess *session, w write) error {
	src.close(sess, &w)
	lease := src.req.Lease
	if w.release {
		lease = 0
	}
	var states []changedKey
	var err error
	if w.plain() {
		err = src.writeCursor(ctx, sess, w.cursor, w.count, lease)
	} else {
		states, err = src.writeAll(ctx, sess, &w, lease)
	}
	if err != nil {
		return sess.failed(err)
	}
	src.mu.Lock()
	defer src.mu.Unlock()
	if src.sess != sess {
		return nil
	}
	early := false
	for _, s := range states {
		src.parkedKeys.note(s.name, s.parked, s.held)
		early = early || s.early
	}
	src.parkedKeys.changed = src.parkedKeys.changed || len(states) > 0
	for _, name := range w.parking.over {
		delete(src.inFlight, name)
	}
	if early {
		sess.rereadSchedule()
	}
	if w.passed > src.passed {
		src.passed, src.reached = w.passed, w.cursor
	}
	src.count, src.stored, src.before, src.ahead = w.count, w.cursor, w.before, w.ahead
	// The write has used up an xid that was assigned after high was read.
	src.low = max(src.low, w.high)
	src.landed = append(src.landed, w.landed...)
	return nil
}

// changedKey is a row of settle.sql about a key that it changed.
type changedKey struct {
	name                string
	parked, held, early bool
}

// writeAll is writeCursor with everything else, in one statement.
func (src *Source) writeAll(ctx context.Context, sess *session, w *write, lease time.Duration) ([]changedKey, error) {
	states, err := src.settleAll(ctx, sess, w, lease)
	if sqlState(err) == pgerror.NoSuchCharacter { // texts from the database fit its encoding, but errors are the sink's
		w.encodeErrors()
		states, err = src.settleAll(ctx, sess, w, lease)
	}
	return states, err
}

// encodeErrors makes the texts of errors such that a database of any encoding can hold them.
func (w *write) encodeErrors() {
	for i := range w.dead.facts {
		f := &w.dead.facts[i]
		f.Failures = json.RawMessage(pgerror.ASCII(string(f.Failures)))
	}
	for _, l := range w.parking.states {
		l.Failures = slices.Clone(l.Failures)
		for i := range l.Failures {
			l.Failures[i].Err = pgerror.ASCII(l.Failures[i].Err)
		}
	}
}

func (src *Source) settleAll(ctx context.Context, sess *session, w *write, lease time.Duration) ([]changedKey, error) {
	cursor := map[string]string{}
	for i, p := range src.cursorParams(sess, w.cursor, w.count, lease) {
		if p != nil {
			cursor[cursorNames[i]] = string(p)
		}
	}
	params := pgx.StrictNamedArgs{"subscription": src.id, "cursor": cursor, "gone": w.gone, "due": sess.dueFloor()}
	maps.Copy(params, w.dead.params())
	maps.Copy(params, w.parking.params())
	maps.Copy(params, w.replays.params())
	rows, _ := sess.write.Query(ctx, statement("settle", src.store.schema, src.req.Outbox), pgx.QueryResultFormats{pgx.BinaryFormatCode}, params)
	var (
		n                   *int64
		name                *string
		parked, held, early *bool
		states              []changedKey
	)
	tag, err := pgx.ForEachRow(rows, []any{&n, &name, &parked, &held, &early}, func() error {
		if name != nil {
			states = append(states, changedKey{*name, *parked, *held, *early})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if tag.RowsAffected() == 0 {
		return nil, errPooled
	}
	if n == nil {
		return nil, src.fenced(ctx, sess)
	}
	sess.n = *n
	return states, nil
}

// cursorNames are those of cursorParams in settle.sql.
var cursorNames = strings.Fields("subscription epoch holder lease_us done low upto upto_low pos settled system since n timeline pid ahead")

// cursorParams are the parameters of write_cursor.sql and of settle.sql.
func (src *Source) cursorParams(sess *session, c cursor, count int64, lease time.Duration) [][]byte {
	holder := src.req.Holder
	if lease == 0 {
		holder = ""
	}
	params := [][]byte{number(src.id), number(src.epoch), []byte(holder), number(lease.Microseconds()),
		[]byte(c.done.snap), number(c.done.low), nil, nil, nil, number(count), number(c.system)}
	if c.paging() {
		params[6], params[7], params[8] = []byte(c.upto.snap), number(c.upto.low), number(c.pos)
	}
	params = append(params, []byte(src.since.UTC().Format(time.RFC3339Nano)), nil, nil)
	if sess.n != 0 {
		params[12] = number(sess.n)
	}
	if sess.timeline != 0 {
		params[13] = number(sess.timeline)
	}
	return append(params, sess.writer.param(), multirange(c.ahead))
}

// writeCursor appends to the cursor log; ErrFenced if a later epoch is there, or
// something that this source does not know of.
func (src *Source) writeCursor(ctx context.Context, sess *session, c cursor, count int64, lease time.Duration) error {
	result := sess.write.PgConn().ExecPrepared(ctx, stmtWriteCursor, src.cursorParams(sess, c, count, lease), nil, nil).Read()
	if result.Err != nil {
		return result.Err
	}
	if len(result.Rows) != 1 {
		return errPooled
	}
	if result.Rows[0][0] == nil {
		return src.fenced(ctx, sess)
	}
	n, err := strconv.ParseInt(string(result.Rows[0][0]), 10, 64)
	sess.n = n
	return err
}

// fenced finds out who wrote a cursor that this source does not know: a relay of a later epoch, or an
// earlier session of this source, whose answer was lost. Then it has to begin anew.
func (src *Source) fenced(ctx context.Context, sess *session) error {
	if h, err := src.head(ctx, sess); sess.n != 0 && err == nil && src.mine(h) && h.n != sess.n {
		sess.kill()
		return errForgotten
	}
	return penstock.ErrFenced
}
