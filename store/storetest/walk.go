package storetest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/penstock/penstock"
)

// The operations of randomWalk. Each calls the store and tells the model.

func (w *walk) store() penstock.Store { return w.stores[w.rnd.IntN(len(w.stores))] }

// make invents messages.
func (w *walk) make() ([]penstock.Message, []*tracked) {
	n := 1 + w.rnd.IntN(4)
	msgs, ts := make([]penstock.Message, n), make([]*tracked, n)
	for i := range n {
		t := &tracked{name: fmt.Sprint("m", len(w.all)), key: []string{"", "a", "b", "c"}[w.rnd.IntN(4)], written: w.step, attempt: 1}
		pad := randomBytes(w.rnd, w.rnd.IntN(3000))
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
		t.rollback()
		return
	}
	t.commit()
	w.commit(t.msgs)
}

func (w *walk) commit(ts []*tracked) {
	for _, t := range ts {
		t.committed = w.step
	}
}

func (w *walk) publishAlone() {
	msgs, ts := w.make()
	w.must(w.store().Publish(w.ctx, outbox, msgs...), "Publish")
	w.commit(ts)
}

func (w *walk) maintainSome() { w.must(w.store().Maintain(w.ctx, outbox), "Maintain") }

func (w *walk) fetchSome() {
	limit := penstock.Limit{Messages: 1 + w.rnd.IntN(8), Bytes: 1 + w.rnd.IntN(10_000)}
	b, err := w.r.Fetch(w.ctx, limit)
	if w.lost(err) {
		return
	}
	w.must(err, "Fetch")
	w.take(b, limit)
}

func (w *walk) drainAll() {
	for before := -1; before != len(w.open); {
		before = len(w.open)
		w.fetchSome()
	}
}

// settleSome settles some of the open batches, in any order, in one call or in
// several.
func (w *walk) settleSome() {
	var chosen []*walkBatch
	for _, b := range w.open {
		if !b.settled && w.rnd.IntN(3) > 0 {
			chosen = append(chosen, b)
		}
	}
	w.rnd.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	for len(chosen) > 0 {
		n := 1 + w.rnd.IntN(len(chosen))
		if !w.settle(chosen[:n]) {
			return
		}
		chosen = chosen[n:]
	}
}

// enter makes a new reader: a mortal one, which may crash, or one whose lease
// outlives the test. After a crash it waits for the lease to expire.
func (w *walk) enter(afterCrash bool) {
	req := penstock.Subscribe{}
	if w.mortal = w.rnd.IntN(3) == 0; w.mortal {
		req.Lease = shortLease / 2
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
	i := slices.IndexFunc(w.open, func(b *walkBatch) bool { return !b.settled })
	if i >= 0 {
		w.retired = append(w.retired, retired{w.r, w.open[i].Batch})
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
	w.mustBe(old.Settle(w.ctx, delivered(old.batch)...), penstock.ErrFenced, "Settle by a crashed reader")
	w.mustBe(old.Renew(w.ctx), penstock.ErrFenced, "Renew by a crashed reader")
	if w.rnd.IntN(2) == 0 {
		_ = old.Close(w.ctx)
		w.retired = slices.Delete(w.retired, i, i+1)
	}
}

func (w *walk) retrySome() {
	letters, err := w.store().DeadLetters(w.ctx, penstock.DeadLetterQuery{Outbox: outbox, Subscription: "sub", Limit: 1 + w.rnd.IntN(10)})
	w.must(err, "DeadLetters")
	var seqs []int64
	for _, l := range letters {
		t := w.byName[l.Message.ID]
		if t == nil || t.fate != buried || w.rnd.IntN(2) == 0 {
			continue
		}
		seqs = append(seqs, l.Message.Seq)
		t.fate, t.doubt, t.seen = unsettled, false, false
		t.attempt++
	}
	if len(seqs) == 0 {
		return
	}
	n, err := w.store().RetryDeadLetters(w.ctx, penstock.DeadLetterQuery{Outbox: outbox, Subscription: "sub", Seqs: seqs})
	w.must(err, "RetryDeadLetters")
	if n != len(seqs) {
		w.Fatalf("step %d: RetryDeadLetters sent %d back, want %d", w.step, n, len(seqs))
	}
}
