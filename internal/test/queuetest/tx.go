package queuetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/penstock/penstock/internal/test/suite"
)

var txCases = slices.Concat(
	named("Tx", txCommitShows, txRollbackForgets),
	needing(Features{ConcurrentWriters: true}, named("Tx", txLateCommit, txManyLateCommits, txLateCommitOfAKey, txOpenWriterDelaysNothing)),
	[]testCase{{Name: "LateCommitLIFO", Run: txLateCommit, Needs: Features{ConcurrentWriters: true}, Other: true}},
)

func txCommitShows(e *env) {
	t := e.begin()
	ids := t.enqueue(job("a"), job("b"))
	t.Commit()
	claimed := e.want("a", "b")
	if len(ids) != 2 || claimed[0].ID != ids[0] || claimed[1].ID != ids[1] {
		e.Errorf("Enqueue in a transaction returned %d, the jobs have %d and %d", ids, claimed[0].ID, claimed[1].ID)
	}
}

func txRollbackForgets(e *env) {
	t := e.begin()
	t.enqueue(job("never"), keyed("k", "never"), after(time.Millisecond, "never"))
	t.Rollback()
	t = e.begin()
	t.enqueue(after(time.Millisecond, "due"))
	t.Commit()
	e.enqueue(job("a"), keyed("k", "b"))
	e.ack(e.collect("a", "b", "due")...)
	e.maintain()
	e.want()
}

// A transaction that enqueued first commits when everything after it is
// gone: its job is found.
func txLateCommit(e *env) {
	t := e.begin()
	t.enqueue(job("late"))
	for i := range 20 {
		e.enqueue(jobs("a", 25)...)
		claimed := e.claim(25)
		suite.MustEqual(e, len(claimed), 25, "round %d: claimed next to an open transaction", i)
		e.ack(claimed...)
		e.maintain()
	}
	e.want()
	t.Commit()
	e.ack(e.collect("late")...)
	e.want()
}

func txManyLateCommits(e *env) {
	rnd := e.Random(0)
	var open []tx
	var want, got []string
	for i := range 60 {
		t := e.begin()
		name := fmt.Sprint("m", i)
		t.enqueue(job(name))
		want = append(want, name)
		if open = append(open, t); len(open) > 5 {
			k := rnd.IntN(len(open))
			open[k].Commit()
			open = append(open[:k], open[k+1:]...)
		}
		claimed := e.claim(1 + rnd.IntN(3))
		got = append(got, names(claimed)...)
		e.ack(claimed...)
	}
	for _, t := range open {
		t.Commit()
	}
	e.eventually("all jobs are claimed", func() bool {
		claimed := e.claim(10)
		got = append(got, names(claimed)...)
		e.ack(claimed...)
		return len(got) >= len(want)
	})
	e.want()
	e.sameSet(got, want)
}

// A key's lower id commits while a later job of the key runs: it waits for that
// one and goes before the ones behind.
func txLateCommitOfAKey(e *env) {
	t := e.begin()
	t.enqueue(keyed("k", "first"))
	e.enqueue(keyed("k", "second"), keyed("k", "third"))
	second := e.want("second")
	t.Commit()
	for range 3 {
		e.maintain()
		e.want()
	}
	e.ack(second...)
	e.ack(e.collect("first")...)
	e.ack(e.collect("third")...)
}

func txOpenWriterDelaysNothing(e *env) {
	t := e.begin()
	t.enqueue(job("open"), keyed("k", "open2"))
	e.enqueue(job("a"), job("b"))
	claimed := e.want("a", "b")
	e.maintain()
	e.retry(claimed[0], 0, "again")
	e.ack(claimed[1])
	e.ack(e.collect("a")...)
	t.Rollback()
}
