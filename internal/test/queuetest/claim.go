package queuetest

import (
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

var claimCases = named("Claim", claimEnqueueClaimAck, claimEmptyQueue, claimAcrossProcesses, claimGroupsAreLinesOfTheirOwn,
	claimReleaseSpendsNoAttempt, claimReleaseForAWhile)

func claimEnqueueClaimAck(e *env) {
	ids := e.enqueue(jobs("a", 3)...)
	for i := 1; i < len(ids); i++ {
		if ids[i] <= ids[i-1] {
			e.Fatalf("Enqueue returned the ids %d, want them to rise", ids)
		}
	}
	before := time.Now()
	claimed := e.want("a0", "a1", "a2")
	for i, j := range claimed {
		if j.ID != ids[i] || j.Attempt != 1 || j.Lease == 0 || j.CreatedAt.IsZero() || j.CreatedAt.After(before.Add(time.Hour)) {
			e.Errorf("claimed %+v, want id %d and attempt 1, a lease and a time of creation", j, ids[i])
		}
		if left := time.Until(j.LeaseUntil); left < suite.LongLease/2 || left > 2*suite.LongLease {
			e.Errorf("the lease of %s ends in %s", suite.LongLease, left)
		}
	}
	e.ack(claimed...)
	e.want()
	e.eventually("nothing is left", func() bool { return e.left() == 0 })
	e.sameLeases("a second Ack", suite.Get(e.q.Ack(e.ctx, leases(claimed)...)).Must(e, "a second Ack"), nil)
}

func claimEmptyQueue(e *env) {
	e.want()
	e.maintain()
	e.want()
	held := suite.Get(e.q.Ack(e.ctx)).Must(e, "Ack of nothing")
	e.sameLeases("Ack of nothing", held, nil)
	held = suite.Get(e.q.Extend(e.ctx, time.Second)).Must(e, "Extend of nothing")
	e.sameLeases("Extend of nothing", held, nil)
	e.enqueue()
	e.want()
}

func claimAcrossProcesses(e *env) {
	other := e.Another(e).DriverQueue(queue)
	suite.Get(other.Enqueue(e.ctx, job("a"), job("b"))).Must(e, "Enqueue by another process")
	mine := e.claim(1)
	e.same(mine, "a")
	theirs := suite.Get(other.Claim(e.ctx, driver.Claim{Jobs: 10, Lease: suite.LongLease, Worker: "other"})).Must(e, "Claim by another process")
	e.same(theirs, "b")
	held := suite.Get(other.Ack(e.ctx, mine[0].Lease)).Must(e, "Ack by another process")
	e.sameLeases("Ack by another process", held, mine)
	e.ack(theirs...)
}

func claimGroupsAreLinesOfTheirOwn(e *env) {
	e.enqueue(
		penstock.NewJob{Group: "acme", Payload: []byte("acme0")}, job("none0"),
		penstock.NewJob{Group: "globex", Payload: []byte("globex0")}, penstock.NewJob{Group: "acme", Payload: []byte("acme1")}, job("none1"))
	acme := e.claimAs(driver.Claim{Group: "acme", Jobs: 10})
	e.same(acme, "acme0", "acme1")
	suite.Equal(e, acme[0].Group, "acme", "group of a job of acme")
	e.want("none0", "none1")
	e.same(e.claimAs(driver.Claim{Group: "globex", Jobs: 10}), "globex0")
	e.same(e.claimAs(driver.Claim{Group: "Acme", Jobs: 10}))
	e.retry(acme[0], 0, "again")
	var again []penstock.Job
	e.eventually("the job is back in its group", func() bool {
		again = e.claimAs(driver.Claim{Group: "acme", Jobs: 10})
		e.want() // and in no other
		return len(again) > 0
	})
	e.same(again, "acme0")
}

func claimReleaseSpendsNoAttempt(e *env) {
	ids := e.enqueue(keyed("k", "k0"), keyed("k", "k1"), job("a"))
	claimed := e.want("k0", "a")
	e.ack(claimed[1])
	held := suite.Get(e.q.Release(e.ctx, 0, leases(claimed)...)).Must(e, "Release")
	e.sameLeases("Release", held, claimed[:1])
	again := e.collect("k0")
	if again[0].ID != ids[0] || again[0].Attempt != 1 || again[0].Lease == claimed[0].Lease {
		e.Errorf("after Release the job is %+v, want id %d, attempt 1 and another lease", again[0], ids[0])
	}
	e.sameLeases("Ack of a released lease", suite.Get(e.q.Ack(e.ctx, claimed[0].Lease)).Must(e, "Ack of a released lease"), nil)
	e.ack(again...)
	e.ack(e.collect("k1")...)
}

// A job that is released for a while keeps its place in its key, also before its second attempt.
func claimReleaseForAWhile(e *env) {
	const while = 200 * time.Millisecond
	e.enqueue(keyed("k", "k0"), keyed("k", "k1"), job("a"))
	claimed := e.want("k0", "a")
	for attempt := range 2 {
		start := time.Now()
		e.release(while, claimed...)
		claimed = e.collect("a", "k0")
		if took := time.Since(start); took < while/2 {
			e.Errorf("jobs that were to run after %s ran after %s", while, took)
		}
		for _, j := range claimed {
			suite.Equal(e, j.Attempt, attempt+1, "after a Release for a while, the attempt of %q", j.Payload)
			e.retry(j, 0, "again")
		}
		claimed = e.collect("a", "k0")
	}
	e.release(suite.LongLease, claimed...)
	e.maintain()
	e.want()
	if s := e.status(); s.Delayed != 2 || s.Waiting+s.Ready != 1 || s.Running != 0 {
		e.Errorf("the status is %+v, want 2 jobs delayed and 1 behind its key", s)
	}
}
