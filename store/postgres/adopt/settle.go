package adopt

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/pgerror"
)

// Settle implements driver.Source: delivered rows are settled in one statement,
// and in its transaction others are out of band.
func (s *Source) Settle(ctx context.Context, _ uint64, settled ...driver.Settled) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.isClosed() {
		return penstock.ErrClosed
	}
	var w work
	var done []*pending
	for _, b := range settled {
		s.mu.Lock()
		p := s.pending[b.Batch.Number]
		s.mu.Unlock()
		if p == nil { // settled already
			continue
		}
		if err := w.addBatch(p, b.Verdicts); err != nil {
			return err
		}
		done = append(done, p)
	}
	if len(done) == 0 {
		return nil
	}
	return s.commit(ctx, &w, done)
}

// work is the work of one settling transaction.
type work struct {
	delivered []string   // rows to settle
	back      []string   // rows that are no longer out of band
	release   []string   // parked keys that continue
	parked    parkedRows // rows to park
	failed    failedRows
	rows      []*inFlightRow // all of them
	count     int64
}

// parkedRows are the parameters of park.sql.
type parkedRows struct {
	ids, parkedKeys, messageIDs, keys, topics []string
	seqs                                      []int64
	attempts                                  []int32
	failures                                  []string
	since                                     []zeronull.Timestamptz
	waits                                     []int64
	timed, dead, outOfOrder, held             []bool
}

type failedRows struct {
	ids, errors []string
	attempts    []int32
}

func (w *work) addBatch(p *pending, verdicts []driver.Verdict) error {
	if verdicts != nil && len(verdicts) != len(p.messages) {
		return fmt.Errorf("batch %d has %d messages, but %d verdicts", p.number, len(p.messages), len(verdicts))
	}
	if verdicts == nil {
		w.delivered = slices.Grow(w.delivered, len(p.rows))
	}
	for i := range p.rows {
		h := &p.rows[i]
		if h.done || verdicts != nil && verdicts[i].Outcome == driver.Undecided {
			continue
		}
		w.rows = append(w.rows, h)
		if verdicts == nil || verdicts[i].Outcome == driver.Delivered {
			w.delivered = append(w.delivered, h.id)
			if h.outOfBand {
				w.back, w.release = append(w.back, h.id), append(w.release, h.parkedKey)
			}
			w.count++
			continue
		}
		w.park(&p.messages[i], h, &verdicts[i])
	}
	return nil
}

// park parks a row or makes it a dead letter.
func (w *work) park(m *penstock.Message, h *inFlightRow, v *driver.Verdict) {
	dead := v.Outcome == driver.Dead
	if h.parkedKey == "" {
		h.parkedKey = parkedKeyOf(m.Key, h.id)
	}
	outOfOrder := h.outOfOrder || m.Key == ""
	past := h.And(v.Failures)
	if dead && len(v.Failures) == 0 {
		past.Attempt = max(past.Attempt, m.Attempt)
	}
	a := &w.parked
	a.ids, a.parkedKeys, a.seqs = append(a.ids, h.id), append(a.parkedKeys, h.parkedKey), append(a.seqs, m.Seq)
	a.messageIDs, a.keys, a.topics = append(a.messageIDs, m.ID), append(a.keys, m.Key), append(a.topics, m.Topic)
	a.attempts, a.failures = append(a.attempts, int32(past.Attempt)), append(a.failures, past.JSON())
	a.since, a.waits = append(a.since, zeronull.Timestamptz(past.Since)), append(a.waits, v.RetryIn.Microseconds())
	a.dead, a.outOfOrder, a.held = append(a.dead, dead), append(a.outOfOrder, outOfOrder), append(a.held, dead && v.Hold && !outOfOrder)
	a.timed = append(a.timed, !dead && (outOfOrder || len(v.Failures) > 0 || v.RetryIn > 0))
	if !outOfOrder { // the first of the parked key is due at once, if it has no time
		w.release = append(w.release, h.parkedKey)
	}
	if len(v.Failures) > 0 {
		f := &w.failed
		f.ids, f.errors, f.attempts = append(f.ids, h.id), append(f.errors, past.LastError()), append(f.attempts, int32(past.Attempt))
	}
}

// queue adds the statements of the work to a transaction.
func (s *Source) queue(b *pgx.Batch, w *work) {
	if len(w.delivered) > 0 {
		slices.Sort(w.delivered) // random ids meet each page of their index once
		b.Queue(s.st.settle, s.m.keyArrays(w.delivered)...)
	}
	if len(w.failed.ids) > 0 && s.st.failed != "" {
		b.Queue(s.st.failed, append(s.m.keyArrays(w.failed.ids), w.failed.errors, w.failed.attempts)...)
	}
	if len(w.back) > 0 {
		b.Queue(s.t.own("back"), s.lease.id, w.back)
	}
	if a := &w.parked; len(a.ids) > 0 {
		b.Queue(s.t.own("park"), s.lease.id, a.ids, a.seqs, a.parkedKeys, a.messageIDs, a.keys, a.topics, a.attempts, a.failures, a.since,
			a.waits, a.timed, a.dead, a.outOfOrder, a.held)
	}
	if len(w.release) > 0 {
		slices.Sort(w.release)
		w.release = slices.Compact(w.release)
		b.Queue("select "+s.t.ownName("_adopt_release")+"($1, $2)", s.lease.id, w.release)
	}
}

// send does the work in one transaction, whose number it returns; of a claim, in the claim's. There it writes errors behind a savepoint:
// the claim outlives a text that the database cannot hold.
func (s *Source) send(ctx context.Context, q querier, w *work) (xid uint64, err error) {
	send := func(q querier) error {
		var b pgx.Batch
		s.lease.fence(s.t, &b).QueryRow(func(row pgx.Row) error { return row.Scan(nil, &xid) })
		s.queue(&b, w)
		return q.SendBatch(ctx, &b).Close()
	}
	if tx, claim := q.(pgx.Tx); claim && len(w.parked.ids) > 0 {
		err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return send(tx) })
	} else {
		err = send(q)
	}
	if len(w.parked.ids) > 0 && pgerror.State(err) == pgerror.NoSuchCharacter {
		w.spellErrors()
		err = send(q)
	}
	return xid, err
}

// spellErrors makes the texts of errors such that a database of any encoding can hold them: texts of
// the table have its encoding, but errors are the sink's.
func (w *work) spellErrors() {
	for _, texts := range [][]string{w.parked.failures, w.failed.errors} {
		for i := range texts {
			texts[i] = pgerror.ASCII(texts[i])
		}
	}
}

// commit makes the work durable, unless the lease is lost, and forgets the batches that it covers. The
// caller has s.writing.
func (s *Source) commit(ctx context.Context, w *work, done []*pending) error {
	s.mu.Lock()
	own := s.track.writes(time.Now())
	s.mu.Unlock()
	var err error
	if own.xid, err = s.send(ctx, s.t.pool, w); err != nil {
		return s.t.explain(err)
	}
	s.mu.Lock()
	s.track.wrote(own)
	s.mu.Unlock()
	s.settledNow(w, done)
	return nil
}

// settledNow is called when the work is durable.
func (s *Source) settledNow(w *work, done []*pending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settled += w.count
	if len(w.parked.ids) > 0 {
		s.outOfBand.any = true
		s.outOfBand.asked++
	}
	for _, h := range w.rows {
		h.done = true
		s.landed = append(s.landed, h.id)
	}
	for _, p := range done {
		if p.over() {
			delete(s.pending, p.number)
		}
	}
}

// A parked key is the rows of one message key, or one row.
func parkedKeyOf(key, id string) string {
	if key == "" {
		return "s" + id
	}
	return "k" + key
}
