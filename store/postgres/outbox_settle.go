package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/pg"
	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/seqset"
)

// Settle implements penstock.Source.
func (src *Source) Settle(ctx context.Context, settled ...penstock.Settled) error {
	if src.req.Ephemeral {
		return src.settleEphemeral(ctx, settled)
	}
	src.writing.Lock()
	defer src.writing.Unlock()
	sess, err := src.session(ctx)
	if err != nil {
		return err
	}
	src.mu.Lock()
	if err := src.note(settled); err != nil {
		src.mu.Unlock()
		return err
	}
	w := src.leading()
	src.mu.Unlock()
	if w.batches == 0 && !w.news {
		return nil
	}
	return src.persist(ctx, sess, w)
}

// Renew implements penstock.Source: it writes the cursor, which is the lease.
func (src *Source) Renew(ctx context.Context) error {
	if src.req.Ephemeral {
		return nil
	}
	src.writing.Lock()
	defer src.writing.Unlock()
	sess, err := src.session(ctx)
	if err != nil {
		return err
	}
	src.mu.Lock()
	w := src.leading()
	src.mu.Unlock()
	return src.persist(ctx, sess, w)
}

// Close implements penstock.Source: a cursor whose lease is over.
func (src *Source) Close(ctx context.Context) error {
	src.writing.Lock()
	defer src.writing.Unlock()
	src.mu.Lock()
	closed := src.closed
	src.mu.Unlock()
	if closed {
		return nil
	}
	var err error
	if !src.req.Ephemeral {
		err = src.release(ctx)
	}
	src.mu.Lock()
	src.closed = true
	sess := src.sess
	src.mu.Unlock()
	sess.kill()
	return err
}

// release writes a cursor whose lease is over.
func (src *Source) release(ctx context.Context) error {
	sess, err := src.session(ctx)
	if err != nil {
		return err
	}
	src.mu.Lock()
	w := src.leading()
	src.mu.Unlock()
	w.release = true
	return src.persist(ctx, sess, w)
}

// note takes down the verdicts that are new. Batches of an earlier session are passed
// over: what is not stored of them comes again.
func (src *Source) note(settled []penstock.Settled) error {
	for _, s := range settled {
		if len(src.pending) == 0 || s.Batch.Number < src.pending[0].number {
			continue
		}
		i := s.Batch.Number - src.pending[0].number
		if i >= uint64(len(src.pending)) {
			continue
		}
		p := &src.pending[i]
		if s.Verdicts != nil && len(s.Verdicts) != len(p.messages) {
			return fmt.Errorf("batch %d has %d messages, but %d verdicts", p.number, len(p.messages), len(s.Verdicts))
		}
		p.note(s.Verdicts)
	}
	return nil
}

func (p *pending) note(verdicts []penstock.Verdict) {
	open := func(v penstock.Verdict) bool { return v.Outcome == penstock.Undecided }
	if p.part == nil && !p.settled && slices.ContainsFunc(verdicts, open) {
		p.split(undecided)
	}
	if p.part == nil {
		p.settled, p.verdicts = true, verdicts
		return
	}
	for i := range p.part {
		var v penstock.Verdict
		if verdicts != nil {
			v = verdicts[i]
		}
		if p.part[i] == undecided && !open(v) {
			p.part[i], p.verdicts[i] = decided, v
		}
	}
	p.settled = !slices.Contains(p.part, undecided)
}

// split keeps account of each message by itself.
func (p *pending) split(s stage) {
	p.part = slices.Repeat([]stage{s}, len(p.messages))
	if p.verdicts == nil {
		p.verdicts = make([]penstock.Verdict, len(p.messages))
	}
}

// write is one change of the durable state: the cursor after the leading settled
// batches, and what became of their messages.
type write struct {
	cursor  cursor
	count   int64      // messages settled since the subscription was created
	batches int        // leading batches that it covers
	parts   [][]stage  // of others
	news    bool       // there is something in them that is not stored
	before  seqset.Set // Source.before, once it is done
	high    int64      // the sequence before the write
	release bool

	dead    deadLetters // to dead-letter
	gone    []int64     // seqs of dead letters that are none any more
	landed  []int64     // seqs of all dead letters sent back that it covers
	parking parking
	replays replays
}

// plain is true if only the cursor moves.
func (w *write) plain() bool {
	return w.dead.empty() && len(w.gone) == 0 && w.parking.empty() && w.replays.empty()
}

// leading gathers the settled batches that no unsettled one precedes, and what is
// settled of the others.
func (src *Source) leading() write {
	w := write{cursor: src.reached, count: src.count, high: src.high, before: src.before}
	var ahead []int64
	for i := range src.pending {
		p := &src.pending[i]
		leads := p.settled && w.batches == i
		switch {
		case leads:
			w.batches++
			w.cursor = p.after
			if p.origin == fromStream && w.cursor.system != src.sess.system && len(w.before) < maxAhead {
				w.before = w.before.Union(seqset.Of(p.decided())) // the cursor passes a rebase only at its end
			}
		case p.settled || p.part != nil:
			if p.part == nil {
				p.split(decided)
			}
			w.news = w.news || slices.Contains(p.part, decided)
			if p.origin == fromStream {
				ahead = append(ahead, p.decided()...)
			}
			if p.origin != fromPark { // of which a verdict may have to wait for one before it
				w.parts = append(w.parts, p.part)
			}
		default:
			continue
		}
		w.add(p, leads)
	}
	if src.until != 0 && src.until < src.first()+uint64(w.batches) && w.cursor.system == src.sess.system {
		w.before = nil
	}
	w.before = w.cursor.past(w.before)
	w.cursor.ahead = w.cursor.past(w.before.Union(seqset.Of(ahead)))
	return w
}

// maxAhead is how many ranges of seqs a cursor takes along while a rebase is read.
const maxAhead = 1000

// first is the number of the first batch that is not stored.
func (src *Source) first() uint64 { return src.batches - uint64(len(src.pending)) + 1 }

// decided are the seqs of a batch's messages that have verdicts.
func (p *pending) decided() (seqs []int64) {
	for i := range p.messages {
		if p.part == nil || p.part[i] != undecided {
			seqs = append(seqs, p.messages[i].Seq)
		}
	}
	return seqs
}

// add sorts out what becomes of a batch's messages. The cursor passes it if it leads.
func (w *write) add(p *pending, leads bool) {
	switch p.origin {
	case fromPark:
		for i := range p.fetched {
			w.count += w.parking.settle(&p.fetched[i], p, w.deadLetter)
		}
		return
	case fromDeadLetters:
		for i := range p.messages {
			if p.settles(i) {
				w.addDeadLetter(&p.messages[i], p.verdict(i), p.histories[i])
			}
		}
	case fromReplay:
		w.replays.add(p, leads)
		fallthrough
	default:
		if p.verdicts != nil {
			for i := range p.messages {
				if p.settles(i) {
					w.addMessage(&p.messages[i], p.verdict(i), p.order(i))
				}
			}
		}
	}
	if p.part == nil && p.verdicts == nil {
		w.count += int64(len(p.messages))
		return
	}
	for i := range p.messages {
		if p.settles(i) && p.verdict(i).Outcome != penstock.Parked {
			w.count++
		}
	}
}

func (w *write) addMessage(m *penstock.Message, v penstock.Verdict, order penstock.KeyOrder) {
	name := seqName(m.Seq)
	if m.Key != "" && order != penstock.OutOfOrder {
		name = keyName(m.Key)
	}
	switch v.Outcome {
	case penstock.Parked:
		w.parking.park(name, m, &v)
	case penstock.Dead:
		v.Hold = v.Hold && keyOf(name) != ""
		w.deadLetter(m, &v, pg.History{})
		if v.Hold {
			w.parking.hold(name, m.Seq)
		}
	}
}

func (w *write) addDeadLetter(m *penstock.Message, v penstock.Verdict, h pg.History) {
	w.landed = append(w.landed, m.Seq)
	switch v.Outcome {
	case penstock.Delivered:
		w.gone = append(w.gone, m.Seq)
	case penstock.Dead:
		v.Hold = false // nothing waits for it; or it holds already
		w.deadLetter(m, &v, h)
	case penstock.Parked:
		w.gone = append(w.gone, m.Seq)
		w.parking.parkDeadLetter(m, &v, h)
	}
}

func (w *write) deadLetter(m *penstock.Message, v *penstock.Verdict, h pg.History) {
	if len(v.Failures) == 0 {
		h.Attempt = m.Attempt
	}
	w.dead.add(m, h.And(v.Failures), v.Hold)
}

// persist makes w durable and forgets what it covers.
func (src *Source) persist(ctx context.Context, sess *session, w write) error {
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
	src.done(&w)
	if early {
		src.rereadSchedule(sess)
	}
	src.count, src.stored, src.before = w.count, w.cursor, w.before
	if w.batches > 0 {
		src.reached = w.cursor
	}
	// The write has used up an xid that was assigned after high was read.
	src.low = max(src.low, w.high)
	src.landed = append(src.landed, w.landed...)
	return nil
}

// done forgets the batches that a write has passed, and notes of others what is stored.
func (src *Source) done(w *write) {
	for _, part := range w.parts {
		for i := range part {
			if part[i] == decided {
				part[i] = stored
			}
		}
	}
	for _, s := range w.parking.steps {
		src.step(s)
	}
	src.pending = src.pending[w.batches:]
}

// step notes how far a key in flight has come.
func (src *Source) step(s step) {
	next := s.next
	if s.over {
		delete(src.inFlight, s.out.name)
		next = s.out.to
	} else {
		src.setInFlight(s.out.name)
	}
	for i := s.out.from; i < next && s.part != nil; i++ {
		s.part[i] = stored
	}
	s.out.from, s.out.p, s.out.history = next, s.out.p[next-s.out.from:], pg.History{}
}

// changedKey is what settle.sql says of a key that it changed.
type changedKey struct {
	name                string
	parked, held, early bool
}

// writeAll is writeCursor with everything else, in one statement.
func (src *Source) writeAll(ctx context.Context, sess *session, w *write, lease time.Duration) ([]changedKey, error) {
	states, err := src.settleAll(ctx, sess, w, lease)
	if sqlState(err) == pgerror.NoSuchCharacter { // what the database has is its own, but errors are the sink's
		w.encodeErrors()
		states, err = src.settleAll(ctx, sess, w, lease)
	}
	return states, err
}

// encodeErrors makes the texts of errors such that a database of any encoding can hold them.
func (w *write) encodeErrors() {
	for i := range w.dead.failures {
		w.dead.failures[i] = pgerror.ASCII(w.dead.failures[i])
	}
	for _, l := range w.parking.states {
		l.Failures = slices.Clone(l.Failures)
		for i := range l.Failures {
			l.Failures[i].Err = pgerror.ASCII(l.Failures[i].Err)
		}
	}
}

func (src *Source) settleAll(ctx context.Context, sess *session, w *write, lease time.Duration) ([]changedKey, error) {
	params := pgx.StrictNamedArgs{"gone": w.gone, "due": sess.dueFloor()}
	for i, p := range src.cursorParams(sess, w.cursor, w.count, lease) {
		params[cursorNames[i]] = nil
		if p != nil {
			params[cursorNames[i]] = string(p)
		}
	}
	maps.Copy(params, w.dead.params())
	maps.Copy(params, w.parking.params())
	maps.Copy(params, w.replays.params())
	rows, err := sess.write.Query(ctx, statement("settle", src.store.schema, src.req.Outbox), pgx.QueryResultFormats{pgx.BinaryFormatCode}, params)
	if err != nil {
		return nil, err
	}
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

// cursorParams are the parameters of write_cursor.sql, and of settle.sql, too.
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

// fenced tells who wrote what this source does not know of: a relay of a later
// epoch, or an earlier session of its own, whose answer was lost. Then it has to
// begin anew.
func (src *Source) fenced(ctx context.Context, sess *session) error {
	if h, err := src.head(ctx, sess); sess.n != 0 && err == nil && src.mine(h) && h.n != sess.n {
		sess.kill()
		return errForgotten
	}
	return penstock.ErrFenced
}

// settleEphemeral stores nothing. It keeps the bound near, so that polls do not
// walk over all that was ever read: as freshBound does, by using up an xid.
func (src *Source) settleEphemeral(ctx context.Context, settled []penstock.Settled) error {
	src.writing.Lock()
	defer src.writing.Unlock()
	sess, err := src.session(ctx)
	if err != nil {
		return err
	}
	src.mu.Lock()
	err = src.note(settled)
	w := src.leading()
	src.mu.Unlock()
	if err != nil || w.batches == 0 {
		return err
	}
	if _, err := sess.write.Exec(ctx, "select pg_current_xact_id()"); err != nil {
		return sess.failed(err)
	}
	src.mu.Lock()
	defer src.mu.Unlock()
	if src.sess == sess {
		src.pending = src.pending[w.batches:]
		src.stored, src.reached = w.cursor, w.cursor
		src.low = max(src.low, w.high)
	}
	return nil
}
