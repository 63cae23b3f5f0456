package queuetest

import (
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

var cancelCases = named("Cancel", cancelWaiting, cancelDelayed, cancelRunning, cancelBackFromTheDead, cancelContext)

// cancel cancels jobs and fails the test unless there were want.
func (e *env) cancel(want int, ids ...int64) {
	n := suite.Get(e.Store.CancelJobs(e.ctx, queue, ids...)).Must(e, "CancelJobs")
	suite.MustEqual(e, n, want, "CancelJobs of %d", ids)
}

func cancelWaiting(e *env) {
	ids := e.enqueue(jobs("a", 5)...)
	e.cancel(2, ids[0], ids[3], -1)
	e.cancel(0, ids[0])
	e.cancel(0)
	e.ack(e.want("a1", "a2", "a4")...)
	e.cancel(0, ids...)
	suite.Equal(e, len(e.deadJobs(admin.DeadJobQuery{})), 0, "dead letters of cancelled jobs")
}

func cancelDelayed(e *env) {
	ids := e.enqueue(after(time.Hour, "hour"), after(20*time.Millisecond, "never"), after(30*time.Millisecond, "a"), job("retried"))
	e.retry(e.claim(1)[0], time.Hour, "x")
	e.cancel(3, ids[0], ids[1], ids[3])
	e.ack(e.collect("a")...)
	suite.Equal(e, e.status().Delayed, 0, "delayed jobs of the status")
}

// The worker of a running job learns of it by its next Extend.
func cancelRunning(e *env) {
	ids := e.enqueue(jobs("a", 2)...)
	claimed := e.want("a0", "a1")
	e.cancel(1, ids[0])
	held := suite.Get(e.q.Extend(e.ctx, suite.LongLease, leases(claimed)...)).Must(e, "Extend")
	e.sameLeases("Extend after CancelJobs", held, claimed[1:])
	e.MustBe(suite.Err(e.q.Retry(e.ctx, claimed[0].Lease, 0, "x")), penstock.ErrLeaseLost, "Retry of a cancelled job")
	e.ack(claimed[1])
	e.maintain()
	e.want()
}

// A dead letter that was sent back is cancelled by the id that it has always had.
func cancelBackFromTheDead(e *env) {
	ids := e.enqueue(jobs("a", 3)...)
	for _, j := range e.want("a0", "a1", "a2") {
		e.Must(e.q.DeadLetter(e.ctx, j.Lease, "x"), "DeadLetter")
	}
	suite.Get(e.Store.RetryDeadJobs(e.ctx, admin.DeadJobQuery{Queue: queue})).Must(e, "RetryDeadJobs")
	e.cancel(1, ids[0])
	claimed := e.want("a1", "a2")
	e.cancel(1, ids[1])
	held := suite.Get(e.q.Ack(e.ctx, leases(claimed)...)).Must(e, "Ack")
	e.sameLeases("Ack after CancelJobs", held, claimed[1:])
	e.maintain()
	e.want()
}

func cancelContext(e *env) {
	e.enqueue(job("a"), job("b"))
	claimed := e.claim(1)
	ctx := cancelled(e.ctx)
	lease := claimed[0].Lease
	for what, err := range map[string]error{
		"Enqueue":     suite.Err(e.q.Enqueue(ctx, job("never"))),
		"Claim":       suite.Err(e.q.Claim(ctx, driver.Claim{Jobs: 1, Lease: suite.LongLease})),
		"Ack":         suite.Err(e.q.Ack(ctx, lease)),
		"Extend":      suite.Err(e.q.Extend(ctx, suite.LongLease, lease)),
		"Retry":       suite.Err(e.q.Retry(ctx, lease, 0, "")),
		"QueueStatus": suite.Err(e.Store.QueueStatus(ctx)),
		"DeadLetter":  e.q.DeadLetter(ctx, lease, ""),
		"Maintain":    e.q.Maintain(ctx),
		"CreateQueue": e.Store.CreateQueue(ctx, "never", penstock.FIFO),
		"DropQueue":   e.Store.DropQueue(ctx, queue),
	} {
		e.Fails(err, "%s with a context that has ended", what)
	}
	e.ack(claimed...)
	e.want("b")
}
