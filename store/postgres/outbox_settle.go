package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/pg"
	"github.com/penstock/penstock/internal/seqset"
)

// Settle implements driver.Source.
func (src *Source) Settle(ctx context.Context, _ uint64, settled ...driver.Settled) error {
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

// Renew implements driver.Source: it writes the cursor, which is the lease.
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

// Close implements driver.Source: a cursor whose lease is over.
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
func (src *Source) note(settled []driver.Settled) error {
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

func (p *pending) note(verdicts []driver.Verdict) {
	open := func(v driver.Verdict) bool { return v.Outcome == driver.Undecided }
	if p.part == nil && !p.settled && slices.ContainsFunc(verdicts, open) {
		p.split(undecided)
	}
	if p.part == nil {
		p.settled, p.verdicts = true, verdicts
		return
	}
	for i := range p.part {
		var v driver.Verdict
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
		p.verdicts = make([]driver.Verdict, len(p.messages))
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
		if p.settles(i) && p.verdict(i).Outcome != driver.Parked {
			w.count++
		}
	}
}

func (w *write) addMessage(m *penstock.Message, v driver.Verdict, order driver.KeyOrder) {
	name := seqName(m.Seq)
	if m.Key != "" && order != driver.OutOfOrder {
		name = keyName(m.Key)
	}
	switch v.Outcome {
	case driver.Parked:
		w.parking.park(name, m, &v)
	case driver.Dead:
		v.Hold = v.Hold && keyOf(name) != ""
		w.deadLetter(m, &v, pg.History{})
		if v.Hold {
			w.parking.hold(name, m.Seq)
		}
	}
}

func (w *write) addDeadLetter(m *penstock.Message, v driver.Verdict, h pg.History) {
	w.landed = append(w.landed, m.Seq)
	switch v.Outcome {
	case driver.Delivered:
		w.gone = append(w.gone, m.Seq)
	case driver.Dead:
		v.Hold = false // nothing waits for it; or it holds already
		w.deadLetter(m, &v, h)
	case driver.Parked:
		w.gone = append(w.gone, m.Seq)
		w.parking.parkDeadLetter(m, &v, h)
	}
}

func (w *write) deadLetter(m *penstock.Message, v *driver.Verdict, h pg.History) {
	if len(v.Failures) == 0 {
		h.Attempt = m.Attempt
	}
	w.dead.add(m, h.And(v.Failures), v.Hold)
}

// settleEphemeral stores nothing. It keeps the bound near, so that polls do not
// walk over all that was ever read: as freshBound does, by using up an xid.
func (src *Source) settleEphemeral(ctx context.Context, settled []driver.Settled) error {
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
