package storetest

import (
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

var statusCases = named("Status", statusOrderedByName, statusUnread, statusNumbers, statusLease, statusSink, statusUpTo)

func (e *env) status() []admin.OutboxStatus {
	return suite.Get(e.Store.Status(e.ctx)).Must(e, "Status")
}

func (e *env) outboxStatus(name string) admin.OutboxStatus {
	for _, o := range e.status() {
		if o.Outbox == name {
			return o
		}
	}
	e.Fatalf("Status does not show the outbox %q", name)
	return admin.OutboxStatus{}
}

func (e *env) subscriptionStatus(req driver.Subscribe) admin.SubscriptionStatus {
	for _, s := range e.outboxStatus(req.Outbox).Subscriptions {
		if s.Subscription == req.Subscription {
			return s
		}
	}
	e.Fatalf("Status does not show the subscription %q", req.Subscription)
	return admin.SubscriptionStatus{}
}

func statusOrderedByName(e *env) {
	for _, name := range []string{"zebra", "apple", "Middle", "b"} {
		e.Must(e.Store.CreateOutbox(e.ctx, name), "CreateOutbox")
	}
	var names []string
	for _, o := range e.status() {
		names = append(names, o.Outbox)
	}
	if !slices.IsSorted(names) || len(names) != 5 { // by bytes, not by some locale
		e.Errorf("Status shows %q, want five in order", names)
	}
}

func statusUnread(e *env) {
	if age := e.outboxStatus(outbox).UnreadAge; age != 0 {
		e.Errorf("an empty outbox has a message that is %s old", age)
	}
	e.publish(messages("a", 2)...)
	e.Eventually("messages without a subscription grow older", func() bool { return e.outboxStatus(outbox).UnreadAge > 0 })
	e.read()
	if age := e.outboxStatus(outbox).UnreadAge; age != 0 {
		e.Errorf("with a subscription the outbox itself has a message that is %s old", age)
	}
}

func statusNumbers(e *env) {
	r := e.read()
	want := func(when string, backlog, settled, deadLetters int64) {
		s := e.subscriptionStatus(r.req)
		if s.Backlog != backlog || s.Settled != settled || s.DeadLetters != deadLetters {
			e.Errorf("%s: backlog %d, settled %d, dead letters %d; want %d, %d, %d",
				when, s.Backlog, s.Settled, s.DeadLetters, backlog, settled, deadLetters)
		}
		if backlog == 0 && s.OldestAge != 0 {
			e.Errorf("%s: without a backlog the oldest is %s old", when, s.OldestAge)
		}
		if backlog > 0 {
			e.Eventually("the backlog grows older", func() bool { return e.subscriptionStatus(r.req).OldestAge > 0 })
		}
	}
	want("at first", 0, 0, 0)
	e.publish(messages("a", 6)...)
	want("published", 6, 0, 0)
	first, second, third := r.fetch(two), r.fetch(two), r.fetch(two)
	want("fetched", 6, 0, 0)
	r.settle(first)
	want("one batch settled", 4, 2, 0)
	e.Must(r.Settle(e.ctx, driver.Settled{Batch: second, Verdicts: []driver.Verdict{{}, dead("no")}}), "Settle")
	want("one message dead", 2, 4, 1)
	r.settle(third)
	want("all settled", 0, 6, 1)
	e.maintain()
	want("after housekeeping", 0, 6, 1)
	r = r.again()
	want("by another reader", 0, 6, 1)

	tx := e.begin()
	tx.publish(messages("b", 3)...)
	want("not committed", 0, 6, 1)
	tx.Commit()
	want("committed", 3, 6, 1)
	r.settle(r.drain(plenty)...)
	want("settled again", 0, 9, 1)
	e.Eventually("the rate is more than 0", func() bool { return e.subscriptionStatus(r.req).Rate > 0 })

	fresh := e.subscribe(driver.Subscribe{Subscription: "fresh", Start: driver.FromNow})
	e.publish(message("", "c"))
	for _, req := range []driver.Subscribe{r.req, fresh.req} {
		suite.Equal(e, e.subscriptionStatus(req).Backlog, 1, "backlog of %s", req.Subscription)
	}
	fresh.settle(fresh.want("c")...)
	suite.Equal(e, e.subscriptionStatus(fresh.req).Settled, 1, "settled by the new subscription since its creation")
}

func statusLease(e *env) {
	r := e.subscribe(driver.Subscribe{Holder: "host \"one\"/1"})
	s := e.subscriptionStatus(r.req)
	suite.Equal(e, s.Holder, r.req.Holder, "holder")
	if in := time.Until(s.LeaseUntil); in < suite.LongLease/2 || in > 2*suite.LongLease {
		e.Errorf("the lease ends in %s, want about %s", in, suite.LongLease)
	}
	if ago := time.Since(s.HolderSince); ago.Abs() > time.Hour {
		e.Errorf("it is the holder since %s, want about now", s.HolderSince)
	}
	e.publish(message("", "m"))
	r.settle(r.fetch(plenty))
	e.Must(r.Renew(e.ctx), "Renew")
	if since := e.subscriptionStatus(r.req).HolderSince; !since.Equal(s.HolderSince) {
		e.Errorf("after Renew and Settle it is the holder since %s, want %s as before", since, s.HolderSince)
	}
	r.close()
	if s := e.subscriptionStatus(r.req); s.Holder != "" || !s.HolderSince.IsZero() {
		e.Errorf("after Close the holder is %q since %s, want nobody", s.Holder, s.HolderSince)
	}
	before := s.Epoch
	r = e.subscribe(driver.Subscribe{Lease: suite.ShortLease})
	if next := e.subscriptionStatus(r.req); next.Epoch <= before || next.Holder != "" && next.HolderSince.Before(s.HolderSince) {
		e.Errorf("the epoch is %d and was %d, since %s and was since %s: it must grow with every holder", next.Epoch, before, next.HolderSince, s.HolderSince)
	}
	e.Eventually("an expired lease has no holder", func() bool { return e.subscriptionStatus(r.req).Holder == "" })
}

// Status shows how the sink is, as the holder of the lease said, not an earlier one.
func statusSink(e *env) {
	first := e.subscribe(driver.Subscribe{Holder: "first"})
	reporter, ok := first.Source.(driver.SinkReporter)
	if !ok {
		e.Fatalf("%T is no driver.SinkReporter", first.Source)
	}
	want := func(when string, down time.Time, why string) {
		if got := e.subscriptionStatus(first.req); !got.SinkDown.Equal(down) || got.SinkError != why {
			e.Errorf("%s: down since %v (%q), want %v (%q)", when, got.SinkDown, got.SinkError, down, why)
		}
	}
	down := time.Now().Add(-time.Minute).Truncate(time.Millisecond).UTC()
	long := strings.Repeat("ü", driver.MaxSinkErrorBytes/2)
	want("at first", time.Time{}, "")
	e.Must(reporter.ReportSink(e.ctx, down, long), "ReportSink")
	want("down", down, long)
	e.Must(first.Renew(e.ctx), "Renew")
	want("renewed", down, long)
	e.Must(reporter.ReportSink(e.ctx, time.Time{}, ""), "ReportSink")
	want("back", time.Time{}, "")
	e.Must(reporter.ReportSink(e.ctx, down, "no route"), "ReportSink")
	first.close()
	want("nobody has the lease", time.Time{}, "")
	second := e.subscribe(driver.Subscribe{Holder: "second"})
	want("the next holder has said nothing", time.Time{}, "")
	e.Must(second.Source.(driver.SinkReporter).ReportSink(e.ctx, down, "again"), "ReportSink")
	want("the next holder", down, "again")
}

// A store that counts up to a limit names the figures that may be higher, and no others.
func statusUpTo(e *env) {
	counter, ok := e.Store.(driver.StatusCounter)
	if !ok {
		e.Skip("this store counts everything")
	}
	r := e.read()
	e.publish(keyed("k", 0, 20)...)
	batches := r.drain(plenty)
	for most, want := range map[int]int64{3: 3, 100: 20} {
		all := suite.Get(counter.StatusUpTo(e.ctx, most)).Must(e, "StatusUpTo")
		s := all[0].Subscriptions[0]
		if more := slices.Contains(s.AtLeast, "backlog"); s.OldestAge <= 0 || more && s.Backlog != want || !more && s.Backlog != 20 {
			e.Errorf("counted up to %d there are %d messages in the backlog, at least %v, the oldest %s old", most, s.Backlog, s.AtLeast, s.OldestAge)
		}
	}
	causes, ok := e.Store.(driver.CauseCounter)
	if !ok {
		e.Fatal("the store has no DeadLetterCauses")
	}
	r.deadLetter("no such exchange", batches...)
	got := suite.Get(causes.DeadLetterCauses(e.ctx, query(r.req))).Must(e, "DeadLetterCauses")
	if len(got) != 1 || got[0].Letters != 20 || got[0].Error != "no such exchange" || got[0].First.After(got[0].Last) || got[0].First.IsZero() {
		e.Errorf("the causes are %+v", got)
	}
}
