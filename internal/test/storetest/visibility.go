package storetest

import (
	"slices"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testseed"
)

var visibilityCases = slices.Concat(
	named("Visibility", visibilityCommittedIsDelivered, visibilityUncommittedIsNeverSeen, visibilitySurvivesClose),
	needing(Features{ConcurrentWriters: true}, named("Visibility", visibilityLateCommitIsDelivered, visibilityLateCommitDuringPaging, visibilityManyLateCommits, visibilityUnrelatedWriterDelaysNothing)),
)

func visibilityCommittedIsDelivered(e *env) {
	r := e.read()
	r.want()
	e.publish(messages("a", 3)...)
	r.settle(r.want("a0", "a1", "a2")...)
	r.want()

	tx := e.begin()
	tx.publish(messages("b", 2)...)
	tx.publish(message("", "b2"))
	tx.Commit()
	r.settle(r.want("b0", "b1", "b2")...)
	r = r.again()
	r.want()

	e.publish() // nothing is published, and nothing is wrong
	e.Must(r.Settle(e.ctx), "Settle of nothing")
}

func visibilityUncommittedIsNeverSeen(e *env) {
	r := e.read()
	never := e.begin()
	never.publish(messages("never", 2)...)
	r.want()
	never.Rollback()
	late := e.begin()
	late.publish(messages("late", 2)...)
	r.want()
	r.want()
	late.Commit()
	r.settle(r.want("late0", "late1")...)
	r.again().want()
}

// A transaction draws its number (or timestamp) and commits when others with
// higher ones have been read and settled. The relay that settled past the late message may be gone, and housekeeping has run:
// then only the durable cursor can know that something is missing.
func visibilityLateCommitIsDelivered(e *env) {
	r := e.read()
	for _, restarts := range []bool{false, true} {
		late := e.begin()
		late.publish(message("k", "late"))
		for range 3 {
			e.publish(messages("early", 3)...)
			r.settle(r.want("early0", "early1", "early2")...)
			if restarts {
				e.maintain()
				r = r.again()
			}
		}
		r.want()
		late.Commit()
		if restarts {
			r.want("late")
			e.maintain()
			r = r.again()
		}
		r.settle(r.want("late")...)
		e.maintain()
		r = r.again()
		r.want()
	}
}

// A backlog is read page by page, and a transaction that was open when the
// first page was read commits between two pages.
func visibilityLateCommitDuringPaging(e *env) {
	late, later := e.begin(), e.begin()
	late.publish(message("k", "late"))
	later.publish(message("k2", "later"))
	backlog := messages("m", 20)
	e.publish(backlog...)
	r := e.read()
	limit := driver.Limit{Messages: 3, Bytes: plenty.Bytes}
	first := r.fetch(limit)
	late.Commit()
	r.settle(first)
	r = r.again() // resume in the middle of the backlog
	second := r.fetch(limit)
	later.Commit()
	rest := r.drain(limit)
	got := slices.Concat(first.Messages, second.Messages, flatten(rest))
	e.wantPayloads(got, append(payloads(backlog), "late", "later")...)
	r.settle(append(rest, second)...)
	r.again().want()
}

// Transactions commit in another order than they published, with readings,
// settlements and rollbacks in between.
func visibilityManyLateCommits(e *env) {
	rnd := e.Random(0)
	r := e.read()
	var want []string
	var got []penstock.Message
	for round := range testseed.Steps(5) {
		txs := make([]tx, 8)
		for i := range txs {
			txs[i] = e.begin()
			txs[i].publish(messages(string(rune('a'+round%26))+string(rune('a'+i)), 3)...)
		}
		for _, i := range rnd.Perm(len(txs)) {
			if rnd.IntN(4) == 0 {
				txs[i].Rollback()
			} else {
				txs[i].Commit()
				want = append(want, payloads(messages(string(rune('a'+round%26))+string(rune('a'+i)), 3))...)
			}
			batches := r.drain(driver.Limit{Messages: 2, Bytes: plenty.Bytes})
			got = append(got, flatten(batches)...)
			if r.settle(batches...); rnd.IntN(4) == 0 {
				r = r.again()
			}
		}
	}
	e.wantPayloads(got, want...)
	r.again().want()
}

// A transaction that writes elsewhere and stays open must not hold back the
// messages of others, nor lose those it publishes in the end.
func visibilityUnrelatedWriterDelaysNothing(e *env) {
	r := e.read()
	unrelated := e.begin()
	suite.Get(unrelated.Tx.Count(e.ctx, "unrelated")).Must(e, "Count")
	for range 3 {
		e.publish(messages("m", 3)...)
		r.settle(r.want("m0", "m1", "m2")...)
		e.maintain()
		r = r.again()
		r.want()
	}
	unrelated.publish(message("", "at last"))
	unrelated.Commit()
	r.want("at last")
}

func visibilitySurvivesClose(e *env) {
	r := e.read()
	e.publish(messages("a", 2)...)
	r.settle(r.want("a0", "a1")...)
	e.publish(messages("b", 2)...)
	r.close()
	e.Must(e.Store.Close(), "Close")
	other := e.Another(e)
	e.subscribeOn(other, driver.Subscribe{}).want("b0", "b1")
	e.Fails(e.Store.Publish(e.ctx, outbox, message("", "x")), "Publish on a closed store")
}
