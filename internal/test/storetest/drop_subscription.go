package storetest

import (
	"errors"
	"slices"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

var dropSubscriptionCases = slices.Concat(
	named("DropSubscription", dropSubscriptionFencesItsReader, dropSubscriptionRemovesEverything,
		dropSubscriptionEndsAReplay, dropSubscriptionLeavesOthersAlone),
	needing(Features{Reclaim: true}, named("DropSubscription", dropSubscriptionLetsReclaimGoOn)),
)

func (e *env) dropSubscription(r *reader) {
	e.Must(e.Store.DropSubscription(e.ctx, r.req.Outbox, r.req.Subscription), "DropSubscription")
	e.MustBe(e.Store.DropSubscription(e.ctx, r.req.Outbox, r.req.Subscription), penstock.ErrNoSubscription, "DropSubscription again")
}

// The reader is fenced, even when another has made the subscription anew.
func dropSubscriptionFencesItsReader(e *env) {
	stores := []driver.Store{e.Store, e.Another(e)}
	for _, s := range stores {
		old := e.subscribeOn(s, driver.Subscribe{})
		e.publish(keyed("k", 0, 4)...)
		settled, open := old.fetch(two), old.fetch(two)
		old.settle(settled)
		e.dropSubscription(old)
		check := func() {
			e.MustBe(old.Settle(e.ctx, delivered(open)...), penstock.ErrFenced, "Settle after DropSubscription")
			e.MustBe(old.Settle(e.ctx, judged(verdicts{"k2": refused(open.Messages[0], soon)}, open)...), penstock.ErrFenced, "Settle after DropSubscription")
			e.MustBe(old.Renew(e.ctx), penstock.ErrFenced, "Renew after DropSubscription")
			if b, err := old.Fetch(e.ctx, plenty); err != nil && !errors.Is(err, penstock.ErrFenced) || len(b.Messages) > 0 {
				e.Errorf("Fetch after DropSubscription: got %s and error %v", brief(payloads(b.Messages)), err)
			}
		}
		check()
		suite.Equal(e, len(e.outboxStatus(outbox).Subscriptions), 0, "subscriptions of the status")
		check() // which has not made it anew
		r := e.subscribe(driver.Subscribe{Start: driver.FromNow})
		check()
		_ = old.Close(e.ctx)
		_, err := e.Store.Subscribe(e.ctx, e.request(driver.Subscribe{}))
		e.MustBe(err, penstock.ErrHeld, "Subscribe after the old reader's Close")
		e.publish(message("k", "new"))
		r.settle(r.want("new")...)
		e.wantParked(r, 0, 0, 0)
		e.dropSubscription(r)
	}
}

func dropSubscriptionRemovesEverything(e *env) {
	r := e.read()
	e.publish(append(keyed("k", 0, 5), keyed("h", 0, 2)...)...)
	b := r.fetch(plenty)
	r.judge(verdicts{"k0": dead("no"), "k1": dead("no"), "k2": refused(b.Messages[2], soon), "k3": behind, "k4": behind, "h0": holding(b.Messages[5]), "h1": behind}, b)
	e.wantParked(r, 4, 2, 1)
	q := query(r.req)
	q.Limit = 1
	_, err := e.Store.RetryDeadLetters(e.ctx, q)
	e.Must(err, "RetryDeadLetters")
	e.dropSubscription(r)
	for op, err := range e.operate(outbox, r.req.Subscription) {
		e.MustBe(err, penstock.ErrNoSubscription, op)
	}
	r = e.subscribe(driver.Subscribe{Start: driver.FromNow})
	r.want()
	e.wantParked(r, 0, 0, 0)
	if s := e.subscriptionStatus(r.req); s.DeadLetters != 0 || s.Settled != 0 || s.Backlog != 0 || s.Replaying {
		e.Errorf("the subscription that was made anew has the status %+v", s)
	}
	e.publish(message("k", "new"), message("h", "new, too"))
	e.wantOrder(r.fetch(plenty), driver.InOrder, "new", "new, too")
}

// A replay that is under way goes with its subscription: it does not belong to the next one of that
// name, also if a former holder still reads.
func dropSubscriptionEndsAReplay(e *env) {
	r, sent := e.settledOnes(6)
	e.replay(r, admin.Replay{}, 6)
	b := r.fetch(two)
	e.wantPayloads(b.Messages, payloads(sent[:2])...)
	e.dropSubscription(r)
	e.MustBe(r.Settle(e.ctx, delivered(b)...), penstock.ErrFenced, "Settle of a replay after DropSubscription")
	next := e.subscribe(driver.Subscribe{Start: driver.FromNow})
	e.MustBe(r.Settle(e.ctx, delivered(b)...), penstock.ErrFenced, "Settle of a replay after DropSubscription")
	next.want()
	e.wantReplaying(next, false)
	e.publish(message("k", "new"))
	next.settle(next.want("new")...)
	next.again().want()
}

func dropSubscriptionLeavesOthersAlone(e *env) {
	a, b := e.subscribe(driver.Subscribe{Subscription: "a"}), e.subscribe(driver.Subscribe{Subscription: "b"})
	e.publish(keyed("k", 0, 4)...)
	for _, r := range []*reader{a, b} {
		batch := r.fetch(plenty)
		r.judge(verdicts{"k0": dead("no"), "k1": refused(batch.Messages[1], soon), "k2": behind, "k3": behind}, batch)
	}
	e.dropSubscription(a)
	e.wantParked(b, 3, 1, 0)
	e.retry(b, e.deadLetters(b)...)
	c := &carrier{e: e, r: b, limit: plenty}
	c.until(4)
	e.publish(message("k", "k4"))
	c.until(5)
	b.again().want()
}

// One subscription had settled nothing, and the other had a replay before it.
func dropSubscriptionLetsReclaimGoOn(e *env) {
	for part, replays := range []bool{false, true} {
		if replays {
			e.retain(admin.Retention{Age: notInThisTest})
		}
		slow := e.subscribe(driver.Subscribe{Subscription: "slow"})
		r := e.read()
		floor := e.outboxStatus(outbox).Bytes
		e.settleBulk(r, part, 4)
		e.grows(floor)
		if replays {
			batches := slow.drain(driver.Limit{Messages: 10, Bytes: 1 << 20})
			slow.settle(batches...)
			e.replay(slow, admin.Replay{}, len(flatten(batches)))
			e.retain(admin.Retention{})
		}
		slow.close()
		e.dropSubscription(slow)
		e.shrinks(floor)
		e.publish(message("", "after"))
		r.settle(r.want("after")...)
		r.close()
	}
}
