package storetest

import (
	"fmt"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

// take compares a batch with the model, and decides about it.
func (w *walk) take(b driver.Batch, limit driver.Limit) {
	if b.Rewound {
		w.Fatal("the batch is Rewound, but nothing failed")
	}
	w.r.check(b, limit)
	if len(b.Messages) == 0 {
		w.nothingLeft()
		return
	}
	batch := &walkBatch{Batch: b}
	w.open = append(w.open, batch)
	for i, m := range b.Messages {
		t := w.byName[m.ID]
		if t == nil || t.committed == 0 {
			w.Fatalf("step %d: %s came, which is not committed", w.step, m.ID)
		}
		t.seq = m.Seq
		from := w.origin(t)
		batch.came = append(batch.came, from)
		w.checkKeyOrder(t, from, b.Order(i))
		if from == fromParked {
			w.checkTurn(t, batch)
		}
		attempt, since := t.attempt, t.since
		if from == replayed {
			attempt, since = 1, time.Time{}
			t.replaying = true
		} else {
			t.seen = true
		}
		if m.Attempt != attempt || !m.FailedSince.Equal(since) {
			w.wrong(fmt.Sprintf("%s came with attempt %d and failed since %s, want %d and %s", t.name, m.Attempt, m.FailedSince, attempt, since), t)
		}
		w.note(t, "came in batch %d, origin %d, order %d, attempt %d", b.Number, from, b.Order(i), m.Attempt)
		batch.settled = append(batch.settled, false)
		batch.verdicts = append(batch.verdicts, w.decide(t, inBatch{&b, i}, from))
	}
}

// origin returns where a message came from, if it may come at all.
func (w *walk) origin(t *tracked) came {
	switch {
	case t.fate == unsettled && !t.seen:
		return fresh
	case t.fate == waiting && !t.seen:
		return fromParked
	case t.fate == done && t.replay && !t.replaying:
		return replayed
	case t.fate == unsettled, t.fate == waiting:
		w.wrong(fmt.Sprintf("%s came twice from one Source", t.name), t)
	default:
		w.wrong(fmt.Sprintf("%s came again after it was settled", t.name), t)
	}
	return fresh
}

// checkKeyOrder checks the KeyOrder of a message. The model is as
// it was when the Fetch began.
func (w *walk) checkKeyOrder(t *tracked, from came, got driver.KeyOrder) {
	if t.key == "" {
		if got == driver.BehindParked {
			w.wrong(fmt.Sprintf("%s has no key and came BehindParked", t.name), t)
		}
		return
	}
	want := driver.InOrder
	switch {
	case t.outOfOrder:
		want = driver.OutOfOrder
	case from != fromParked && w.waits(t.key):
		want = driver.BehindParked
	case from != fromParked && got == driver.BehindParked && w.released[t.key]:
		want = got // the hold may take a moment to end
	case from != fromParked:
		w.released[t.key] = false
	}
	if got != want {
		w.wrong(fmt.Sprintf("%s of key %s came with order %d, want %d", t.name, t.key, got, want), t)
	}
}

// checkTurn looks at what else of a key is in flight.
func (w *walk) checkTurn(t *tracked, present *walkBatch) {
	if t.key == "" || t.outOfOrder {
		return
	}
	if w.held(t.key) {
		w.wrong(fmt.Sprintf("%s came, but its key is held", t.name), t)
	}
	for _, b := range w.open {
		for i, from := range b.came {
			other := w.byName[b.Messages[i].ID]
			if other == t || from != fromParked || other.key != t.key || other.outOfOrder || b.settled[i] {
				continue
			}
			if b != present {
				w.wrong(fmt.Sprintf("%s came while %s of its key was in flight", t.name, other.name), t, other)
			}
			if b.Place(len(b.came) - 1).Before(b.Place(i)) {
				w.wrong(fmt.Sprintf("%s came behind %s of its key, and its place is before", t.name, other.name), t, other)
			}
			if t.failed > 0 || other.failed > 0 {
				w.wrong(fmt.Sprintf("%s and %s of one key came together, though one was refused before", t.name, other.name), t, other)
			}
		}
	}
}

func (w *walk) held(key string) bool {
	for _, t := range w.all {
		if t.key == key && t.held {
			return true
		}
	}
	return false
}

// nothingLeft: Fetch found nothing, so there must be nothing that is due at once.
func (w *walk) nothingLeft() {
	for _, t := range w.all {
		if t.committed > 0 && t.fate == unsettled && !t.seen {
			w.wrong(fmt.Sprintf("Fetch found nothing, but %s was committed in step %d and never came", t.name, t.committed), t)
		}
		if t.replay && !t.replaying {
			w.wrong(fmt.Sprintf("Fetch found nothing, but %s is to be replayed", t.name), t)
		}
	}
}

// decide sends a message, or parks it where a relay must.
func (w *walk) decide(t *tracked, at inBatch, from came) driver.Verdict {
	m, how := at.Messages[at.i], at.Batch.Order(at.i)
	if how == driver.BehindParked || how == driver.InOrder && w.mustWait(at) {
		return behind
	}
	if how == driver.InOrder && from != replayed {
		w.checkOrder(t)
	}
	in := []time.Duration{0, soon, 10 * soon}[w.rnd.IntN(3)]
	p := w.rnd.IntN(100)
	switch {
	case w.calm || p < 60:
		return driver.Verdict{}
	case (p < 80 || from == replayed) && w.overtook(at):
		return driver.Verdict{} // refused, it would stand behind the other, which hides what it has behind it
	case p < 80 || from == replayed:
		return driver.Verdict{Outcome: driver.Parked, RetryIn: in, Failures: failures(m, 1+w.rnd.IntN(4), "refused")}
	case p < 85 && m.Key != "":
		return driver.Verdict{Outcome: driver.Parked, RetryIn: in} // no attempt was counted
	case p < 90:
		return holding(m)
	default:
		return driver.Verdict{Outcome: driver.Dead, Failures: failures(m, 1+w.rnd.IntN(2), "dead")}
	}
}

// inBatch is a message of a batch.
type inBatch struct {
	*driver.Batch
	i int
}

func (m inBatch) key() string         { return m.Messages[m.i].Key }
func (m inBatch) place() driver.Place { return m.Place(m.i) }

// overtook reports whether a newer message of the key was parked, or holds the key, by
// a verdict that the store did not have when the Fetch began.
func (w *walk) overtook(m inBatch) bool {
	for _, b := range w.open {
		for i, v := range b.verdicts {
			if o := (inBatch{&b.Batch, i}); o.key() == m.key() && m.key() != "" && m.place().Before(o.place()) && (v.Outcome == driver.Parked || v.Hold) && !b.settled[i] {
				return true
			}
		}
	}
	return false
}

// mustWait reports whether a message of the key that goes first was parked by a
// verdict that the store did not have when the Fetch began. Within a batch the
// order is the batch's. Between batches it is that of the places, because a parked key may be read
// when something newer is on its way to it.
func (w *walk) mustWait(m inBatch) bool {
	if m.key() == "" {
		return false
	}
	for n, b := range w.open {
		same := n == len(w.open)-1
		for i, v := range b.verdicts {
			o, how := inBatch{&b.Batch, i}, b.Batch.Order(i)
			if o.key() == m.key() && !b.settled[i] && (same || o.place().Before(m.place())) && how != driver.OutOfOrder && (v.Outcome == driver.Parked || v.Hold) {
				return true
			}
		}
	}
	return false
}

// checkOrder: whatever t's transaction could have seen of its key goes first.
func (w *walk) checkOrder(t *tracked) {
	for _, before := range w.all {
		if t.key == "" || before.key != t.key || before.committed == 0 || before.committed >= t.written {
			continue
		}
		if before.once || before.outOfOrder || before.fate == discarded || before.fate == deadLettered && !before.held || w.sent(before) {
			continue
		}
		w.wrong(fmt.Sprintf("%s was to be sent before %s, which has the same key and was committed before it was written", t.name, before.name), t, before)
	}
}

// sent reports whether the present reader has sent it for the last time.
func (w *walk) sent(t *tracked) bool {
	for _, b := range w.open {
		for i, v := range b.verdicts {
			if b.Messages[i].ID == t.name && v.Outcome != driver.Parked && !v.Hold {
				return true
			}
		}
	}
	return false
}

// checkDurable compares dead letters and status with the model.
func (w *walk) checkDurable() {
	deadLetters, err := w.store().DeadLetters(w.ctx, query(driver.Subscribe{Outbox: outbox, Subscription: "sub"}))
	w.Must(err, "DeadLetters")
	listed := map[string]bool{}
	for _, l := range deadLetters {
		t := w.byName[l.Message.ID]
		if t == nil || listed[t.name] || t.fate != deadLettered {
			w.wrong(fmt.Sprintf("the dead letter %s is listed and should not be, or not again", l.Message.ID), t)
		}
		if l.Message.Attempt != t.attempt || len(l.Failures) != min(t.failed, penstock.MaxFailures) || !l.Message.FailedSince.Equal(t.since) || l.Held != t.held {
			w.wrong(fmt.Sprintf("the dead letter %s is %+v, want %+v", t.name, l, *t), t)
		}
		listed[t.name] = true
	}
	var parked, committed int64
	for _, t := range w.all {
		if t.fate == deadLettered && !listed[t.name] {
			w.wrong(fmt.Sprintf("%s was given up and is not among the dead letters", t.name), t)
		}
		if t.fate == waiting && !t.outOfOrder {
			parked++
		}
		if t.committed > 0 && t.fate == unsettled && !t.outOfOrder {
			committed++
		}
	}
	s := w.subscriptionStatus(driver.Subscribe{Outbox: outbox, Subscription: "sub"})
	sentBack := int64(0) // status may count them here or there
	for _, t := range w.all {
		if t.outOfOrder && (t.fate == waiting || t.fate == unsettled) {
			sentBack++
		}
	}
	if s.Parked < parked || s.Parked > parked+sentBack {
		w.wrong(fmt.Sprintf("status shows %d parked, want %d and up to %d that were sent back", s.Parked, parked, sentBack))
	}
	if s.Backlog < committed || s.Backlog > committed+sentBack {
		w.wrong(fmt.Sprintf("status shows a backlog of %d, want %d and up to %d that were sent back", s.Backlog, committed, sentBack))
	}
}

// finish ends what is open, has everything delivered and compares the end.
func (w *walk) finish() {
	for len(w.txs) > 0 {
		w.endTx(w.rnd.IntN(2) == 0)
	}
	w.checkDurable()
	w.calm = true
	w.restart() // what was decided and not settled is forgotten
	suite.Get(w.Store.DiscardDeadLetters(w.ctx, query(w.r.req))).Must(w, "DiscardDeadLetters")
	for _, t := range w.all {
		if t.fate == deadLettered {
			w.discarded(t)
		}
	}
	w.Eventually("everything was delivered", func() bool {
		w.drainAll()
		w.settleSome()
		w.maintainSome()
		for _, t := range w.all {
			if t.committed > 0 && t.fate != done && t.fate != discarded || t.replay {
				return false
			}
		}
		return true
	})
	w.restart()
	w.drainAll()
	for _, b := range w.open {
		w.Errorf("after everything was settled there came %s", brief(payloads(b.Messages)))
	}
	w.checkDurable()
	w.Eventually("status shows nothing left", func() bool {
		s := w.subscriptionStatus(w.r.req)
		return s.Backlog == 0 && s.Parked == 0 && s.ParkedKeys == 0 && s.HeldKeys == 0 && !s.Replaying
	})
}
