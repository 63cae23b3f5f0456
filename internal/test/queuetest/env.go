package queuetest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

// env is one test: a database, and helpers that fail the test instead of
// returning errors.
type env struct {
	*suite.Env
	Instance
	features Features
	ctx      context.Context // ends with the test, or at its deadline
	q        fullQueue       // the one called queue
}

// fullQueue is the queue that every store has.
type fullQueue interface {
	driver.Queue
	driver.AckClaimer
	driver.Releaser
}

// queue is the name that tests use when the name does not matter.
const queue = "jobs"

func newEnv(t *testing.T, h Harness, order penstock.QueueOrder) *env {
	t.Helper()
	base := suite.NewEnv(t)
	e := &env{Env: base, Instance: h.open(t, order), features: h.Features, ctx: base.Context()}
	switch {
	case e.Store == nil || e.Begin == nil || e.Another == nil || e.Backdate == nil:
		t.Fatal("queuetest: Instance needs Store, Begin, Another and Backdate")
	case h.Features.Snapshots && e.Pin == nil:
		t.Fatal("queuetest: the feature Snapshots is declared but Instance.Pin is missing")
	case h.Features.Forward && (e.Forwarder == nil || e.Disturb == nil):
		t.Fatal("queuetest: the feature Forward is declared but Instance.Forwarder or Disturb is missing")
	case h.Features.WorkTx && e.WorkTx == nil:
		t.Fatal("queuetest: the feature WorkTx is declared but Instance.WorkTx is missing")
	}
	e.q = e.Store.DriverQueue(queue).(fullQueue)
	return e
}

// eventually asks cond again and again until it is true, and does the queue's
// housekeeping in between.
func (e *env) eventually(what string, cond func() bool) {
	e.Eventually(what, func() bool {
		e.maintain()
		return cond()
	})
}

func (e *env) maintain() {
	e.Must(e.q.Maintain(e.ctx), "Maintain")
}

// enqueue returns the ids.
func (e *env) enqueue(jobs ...penstock.NewJob) []int64 {
	made := suite.Get(e.q.Enqueue(e.ctx, jobs...)).Must(e, "Enqueue")
	suite.MustEqual(e, len(made), len(jobs), "ids of Enqueue")
	return idsOf(made)
}

func idsOf(made []penstock.Enqueued) []int64 {
	ids := make([]int64, len(made))
	for i := range made {
		ids[i] = made[i].ID
	}
	return ids
}

// claim leases up to n jobs of the group ” for longer than the test takes.
func (e *env) claim(n int) []penstock.Job {
	return e.claimAs(driver.Claim{Jobs: n})
}

func (e *env) claimAs(c driver.Claim) []penstock.Job {
	if c.Lease == 0 {
		c.Lease = suite.LongLease
	}
	jobs := suite.Get(e.q.Claim(e.ctx, c)).Must(e, "Claim")
	if len(jobs) > c.Jobs {
		e.Fatalf("a Claim of %d jobs returned %d", c.Jobs, len(jobs))
	}
	return jobs
}

// want claims more jobs than there are and fails unless it gets those with
// these payloads, in this order.
func (e *env) want(payloads ...string) []penstock.Job {
	jobs := e.claim(len(payloads) + 1)
	e.same(jobs, payloads...)
	return jobs
}

func (e *env) same(jobs []penstock.Job, want ...string) {
	suite.MustEqual(e, names(jobs), want, "claimed")
}

// collect claims until it has as many jobs as payloads, and fails unless they
// are these, in any order.
func (e *env) collect(payloads ...string) []penstock.Job {
	var jobs []penstock.Job
	e.eventually(fmt.Sprintf("%q are claimed", payloads), func() bool {
		jobs = append(jobs, e.claim(len(payloads)-len(jobs)+1)...)
		return len(jobs) >= len(payloads)
	})
	got := names(jobs)
	slices.Sort(got)
	slices.Sort(payloads)
	suite.MustEqual(e, got, payloads, "claimed")
	return jobs
}

func (e *env) ack(jobs ...penstock.Job) {
	held := suite.Get(e.q.Ack(e.ctx, leases(jobs)...)).Must(e, "Ack")
	e.sameLeases("Ack", held, jobs)
}

// ackClaim ends jobs and claims others with one call, after which jobs may be stored together.
func (e *env) ackClaim(acks []penstock.Job, c driver.Claim) []penstock.Job {
	c.Lease = suite.LongLease
	held, jobs, err := e.q.AckClaim(e.ctx, leases(acks), c)
	e.Must(err, "AckClaim")
	held = slices.DeleteFunc(held, func(lease int64) bool { return lease == driver.Full })
	e.sameLeases("AckClaim", held, acks)
	return jobs
}

// release gives jobs back, to run after a while, without an attempt being spent.
func (e *env) release(after time.Duration, jobs ...penstock.Job) {
	held := suite.Get(e.q.Release(e.ctx, after, leases(jobs)...)).Must(e, "Release")
	e.sameLeases("Release", held, jobs)
}

func (e *env) sameLeases(what string, held []int64, jobs []penstock.Job) {
	want := leases(jobs)
	slices.Sort(want)
	held = slices.Sorted(slices.Values(held))
	suite.MustEqual(e, held, want, "leases that %s returned", what)
}

// retry gives a job back and fails the test unless it will run again.
func (e *env) retry(job penstock.Job, after time.Duration, reason string) {
	dead := suite.Get(e.q.Retry(e.ctx, job.Lease, after, reason)).Must(e, "Retry")
	if dead {
		e.Fatalf("Retry of attempt %d made a dead letter", job.Attempt)
	}
}

func (e *env) set(s penstock.QueueSettings) {
	e.Must(e.Store.SetQueue(e.ctx, queue, s), "SetQueue")
}

func (e *env) status() admin.QueueStatus {
	return e.statusOf(queue)
}

func (e *env) statusOf(name string) admin.QueueStatus {
	all := suite.Get(e.Store.QueueStatus(e.ctx)).Must(e, "QueueStatus")
	i := slices.IndexFunc(all, func(s admin.QueueStatus) bool { return s.Queue == name })
	if i < 0 {
		e.Fatalf("QueueStatus does not have the queue %q", name)
	}
	return all[i]
}

// counts are how many jobs there are in each state.
type counts struct{ ready, running, delayed, waiting, dead, expired int64 }

func (e *env) wantCounts(want counts) {
	s := e.status()
	suite.Equal(e, counts{s.Ready, s.Running, s.Delayed, s.Waiting, s.DeadLetters, s.Expired}, want, "jobs of the status")
}

// left is how many jobs have not ended.
func (e *env) left() int64 {
	s := e.status()
	return s.Ready + s.Running + s.Delayed + s.Waiting
}

func (e *env) deadJobs(q admin.DeadJobQuery) []admin.DeadJob {
	q.Queue = queue
	return suite.Get(e.Store.DeadJobs(e.ctx, q)).Must(e, "DeadJobs")
}

// retryDead has n dead letters of those that q asks for tried again, discardDead deletes n.
func (e *env) retryDead(n int, q admin.DeadJobQuery) {
	q.Queue = queue
	suite.MustEqual(e, suite.Get(e.Store.RetryDeadJobs(e.ctx, q)).Must(e, "RetryDeadJobs"), n, "RetryDeadJobs of %+v", q)
}

func (e *env) discardDead(n int, q admin.DeadJobQuery) {
	q.Queue = queue
	suite.MustEqual(e, suite.Get(e.Store.DiscardDeadJobs(e.ctx, q)).Must(e, "DiscardDeadJobs"), n, "DiscardDeadJobs of %+v", q)
}

// expire ends a job's lease, as if its worker had died.
func (e *env) expire(j penstock.Job) {
	held := suite.Get(e.q.Extend(e.ctx, time.Millisecond, j.Lease)).Must(e, "Extend")
	e.sameLeases("Extend by less than is left", held, []penstock.Job{j})
}

// readsInLine fails the test if ten times as many jobs read many more than ten times as many entries.
func (e *env) readsInLine(of func(n int)) {
	reads := func(n int) float64 {
		before := e.Reads(e)
		of(n)
		return e.Reads(e) - before
	}
	few, many := reads(100), reads(1000)
	e.Logf("%.0f entries for 100 jobs, %.0f for 1000", few, many)
	if many > 15*few {
		e.Errorf("100 jobs read %.0f entries, 1000 read %.0f", few, many)
	}
}

// tx is a Tx that fails the test.
type tx struct{ suite.Open[Tx] }

func (e *env) begin() tx {
	return tx{suite.Begin(e.Env, e.Begin)}
}

func (t tx) enqueue(jobs ...penstock.NewJob) []int64 {
	made := suite.Get(t.Tx.Enqueue(t.Context(), queue, jobs...)).Must(t, "Enqueue in a transaction")
	return idsOf(made)
}

// job makes a job that its payload identifies.
func job(payload string) penstock.NewJob { return penstock.NewJob{Payload: []byte(payload)} }

func keyed(key, payload string) penstock.NewJob {
	return penstock.NewJob{Key: key, Payload: []byte(payload)}
}

// jobs makes n jobs with the payloads prefix0, prefix1, …
func jobs(prefix string, n int) []penstock.NewJob {
	all := make([]penstock.NewJob, n)
	for i := range all {
		all[i] = job(fmt.Sprint(prefix, i))
	}
	return all
}

func names(jobs []penstock.Job) []string {
	all := make([]string, len(jobs))
	for i, j := range jobs {
		all[i] = string(j.Payload)
	}
	return all
}

func leases(jobs []penstock.Job) []int64 {
	all := make([]int64, len(jobs))
	for i, j := range jobs {
		all[i] = j.Lease
	}
	return all
}
