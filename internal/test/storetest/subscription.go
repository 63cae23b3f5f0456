package storetest

import (
	"slices"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

var subscriptionCases = slices.Concat(
	named("Subscription", subscriptionFromNow, subscriptionStartIsForNewOnes,
		subscriptionTwoAreIndependent, subscriptionOddNames, subscriptionEphemeral, subscriptionEphemeralHoldsNothingBack, subscriptionDefaultLease),
	needing(Features{ConcurrentWriters: true}, named("Subscription", subscriptionFromNowWithOpenTransaction)),
)

func subscriptionFromNow(e *env) {
	e.publish(messages("before", 3)...)
	r := e.subscribe(driver.Subscribe{Start: driver.FromNow})
	r.want()
	e.publish(messages("after", 2)...)
	r.want("after0", "after1")
	r = r.again() // where it began is durable
	r.want("after0", "after1")
	r = r.again()
	b := r.want("after0", "after1")
	r.settle(b...)
	r.again().want()
}

// From now on is about commits, not about when a transaction began.
func subscriptionFromNowWithOpenTransaction(e *env) {
	open := e.begin()
	open.publish(message("", "open"))
	e.publish(message("", "before"))
	r := e.subscribe(driver.Subscribe{Start: driver.FromNow})
	e.publish(message("", "after"))
	r.settle(r.want("after")...)
	open.Commit()
	r.want("open")
}

func subscriptionStartIsForNewOnes(e *env) {
	r := e.read()
	e.publish(messages("m", 2)...)
	r.close()
	e.subscribe(driver.Subscribe{Start: driver.FromNow}).want("m0", "m1")
}

// Two subscriptions have a cursor each, and dead letters, parked messages and their order.
func subscriptionTwoAreIndependent(e *env) {
	a, b := e.subscribe(driver.Subscribe{Subscription: "a"}), e.subscribe(driver.Subscribe{Subscription: "b"})
	e.publish(keyed("k", 0, 4)...)
	a.settle(a.want("k0", "k1", "k2", "k3")...)
	e.maintain()
	e.maintain()
	a = a.again()
	a.want()
	batch := b.fetch(plenty)
	e.wantOrder(batch, driver.InOrder, "k0", "k1", "k2", "k3")
	b.judge(verdicts{"k0": dead("only for b"), "k2": refused(batch.Messages[2], notInThisTest), "k3": behind}, batch)
	e.wantDeadLetters(a, 0)
	e.wantDeadLetters(b, 1)
	e.wantParked(a, 0, 0, 0)
	e.wantParked(b, 2, 1, 0)
	b = b.again()
	b.want()
	e.publish(message("k", "k4"))
	e.wantOrder(a.fetch(plenty), driver.InOrder, "k4")
	e.wantOrder(b.fetch(plenty), driver.BehindParked, "k4")
}

func subscriptionOddNames(e *env) {
	e.retain(admin.Retention{Age: notInThisTest})
	e.publish(message("", "m"))
	names := oddNames[:len(oddNames)/2] // each costs a database some time
	for _, name := range names {
		r := e.subscribe(driver.Subscribe{Subscription: name})
		r.settle(r.want("m")...)
		e.maintain()
		r.again().want()
	}
	suite.Equal(e, len(e.outboxStatus(outbox).Subscriptions), len(names), "subscriptions of the status")
}

func subscriptionEphemeral(e *env) {
	e.publish(messages("before", 2)...)
	r := e.read()
	req := driver.Subscribe{Subscription: "sub", Ephemeral: true}
	all := e.subscribe(req)
	req.Start = driver.FromNow
	tail := e.subscribe(req) // of the same name: there is no lease
	seen := all.want("before0", "before1")
	tail.want()
	e.publish(message("", "after"))
	all.want("after")
	tail.want("after")
	all.settle(seen...)
	e.Must(all.Renew(e.ctx), "Renew of an ephemeral source")
	all.close()
	tail.close()
	r.want("before0", "before1", "after")
	suite.Equal(e, len(e.outboxStatus(outbox).Subscriptions), 1, "subscriptions of the status, of which one lasts")
	suite.Equal(e, e.subscriptionStatus(r.req).Holder, r.req.Holder, "holder")
}

func subscriptionEphemeralHoldsNothingBack(e *env) {
	tail := e.subscribe(driver.Subscribe{Ephemeral: true})
	r := e.read()
	for range 3 {
		e.publish(messages("m", 10)...)
		r.settle(r.drain(two)...)
		e.maintain()
	}
	e.publish(message("", "last"))
	var last string
	for _, m := range flatten(tail.drain(two)) { // some may be gone
		last = string(m.Payload)
	}
	suite.Equal(e, last, "last", "the last message that the ephemeral reader saw")
}

func subscriptionDefaultLease(e *env) {
	req := e.request(driver.Subscribe{})
	req.Lease = 0
	suite.Get(e.Store.Subscribe(e.ctx, req)).Must(e, "Subscribe without a lease time")
	s := e.subscriptionStatus(req)
	if s.Holder != req.Holder || s.LeaseUntil.IsZero() {
		e.Errorf("status shows holder %q until %s, want %q for %s", s.Holder, s.LeaseUntil, req.Holder, driver.DefaultLease)
	}
}
