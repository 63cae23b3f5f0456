package storetest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testseed"
)

// The operations of randomWalk. Each calls the store and the model.

func (w *walk) store() driver.Store { return w.stores[w.rnd.IntN(len(w.stores))] }

// make invents messages.
func (w *walk) make() ([]penstock.Message, []*tracked) {
	n := 1 + w.rnd.IntN(4)
	msgs, ts := make([]penstock.Message, n), make([]*tracked, n)
	for i := range n {
		t := &tracked{name: fmt.Sprint("m", len(w.all)), key: []string{"", "a", "b", "c"}[w.rnd.IntN(4)], written: w.step, attempt: 1}
		pad := testseed.Bytes(w.rnd, w.rnd.IntN(3000))
		msgs[i] = penstock.Message{ID: t.name, Key: t.key, Payload: pad}
		w.all, w.byName[t.name], ts[i] = append(w.all, t), t, t
	}
	return msgs, ts
}

func (w *walk) beginTx() {
	if len(w.txs) < 4 {
		w.txs = append(w.txs, &walkTx{tx: w.begin()})
	}
}

func (w *walk) publishTx() {
	if len(w.txs) == 0 {
		return
	}
	t := w.txs[w.rnd.IntN(len(w.txs))]
	msgs, ts := w.make()
	t.publish(msgs...)
	t.msgs = append(t.msgs, ts...)
}

func (w *walk) endTx(commit bool) {
	if len(w.txs) == 0 {
		return
	}
	i := w.rnd.IntN(len(w.txs))
	t := w.txs[i]
	w.txs = slices.Delete(w.txs, i, i+1)
	if !commit {
		t.Rollback()
		return
	}
	t.Commit()
	w.commit(t.msgs)
}

func (w *walk) commit(ts []*tracked) {
	for _, t := range ts {
		t.committed = w.step
	}
}

func (w *walk) publishAlone() {
	msgs, ts := w.make()
	w.Must(w.store().Publish(w.ctx, outbox, msgs...), "Publish")
	w.commit(ts)
}

func (w *walk) maintainSome() { w.Must(w.store().Maintain(w.ctx, outbox), "Maintain") }

func (w *walk) fetchSome() {
	limit := driver.Limit{Messages: 1 + w.rnd.IntN(8), Bytes: 1 + w.rnd.IntN(10_000)}
	b, err := w.r.Fetch(w.ctx, limit)
	if w.lost(err) {
		return
	}
	w.Must(err, "Fetch")
	w.take(b, limit)
}

func (w *walk) drainAll() {
	for before := -1; before != len(w.open); {
		before = len(w.open)
		w.fetchSome()
	}
}

// settleSome settles open batches, or parts of them, in one call or in several, and
// now and then something that is settled already.
func (w *walk) settleSome() {
	calls := 1
	if !w.calm {
		calls += w.rnd.IntN(3)
	}
	for range calls {
		var chosen []*walkBatch
		waits := map[string]bool{} // keys
		for _, b := range w.open {
			if w.choose(b, waits) {
				chosen = append(chosen, b)
			}
		}
		if len(w.past) > 0 && w.rnd.IntN(4) == 0 {
			chosen = append(chosen, w.past[w.rnd.IntN(len(w.past))])
		}
		if len(chosen) == 0 || !w.settle(chosen) {
			return
		}
	}
}

// choose picks which messages of a batch to settle: all, a part or none. Of a key nothing is
// settled ahead of what is not, and nothing is parked without what is behind it.
func (w *walk) choose(b *walkBatch, waits map[string]bool) (some bool) {
	rate := []int{0, 1, 2, 3, 3, 3}[w.rnd.IntN(6)]
	b.chosen = make([]bool, len(b.Messages))
	stays := map[string]bool{}
	for i, m := range b.Messages {
		v, inOrder := b.verdicts[i], m.Key != "" && b.Batch.Order(i) != driver.OutOfOrder
		switch {
		case b.settled[i]:
		case inOrder && waits[m.Key]:
		case w.calm || stays[m.Key] || w.rnd.IntN(3) < rate:
			b.chosen[i], some = true, true
			stays[m.Key] = stays[m.Key] || inOrder && (v.Outcome == driver.Parked || v.Hold)
		case inOrder:
			waits[m.Key] = true
		}
	}
	return some
}

func (w *walk) settle(chosen []*walkBatch) bool {
	settled := make([]driver.Settled, len(chosen))
	for i, b := range chosen {
		settled[i] = b.outcome()
		if !slices.ContainsFunc(settled[i].Verdicts, func(v driver.Verdict) bool { return v.Outcome != driver.Delivered }) && w.rnd.IntN(2) == 0 {
			settled[i].Verdicts = nil
		}
	}
	slices.SortFunc(settled, func(a, b driver.Settled) int { return cmp.Compare(a.Batch.Number, b.Batch.Number) })
	err := w.r.Settle(w.ctx, settled...)
	if w.lost(err) {
		return false
	}
	w.Must(err, "Settle")
	for _, b := range chosen {
		w.apply(b)
	}
	w.open = slices.DeleteFunc(w.open, func(b *walkBatch) bool {
		over := !slices.Contains(b.settled, false)
		if over {
			w.past = append(w.past, b)
		}
		return over
	})
	return true
}

// outcome has the messages chosen of a batch, and those settled before.
func (b *walkBatch) outcome() driver.Settled {
	s := driver.Settled{Batch: b.Batch, Verdicts: slices.Clone(b.verdicts)}
	for i := range s.Verdicts {
		if !b.settled[i] && !b.chosen[i] {
			s.Verdicts[i] = driver.Verdict{Outcome: driver.Undecided}
		}
	}
	return s
}

// enter makes a new reader: a mortal one, which may crash, or one whose lease
// outlives the test. After a crash it waits for the lease to expire.
func (w *walk) enter(afterCrash bool) {
	req := driver.Subscribe{}
	if w.mortal = w.rnd.IntN(3) == 0; w.mortal {
		req.Lease = suite.ShortLease / 2
	}
	if afterCrash {
		w.r = w.takeOver(w.store(), req)
	} else {
		w.r = w.subscribeOn(w.store(), req)
	}
}

// lost handles a mortal reader that was too slow: a store may refuse it before
// anybody else has come.
func (w *walk) lost(err error) bool {
	if !w.mortal || !errors.Is(err, penstock.ErrFenced) {
		return false
	}
	for len(w.txs) > 0 && !w.features.ConcurrentWriters {
		w.endTx(true) // the next reader would wait for it
	}
	w.leave()
	w.enter(true)
	return true
}

func (w *walk) restart() {
	w.r.close()
	w.leave()
	w.enter(false)
}

func (w *walk) crash() {
	if !w.mortal {
		return
	}
	if len(w.open) > 0 {
		w.retired = append(w.retired, retired{w.r, w.open[0]})
	}
	w.leave()
	w.enter(true)
}

// staleSettle wakes a crashed reader up.
func (w *walk) staleSettle() {
	if len(w.retired) == 0 {
		return
	}
	i := w.rnd.IntN(len(w.retired))
	old := w.retired[i]
	w.MustBe(old.Settle(w.ctx, driver.Settled{Batch: old.batch.Batch, Verdicts: old.batch.verdicts}), penstock.ErrFenced, "Settle by a crashed reader")
	w.MustBe(old.Renew(w.ctx), penstock.ErrFenced, "Renew by a crashed reader")
	if w.rnd.IntN(2) == 0 {
		_ = old.Close(w.ctx)
		w.retired = slices.Delete(w.retired, i, i+1)
	}
}

// someDeadLetters picks dead letters.
func (w *walk) someDeadLetters() (admin.DeadLetterQuery, []*tracked) {
	q := admin.DeadLetterQuery{Outbox: outbox, Subscription: "sub", Limit: 1 + w.rnd.IntN(10)}
	deadLetters := suite.Get(w.store().DeadLetters(w.ctx, q)).Must(w, "DeadLetters")
	var some []*tracked
	for _, l := range deadLetters {
		if t := w.byName[l.Message.ID]; t != nil && t.fate == deadLettered && w.rnd.IntN(2) == 0 {
			q.Seqs = append(q.Seqs, l.Message.Seq)
			some = append(some, t)
		}
	}
	return q, some
}

func (w *walk) retrySome() {
	q, some := w.someDeadLetters()
	if len(some) == 0 {
		return
	}
	n := suite.Get(w.store().RetryDeadLetters(w.ctx, q)).Must(w, "RetryDeadLetters")
	suite.MustEqual(w, n, len(some), "step %d: RetryDeadLetters", w.step)
	for _, t := range some {
		t.fate, t.outOfOrder, t.seen = unsettled, true, false
		w.note(t, "is sent back")
		t.attempt++
	}
}

func (w *walk) discardSome() {
	q, some := w.someDeadLetters()
	if len(some) == 0 {
		return
	}
	n := suite.Get(w.store().DiscardDeadLetters(w.ctx, q)).Must(w, "DiscardDeadLetters")
	suite.MustEqual(w, n, len(some), "step %d: DiscardDeadLetters", w.step)
	for _, t := range some {
		w.discarded(t)
	}
}

func (w *walk) discarded(t *tracked) {
	t.fate = discarded
	w.note(t, "is discarded")
	if t.held {
		t.held, w.released[t.key] = false, true
	}
}

// replaySome replays a range in which everything is delivered or not settled: whether it also has
// parked messages or dead letters is the store's affair.
func (w *walk) replaySome() {
	if !w.retains || slices.ContainsFunc(w.all, func(t *tracked) bool { return t.replay }) {
		return
	}
	var known []*tracked
	for _, t := range w.all {
		if t.seq > 0 {
			known = append(known, t)
		}
	}
	if len(known) == 0 {
		return
	}
	slices.SortFunc(known, func(a, b *tracked) int { return int(a.seq - b.seq) })
	var chosen []*tracked
	for _, t := range known[w.rnd.IntN(len(known)):] {
		if t.fate != done && t.fate != unsettled || t.outOfOrder || len(chosen) == 20 {
			break
		}
		chosen = append(chosen, t)
	}
	if len(chosen) == 0 {
		return
	}
	r := admin.Replay{Outbox: outbox, Subscription: "sub", FromSeq: chosen[0].seq, ToSeq: chosen[len(chosen)-1].seq}
	n := suite.Get(w.store().Replay(w.ctx, r)).Must(w, "Replay")
	want := int64(0)
	for _, t := range chosen {
		if t.fate == done {
			t.replay, t.replaying = true, false
			w.note(t, "is to be replayed")
			want++
		}
	}
	if n != want {
		w.wrong(fmt.Sprintf("Replay from %d to %d has %d messages, want %d", r.FromSeq, r.ToSeq, n, want), chosen...)
	}
}
