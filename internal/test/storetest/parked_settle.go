package storetest

import (
	"slices"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

// Parking and draining take effect with its batch, in order of batches.
var parkedSettleCases = slices.Concat(
	named("ParkedSettle", parkedSettleSettledTwice, parkedSettleBehindAnUndecidedBatch,
		parkedSettleDrainedThenParkedInOneCall, parkedSettleParkedThenDrainedInOneCall, parkedSettleRefusedAndFollowedInOneCall,
		parkedSettleSurvivesTakeover, parkedSettleFencedHolderChangesNothing),
	needing(Features{ConcurrentWriters: true}, named("ParkedSettle", parkedSettleCommittedLateBelowTheHead, parkedSettlePlacesOfWhatCommittedLate)),
)

func parkedSettleSettledTwice(e *env) {
	r := e.read()
	e.publish(keyed("k", 0, 2)...)
	b := r.fetch(plenty)
	settled := judged(verdicts{"k0": refused(b.Messages[0], soon), "k1": behind}, b)
	for range 3 {
		e.Must(r.Settle(e.ctx, settled...), "Settle")
	}
	e.wantParked(r, 2, 1, 0)
	b = r.awaitOnly(driver.InOrder, "k0")
	e.Must(r.Settle(e.ctx, settled...), "Settle, while the key is in flight")
	settled = judged(verdicts{"k0": dead("no")}, b)
	for range 3 {
		e.Must(r.Settle(e.ctx, settled...), "Settle")
	}
	deadLetters := e.deadLetters(r)
	if len(deadLetters) != 1 || len(deadLetters[0].Failures) != 2 || deadLetters[0].Message.Attempt != 2 {
		e.Fatalf("the dead letters are %+v, want one with two failures", deadLetters)
	}
	r.settle(r.awaitOnly(driver.InOrder, "k1"))
	e.Must(r.Settle(e.ctx, settled...), "Settle, when nothing of the key is parked")
	e.wantParked(r, 0, 0, 0)
	r.again().want()
}

// A batch that hangs holds back no verdict on another key.
func parkedSettleBehindAnUndecidedBatch(e *env) {
	r := e.read()
	one := driver.Limit{Messages: 1, Bytes: plenty.Bytes}
	e.publish(append(keyed("a", 0, 1), keyed("k", 0, 2)...)...)
	a, k0, k1 := r.fetch(one), r.fetch(one), r.fetch(one)
	r.judge(verdicts{"k0": refused(k0.Messages[0], soon)}, k0)
	r.judge(verdicts{"k1": behind}, k1)
	r.judge(verdicts{"a0": refused(a.Messages[0], notInThisTest)}, a)
	e.wantParked(r, 3, 2, 0)
	r.settle(r.awaitOnly(driver.InOrder, "k0"))
	r.settle(r.awaitOnly(driver.InOrder, "k1"))

	e.publish(append(keyed("b", 0, 1), keyed("l", 0, 2)...)...)
	r.fetch(one)
	l0 := r.fetch(one)
	r.judge(verdicts{"l0": refused(l0.Messages[0], soon)}, l0)
	c := &carrier{e: e, r: r.again(), limit: plenty}
	c.until(3) // b0 was not settled, so everything comes in its order
	c.wantKey("b", "b0")
	c.wantKey("l", "l0", "l1")
	e.wantParked(c.r, 1, 1, 0)
}

// One batch drains a parked key, a later one parks behind it. Settled by one call, the key
// continues.
func parkedSettleDrainedThenParkedInOneCall(e *env) {
	r := e.read()
	e.publish(message("k", "k0"))
	b := r.fetch(plenty)
	r.judge(verdicts{"k0": refused(b.Messages[0], soon)}, b)
	drains := r.awaitOnly(driver.InOrder, "k0")
	e.publish(message("k", "k1"))
	parks := r.fetch(plenty)
	e.wantOrder(parks, driver.BehindParked, "k1")
	r.judge(verdicts{"k1": behind}, drains, parks)
	wantGoesOn(e, r)
}

// The other way round: the batch that parks came first. Only a held key makes
// sure of it, because otherwise what is due may come at any time.
func parkedSettleParkedThenDrainedInOneCall(e *env) {
	r := e.read()
	e.publish(keyed("k", -1, 1)...)
	b := r.fetch(plenty)
	r.judge(verdicts{"k-1": holding(b.Messages[0]), "k0": behind}, b)
	e.publish(message("k", "k1"))
	parks := r.fetch(plenty)
	e.wantOrder(parks, driver.BehindParked, "k1")
	e.discard(r, 1)
	drains := r.awaitOnly(driver.InOrder, "k0")
	r.judge(verdicts{"k1": behind}, parks, drains)
	wantGoesOn(e, r)
}

// wantGoesOn expects that k1 is in order, and what comes later behind it.
func wantGoesOn(e *env, r *reader) {
	e.wantParked(r, 1, 1, 0)
	b := r.awaitOnly(driver.InOrder, "k1")
	e.publish(message("k", "k2"))
	later := r.fetch(plenty)
	e.wantOrder(later, driver.BehindParked, "k2")
	r.judge(verdicts{"k2": behind}, b, later)
	r.settle(r.awaitOnly(driver.InOrder, "k2"))
	e.wantParked(r, 0, 0, 0)
	e.publish(message("k", "k3"))
	e.wantOrder(r.fetch(plenty), driver.InOrder, "k3")
}

// The head is refused again while others of its key arrive, and two stream
// batches park the same key: one call each.
func parkedSettleRefusedAndFollowedInOneCall(e *env) {
	r := e.read()
	one := driver.Limit{Messages: 1, Bytes: plenty.Bytes}
	e.publish(keyed("k", 0, 2)...)
	k0, k1 := r.fetch(one), r.fetch(one)
	r.judge(verdicts{"k0": refused(k0.Messages[0], soon), "k1": behind}, k0, k1)
	head := r.awaitOnly(driver.InOrder, "k0")
	e.publish(keyed("k", 2, 4)...)
	rest := r.fetch(plenty)
	e.wantOrder(rest, driver.BehindParked, "k2", "k3")
	r.judge(verdicts{"k0": refused(head.Messages[0], soon), "k2": behind, "k3": behind}, head, rest)
	e.wantParked(r, 4, 1, 0)
	c := &carrier{e: e, r: r, limit: two}
	c.until(4)
	c.wantKey("k", "k0", "k1", "k2", "k3")
	suite.Equal(e, c.sent[0].Attempt, 3, "attempt of k0")
}

func parkedSettleSurvivesTakeover(e *env) {
	stores := []driver.Store{e.Store, e.Another(e)}
	r := e.subscribe(driver.Subscribe{Lease: suite.ShortLease})
	e.publish(keyed("k", 0, 3)...)
	b := r.fetch(plenty)
	err := r.Settle(e.ctx, judged(verdicts{"k0": refused(b.Messages[0], soon), "k1": behind, "k2": behind}, b)...)
	if err != nil {
		e.MustBe(err, penstock.ErrFenced, "Settle by a slow machine")
		r = e.takeOver(e.Store, driver.Subscribe{})
		b = r.fetch(plenty)
		r.judge(verdicts{"k0": refused(b.Messages[0], soon), "k1": behind, "k2": behind}, b)
		r.close()
	}
	for i := range 3 {
		r = e.takeOver(stores[i%2], driver.Subscribe{Lease: suite.ShortLease})
		// Whether it returns the key before it crashes or not, the next gets it.
		if b, err := r.Fetch(e.ctx, plenty); err == nil && len(b.Messages) > 0 {
			e.wantOrder(b, driver.InOrder, "k0")
		}
	}
	c := &carrier{e: e, r: e.takeOver(stores[1], driver.Subscribe{}), limit: plenty}
	c.until(3)
	c.wantKey("k", "k0", "k1", "k2")
	suite.Equal(e, c.sent[0].Attempt, 2, "attempt of k0")
}

// A relay that has lost the lease neither parks, drains nor dead-letters.
func parkedSettleFencedHolderChangesNothing(e *env) {
	first := e.read()
	e.publish(keyed("k", 0, 2)...)
	b := first.fetch(plenty)
	first.judge(verdicts{"k0": refused(b.Messages[0], soon), "k1": behind}, b)
	first.close()

	old := e.takeOver(e.Another(e), driver.Subscribe{Lease: suite.ShortLease})
	parked, err := old.Fetch(e.ctx, plenty) // maybe empty: it is not due, or the lease is over
	if err != nil {
		e.MustBe(err, penstock.ErrFenced, "Fetch by a slow machine")
	}
	e.publish(keyed("o", 0, 1)...)
	fresh, err := old.Fetch(e.ctx, plenty)
	if err != nil {
		e.MustBe(err, penstock.ErrFenced, "Fetch by a slow machine")
	}
	r := e.takeOver(e.Store, driver.Subscribe{})
	for _, b := range []driver.Batch{parked, fresh} {
		for _, m := range b.Messages {
			p := string(m.Payload)
			for _, v := range []driver.Verdict{{}, refused(m, notInThisTest), dead("no"), holding(m)} {
				e.MustBe(old.Settle(e.ctx, judged(verdicts{p: v}, parked, fresh)...), penstock.ErrFenced, "Settle by the old holder")
			}
		}
	}
	e.wantDeadLetters(r, 0)
	e.wantParked(r, 2, 1, 0)
	c := &carrier{e: e, r: r, limit: plenty}
	c.until(3)
	c.wantKey("k", "k0", "k1")
	c.wantKey("o", "o0")
	if m := c.sent[slices.IndexFunc(c.sent, func(m penstock.Message) bool { return string(m.Payload) == "k0" })]; m.Attempt != 2 {
		e.Errorf("k0 came with attempt %d, want 2", m.Attempt)
	}
}

// A message that commits late may have a lower Seq than those parked already. Neither transaction
// could have seen the other, so either may be first.
func parkedSettleCommittedLateBelowTheHead(e *env) {
	r := e.read()
	tx := e.begin()
	tx.publish(message("k", "late"))
	e.publish(message("k", "head"))
	b := r.fetch(plenty)
	r.judge(verdicts{"head": refused(b.Messages[0], soon)}, b)
	head := r.awaitOnly(driver.InOrder, "head")
	tx.Commit()
	late := r.awaitOnly(driver.BehindParked, "late")
	r.judge(verdicts{"head": refused(head.Messages[0], soon), "late": behind}, head, late)
	e.wantParked(r, 2, 1, 0)
	e.publish(message("k", "last"))
	c := &carrier{e: e, r: r, limit: plenty}
	c.until(3)
	e.wantPayloads(c.sent, "late", "head", "last")
	e.wantInOrder(c.sent[2:], "last")
	e.wantParked(r, 0, 0, 0)
}

// Two that committed late are parked behind a head with a higher Seq, the lower one last. In whatever order the store
// gives them back, their places say the same. Otherwise a relay parks the first for one that is on its way and sends
// the second, and Settle has verdicts that contradict each other.
func parkedSettlePlacesOfWhatCommittedLate(e *env) {
	r := e.read()
	first, second := e.begin(), e.begin()
	first.publish(message("k", "first"))
	second.publish(message("k", "second"))
	e.publish(message("k", "head"))
	b := r.fetch(plenty)
	r.judge(verdicts{"head": refused(b.Messages[0], soon)}, b)
	c := &carrier{e: e, r: r, limit: plenty, decide: func(m penstock.Message) driver.Verdict { return refused(m, soon) }}
	for i, t := range []tx{second, first} {
		t.Commit()
		e.Eventually("it is parked", func() bool {
			c.step()
			return e.subscriptionStatus(r.req).Parked == int64(i+2)
		})
	}
	var came []string
	e.Eventually("all have come", func() bool {
		b := r.fetch(plenty)
		for i, m := range b.Messages {
			came = append(came, string(m.Payload))
			if i > 0 && !b.Place(i-1).Before(b.Place(i)) {
				e.Errorf("%s comes behind %s, and its place is not", m.Payload, b.Messages[i-1].Payload)
			}
		}
		r.settle(b)
		return len(came) == 3
	})
	e.wantParked(r, 0, 0, 0)
}
