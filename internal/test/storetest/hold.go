package storetest

import (
	"slices"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

var holdCases = slices.Concat(
	named("Hold", holdKeepsItsKeyWaiting, holdDiscardReleasesAnEmptyKey,
		holdRetryAndDieAgainKeepsWaiting, holdRetrySurvivesACrash, holdAParkedHead, holdNothingWithoutAKey, holdNothingWhenItIsAlone),
	[]testCase{
		{Name: "RetryAndDeliverReleases", Run: func(e *env) { holdRetry(e, nil) }},
		{Name: "RetryAndParkAgainKeepsWaiting", Run: func(e *env) {
			holdRetry(e, func(m penstock.Message) driver.Verdict { return refused(m, soon) })
		}},
		{Name: "OfOneThatCommittedLate", Run: func(e *env) { holdLate(e, true) }, Needs: Features{ConcurrentWriters: true}},
		{Name: "OfOneThatCommittedLateSettledApart", Run: func(e *env) { holdLate(e, false) }, Needs: Features{ConcurrentWriters: true}},
	},
)

// discard deletes all dead letters of r's subscription, n of them.
func (e *env) discard(r *reader, n int) {
	e.discardDead(query(r.req), n)
}

// held is a subscription whose key k waits for the dead letter k0, with k1 and
// k2 parked behind it.
func (e *env) held() *reader {
	r := e.read()
	e.publish(keyed("k", 0, 2)...)
	b := r.fetch(plenty)
	r.judge(verdicts{"k0": holding(b.Messages[0]), "k1": behind}, b)
	e.publish(keyed("k", 2, 3)...)
	b = r.fetch(plenty)
	e.wantOrder(b, driver.BehindParked, "k2")
	r.judge(verdicts{"k2": behind}, b)
	e.wantHeld(r)
	return r
}

// wantHeld expects that nothing of the key comes.
func (e *env) wantHeld(r *reader) {
	r.want()
	e.wantParked(r, 2, 1, 1)
}

func holdKeepsItsKeyWaiting(e *env) {
	r := e.held()
	died := e.onlyDead(r, true)
	suite.Equal(e, died.Message.Key, "k", "key of the dead letter")
	for range 2 {
		e.publish(message("o", "o"))
		b := r.fetch(plenty)
		e.wantOrder(b, driver.InOrder, "o")
		r.settle(b)
		e.wantHeld(r)
		e.maintain()
		r = r.again()
	}
	k := e.parkedKeys(r)[0]
	if k.Key != "k" || k.Messages != 2 || k.FirstSeq != died.Message.Seq || !k.Held || !k.Retry.IsZero() || k.Err != died.Err() {
		e.Errorf("ParkedKeys: %+v, want two messages held by %d because of %q", k, died.Message.Seq, died.Err())
	}
	r.close()
	r = e.subscribeOn(e.Another(e), driver.Subscribe{})
	e.wantHeld(r)
}

// wantReleased expects that the key continues, soon.
func (e *env) wantReleased(r *reader) {
	c := &carrier{e: e, r: r, limit: plenty}
	c.until(2)
	c.wantKey("k", "k1", "k2")
	for _, m := range c.sent {
		if m.Attempt != 1 || !m.FailedSince.IsZero() {
			e.Errorf("%s came with attempt %d and failed since %s, want 1 and never", m.Payload, m.Attempt, m.FailedSince)
		}
	}
	e.wantParked(r, 0, 0, 0)
	e.wantDeadLetters(r, 0)
	e.publish(keyed("k", 3, 4)...)
	e.wantOrder(r.fetch(plenty), driver.InOrder, "k3")
	r.again().want("k3")
}

// With no message behind it the dead letter holds the key all the same.
func holdDiscardReleasesAnEmptyKey(e *env) {
	r := e.read()
	e.publish(keyed("k", 0, 1)...)
	b := r.fetch(plenty)
	r.judge(verdicts{"k0": holding(b.Messages[0])}, b)
	r = r.again()
	e.publish(keyed("k", 1, 2)...)
	b = r.fetch(plenty)
	e.wantOrder(b, driver.BehindParked, "k1")
	r = r.again() // k1 was not parked
	e.discard(r, 1)
	c := &carrier{e: e, r: r, limit: plenty}
	c.until(1)
	e.publish(keyed("k", 2, 4)...)
	c.until(3)
	c.wantKey("k", "k1", "k2", "k3")
	e.wantParked(r, 0, 0, 0)
}

// The first of the key was refused before an older one, which had committed late, came to
// hold it: its attempts are not forgotten meanwhile.
func holdLate(e *env, together bool) {
	r := e.read()
	late := e.begin()
	late.publish(message("k", "late"))
	e.publish(message("k", "k1"))
	first := r.fetch(plenty)
	e.wantOrder(first, driver.InOrder, "k1")
	late.Commit()
	second := r.fetch(plenty)
	e.wantOrder(second, driver.InOrder, "late")
	k1 := first.Messages[0]
	v := verdicts{"k1": {Outcome: driver.Parked, RetryIn: soon, Failures: failures(k1, 3, "refused")}, "late": holding(second.Messages[0])}
	if together {
		r.judge(v, first, second)
	} else {
		r.judge(v, first)
		r.judge(v, second)
	}
	e.wantParked(r, 1, 1, 1)
	r = r.again()
	r.want()
	e.discard(r, 1)
	b := r.awaitOnly(driver.InOrder, "k1")
	e.wantNext(b.Messages[0], k1, 4, v["k1"].Failures[0].At)
	r.settle(b)
	e.wantParked(r, 0, 0, 0)
}

func holdRetry(e *env, first func(m penstock.Message) driver.Verdict) {
	r := e.held()
	e.retry(r, e.deadLetters(r)...)
	b := r.awaitOnly(driver.OutOfOrder, "k0")
	attempt := 2
	if first != nil {
		r.judge(verdicts{"k0": first(b.Messages[0])}, b)
		b = r.awaitOnly(driver.OutOfOrder, "k0")
		attempt++
	}
	suite.Equal(e, b.Messages[0].Attempt, attempt, "attempt of the dead letter that came back")
	r.want() // the others wait until it is delivered
	e.publish(message("o", "o"))
	o := r.fetch(plenty)
	e.wantOrder(o, driver.InOrder, "o")
	suite.Equal(e, e.subscriptionStatus(r.req).HeldKeys, 1, "keys held while it is on its way")
	r.settle(b, o)
	e.wantReleased(r)
}

func holdRetryAndDieAgainKeepsWaiting(e *env) {
	r := e.held()
	for range 2 {
		e.retry(r, e.deadLetters(r)...)
		r.judge(verdicts{"k0": dead("again")}, r.awaitOnly(driver.OutOfOrder, "k0"))
		suite.Equal(e, e.onlyDead(r, true).Err(), "again", "error of the dead letter")
		e.wantHeld(r)
		r = r.again()
	}
	e.discard(r, 1)
	e.wantReleased(r)
}

func holdRetrySurvivesACrash(e *env) {
	r := e.held()
	e.retry(r, e.deadLetters(r)...)
	for range 2 {
		r.awaitOnly(driver.OutOfOrder, "k0")
		r.want()
		r = r.again()
	}
	r.settle(r.awaitOnly(driver.OutOfOrder, "k0"))
	e.wantReleased(r)
}

func holdAParkedHead(e *env) {
	r := e.read()
	e.publish(keyed("k", 0, 3)...)
	b := r.fetch(plenty)
	r.judge(verdicts{"k0": refused(b.Messages[0], soon), "k1": behind, "k2": behind}, b)
	b = r.awaitOnly(driver.InOrder, "k0")
	r.judge(verdicts{"k0": holding(b.Messages[0])}, b)
	e.wantHeld(r)
	suite.Equal(e, len(e.onlyDead(r, true).Failures), 2, "failures of the dead letter")
	r = r.again()
	e.wantHeld(r)
	e.discard(r, 1)
	e.wantReleased(r)
}

func holdNothingWithoutAKey(e *env) {
	r := e.read()
	e.publish(messages("u", 2)...)
	b := r.fetch(plenty)
	r.judge(verdicts{"u0": holding(b.Messages[0])}, b)
	e.onlyDead(r, false)
	e.publish(message("", "u2"))
	e.wantOrder(r.fetch(plenty), driver.InOrder, "u2")
	e.wantParked(r, 0, 0, 0)
}

// A dead letter whose key has continued cannot stop it when it comes back and dies.
func holdNothingWhenItIsAlone(e *env) {
	r := e.read()
	e.publish(keyed("k", 0, 2)...)
	b := r.fetch(plenty)
	r.judge(verdicts{"k0": dead("no")}, b)
	e.retry(r, e.deadLetters(r)...)
	b = r.awaitOnly(driver.OutOfOrder, "k0")
	r.judge(verdicts{"k0": holding(b.Messages[0])}, b)
	e.onlyDead(r, false)
	e.publish(keyed("k", 2, 3)...)
	e.wantOrder(r.fetch(plenty), driver.InOrder, "k2")
}
