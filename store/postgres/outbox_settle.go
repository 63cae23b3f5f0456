package postgres

import (
	"context"
	"fmt"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/pg"
	"github.com/penstock/penstock/internal/seqset"
)

// news is the part of one Settle about a batch.
type news struct {
	*pending
	verdicts []driver.Verdict // nil: all delivered
	open     bool
}

func (n *news) verdict(at int) driver.Verdict {
	if n.verdicts == nil {
		return driver.Verdict{}
	}
	return n.verdicts[at]
}

// settles reports whether there is a verdict on a message.
func (n *news) settles(at int) bool { return n.verdict(at).Outcome != driver.Undecided }

// seqs are those of the messages that it settles.
func (n *news) seqs() seqset.Set {
	var seqs []int64
	for i := range n.messages {
		if n.settles(i) {
			seqs = append(seqs, n.messages[i].Seq)
		}
	}
	return seqset.Of(seqs)
}

// Settle implements driver.Source. A call that may have taken effect has lost its session. Messages that it did not store come
// again, and batches of an earlier session are ignored. So the attempt is not needed.
func (src *Source) Settle(ctx context.Context, _ uint64, settled ...driver.Settled) error {
	src.writing.Lock()
	defer src.writing.Unlock()
	sess, err := src.session(ctx)
	if err != nil {
		return err
	}
	w, some := src.nothing(), false
	for _, s := range settled {
		p, _ := s.Batch.Source.(*pending)
		switch {
		case len(s.Batch.Messages) == 0 || p != nil && p.sess != sess:
			continue
		case p == nil:
			return fmt.Errorf("batch %d of subscription %q was not returned by Fetch", s.Batch.Number, src.req.Subscription)
		case s.Verdicts != nil && len(s.Verdicts) != len(p.messages):
			return fmt.Errorf("batch %d has %d messages, but %d verdicts", p.number, len(p.messages), len(s.Verdicts))
		}
		w.settle(&news{p, s.Verdicts, s.Open})
		some = true
	}
	switch {
	case !some:
		return nil
	case src.req.Ephemeral:
		return src.pass(ctx, sess, &w)
	}
	return src.persist(ctx, sess, w)
}

// Renew implements driver.Source: it writes the cursor, which extends the lease.
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
	return src.persist(ctx, sess, src.nothing())
}

// Close implements driver.Source: it writes a cursor whose lease has ended.
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
	w := src.nothing()
	w.release = true
	return src.persist(ctx, sess, w)
}

// write is one change of the durable state: the cursor after the batches that it passes, and the results of messages.
type write struct {
	cursor  cursor
	count   int64      // messages settled since the subscription was created
	passed  uint64     // the last batch that the cursor passes
	before  seqset.Set // Source.before and ahead, once it is done
	ahead   seqset.Set
	high    int64 // the sequence before the write
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

// nothing is a write that has the state as it is.
func (src *Source) nothing() write {
	src.mu.Lock()
	defer src.mu.Unlock()
	return write{cursor: src.reached, count: src.count, passed: src.passed, high: src.high, before: src.before, ahead: src.ahead}
}

// maxAhead is how many ranges of seqs a cursor takes along while a rebase is read.
const maxAhead = 1000

// settle adds the news of a batch. The cursor passes it unless it is open.
func (w *write) settle(n *news) {
	fresh := n.origin == fromStream
	switch {
	case n.open && fresh:
		w.ahead = w.ahead.Union(n.seqs())
	case !n.open:
		w.passed, w.cursor = n.number, n.after
		if fresh && (len(w.ahead) > 0 || w.cursor.system != n.sess.system) {
			all := (&news{pending: n.pending}).seqs()
			w.ahead = w.ahead.Without(all)
			if w.cursor.system != n.sess.system && len(w.before) < maxAhead {
				w.before = w.before.Union(all) // the cursor passes a rebase only at its end
			}
		}
	}
	w.add(n)
}

// close makes the cursor whole.
func (src *Source) close(sess *session, w *write) {
	src.mu.Lock()
	until := src.until
	src.mu.Unlock()
	if until != 0 && until <= w.passed && w.cursor.system == sess.system {
		w.before = nil
	}
	w.before = w.cursor.past(w.before)
	w.cursor.ahead = w.cursor.past(w.before.Union(w.ahead))
}

// add sorts a batch's messages by their results.
func (w *write) add(n *news) {
	switch n.origin {
	case fromPark:
		for i := range n.fetched {
			w.count += w.parking.settle(&n.fetched[i], n, w.deadLetter)
		}
		return
	case fromDeadLetters:
		for i := range n.messages {
			if n.settles(i) {
				w.addDeadLetter(&n.messages[i], n.verdict(i), n.histories[i])
			}
		}
	case fromReplay:
		w.replays.add(n)
		fallthrough
	default:
		for i := range n.verdicts {
			if n.settles(i) {
				w.addMessage(&n.messages[i], n.verdict(i), n.order(i))
			}
		}
	}
	if n.verdicts == nil {
		w.count += int64(len(n.messages))
	}
	for _, v := range n.verdicts {
		if v.Outcome == driver.Delivered || v.Outcome == driver.Dead {
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

// pass is persist for an ephemeral source, which stores nothing. It keeps the bound near, so that polls do not
// walk over all that was ever read: as freshBound does, by using up an xid.
func (src *Source) pass(ctx context.Context, sess *session, w *write) error {
	if _, err := sess.write.Exec(ctx, "select pg_current_xact_id()"); err != nil {
		return sess.failed(err)
	}
	src.mu.Lock()
	defer src.mu.Unlock()
	if src.sess == sess {
		src.passed, src.stored, src.reached = w.passed, w.cursor, w.cursor
		src.low = max(src.low, w.high)
	}
	return nil
}
