package queuetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

var barrierCases = slices.Concat(
	named("Barrier", barrierOpensOnce, barrierOneJob, barrierSealedFirstOrLast, barrierEmpty,
		barrierEveryEnd, barrierNotAnEnd, barrierDeadWaits, barrierDeadOfSeveral, barrierDeadRuns, barrierDeadCancels, barrierAddedFromWithin,
		barrierBulk, barrierDuplicates, barrierNested, barrierSeveral, barrierKeysAndOptions, barrierRollback, barrierRefused, barrierAtOnce, barrierLastOfAClaimFirst),
	needing(Features{Unique: true}, named("Barrier", barrierUnique, barrierBehindALateOne)),
	needing(Features{Reads: true}, named("Barrier", barrierReadsEachOnce)),
	messageCases,
	[]testCase{{Name: "EveryEndLIFO", Run: barrierEveryEnd, Other: true}},
)

func init() {
	for i := range barrierCases {
		barrierCases[i].Needs.Barriers = true
	}
}

func (e *env) barrier() int64 {
	return suite.Get(e.q.(driver.BarrierQueue).Barrier(e.ctx)).Must(e, "Barrier")
}

func (e *env) seal(b int64) {
	e.Must(e.q.(driver.BarrierQueue).Seal(e.ctx, b), "Seal")
}

func holder(b int64, payload string) penstock.NewJob {
	return penstock.NewJob{Holds: b, Payload: []byte(payload)}
}

func waiter(payload string, barriers ...int64) penstock.NewJob {
	return penstock.NewJob{WaitsFor: barriers, Payload: []byte(payload)}
}

func onDead(o penstock.OnDead, j penstock.NewJob) penstock.NewJob {
	j.OnDead = o
	return j
}

// deaden makes dead letters of jobs.
func (e *env) deaden(jobs ...penstock.Job) {
	for _, j := range jobs {
		e.Must(e.q.DeadLetter(e.ctx, j.Lease, "no good"), "DeadLetter")
	}
}

// The jobs that wait run when the last one has ended, once, and before that they wait. A job that waits keeps its headers, but for those of barriers.
func barrierOpensOnce(e *env) {
	b := e.barrier()
	e.enqueue(holder(b, "a"), holder(b, "b"), holder(b, "c"))
	last := waiter("done", b)
	last.Headers, last.Kind = map[string]string{"h": "1"}, "k"
	e.enqueue(last, waiter("done too", b))
	e.seal(b)
	jobs := e.want("a", "b", "c")
	e.wantCounts(counts{running: 3, waiting: 2})
	for _, j := range jobs {
		e.want()
		e.ack(j)
	}
	done := e.want("done", "done too")
	if h := done[0].Headers; len(h) != 2 || h["h"] != "1" || done[0].Kind() != "k" || done[1].Headers != nil {
		e.Errorf("the headers are %v and %v", h, done[1].Headers)
	}
	e.ack(done...)
	e.seal(b) // again: nothing more
	e.want()
}

func barrierOneJob(e *env) {
	b := e.barrier()
	ids := e.enqueue(holder(b, "a"), waiter("done", b))
	e.seal(b)
	e.retryDead(0, admin.DeadJobQuery{IDs: ids}) // no delay
	e.ack(e.want("a")...)
	e.want("done")
}

// It opens after its seal, whether the jobs have ended before or end then. A job that comes to wait later runs at once.
func barrierSealedFirstOrLast(e *env) {
	for _, first := range []bool{true, false} {
		b := e.barrier()
		e.enqueue(holder(b, "a"), waiter("done", b))
		if first {
			e.seal(b)
		}
		e.ack(e.want("a")...)
		if !first {
			e.want()
			e.enqueue(holder(b, "b"))
			e.ack(e.want("b")...)
			e.want()
			e.seal(b)
		}
		e.ack(e.want("done")...)
		for range 2 {
			e.enqueue(waiter("late", b), waiter("later", b))
			e.ack(e.want("late", "later")...)
		}
	}
}

func barrierEmpty(e *env) {
	b := e.barrier()
	e.enqueue(waiter("done", b))
	e.want()
	e.seal(b)
	e.want("done")
}

// Each end of a job counts: an ack, alone, with others or with the next claim, a cancel wherever the job is, an expiry, a discard.
func barrierEveryEnd(e *env) {
	later := func(j penstock.NewJob) penstock.NewJob {
		j.NotBefore = time.Now().Add(time.Hour)
		return j
	}
	for _, c := range []struct {
		name string
		end  func(b int64, sealed func())
	}{
		{"ack", func(b int64, sealed func()) {
			e.enqueue(holder(b, "a"), holder(b, "b"), holder(b, "c"))
			sealed()
			e.ack(e.collect("a", "b", "c")...)
		}},
		{"ack with a claim", func(b int64, sealed func()) {
			jobs := make([]penstock.NewJob, 20)
			for i := range jobs {
				jobs[i] = holder(b, fmt.Sprint(i))
			}
			e.enqueue(jobs...)
			sealed()
			e.ack(e.ackClaim(e.claim(10), driver.Claim{Jobs: 10})...)
		}},
		{"cancel", func(b int64, sealed func()) {
			ids := e.enqueue(holder(b, "runs"), later(holder(b, "later")))
			e.want("runs")
			ids = append(ids, e.enqueue(holder(b, "ready"))...)
			sealed()
			e.cancel(len(ids), ids...)
		}},
		{"deadline", func(b int64, sealed func()) {
			late := holder(b, "late")
			late.Deadline = time.Now().Add(-time.Hour)
			e.enqueue(late, late)
			sealed()
		}},
		{"discard", func(b int64, sealed func()) {
			e.enqueue(holder(b, "a"))
			sealed()
			e.deaden(e.want("a")...)
			e.want()
			suite.Get(e.Store.DiscardDeadJobs(e.ctx, admin.DeadJobQuery{Queue: queue})).Must(e, "DiscardDeadJobs")
		}},
	} {
		b := e.barrier()
		e.enqueue(waiter(c.name, b))
		c.end(b, func() { e.seal(b) })
		e.ack(e.collect(c.name)...)
	}
}

// What gives a job back does not end it.
func barrierNotAnEnd(e *env) {
	b := e.barrier()
	e.enqueue(holder(b, "a"), waiter("done", b))
	e.seal(b)
	e.retry(e.want("a")[0], 0, "again")
	e.claimAs(driver.Claim{Jobs: 1, Lease: time.Millisecond}) // its worker dies
	e.release(0, e.collect("a")...)
	a := e.collect("a")
	e.want()
	e.ack(a...)
	e.want("done")
}

// A dead letter keeps a barrier closed until it was retried with success, or discarded.
func barrierDeadWaits(e *env) {
	b := e.barrier()
	e.enqueue(holder(b, "a"), holder(b, "b"), waiter("done", b))
	e.seal(b)
	e.deaden(e.want("a", "b")...)
	e.want()
	for _, again := range []string{"a", "b"} {
		dead := e.deadJobs(admin.DeadJobQuery{})
		i := slices.IndexFunc(dead, func(d admin.DeadJob) bool { return string(d.Job.Payload) == again })
		suite.Get(e.Store.RetryDeadJobs(e.ctx, admin.DeadJobQuery{Queue: queue, IDs: []int64{dead[i].Job.ID}})).Must(e, "RetryDeadJobs")
		if again == "a" { // it dies once more
			e.deaden(e.collect("a")...)
			e.want()
			suite.Get(e.Store.DiscardDeadJobs(e.ctx, admin.DeadJobQuery{Queue: queue, IDs: []int64{dead[i].Job.ID}})).Must(e, "DiscardDeadJobs")
			e.want()
			continue
		}
		e.ack(e.collect("b")...)
	}
	e.want("done")
}

// A job waits for a barrier whose last job is dead, also if another one that it waits for opens.
func barrierDeadOfSeveral(e *env) {
	b, open := e.barrier(), e.barrier()
	e.enqueue(holder(b, "bad"), holder(open, "good"), waiter("done", b, open))
	e.seal(b)
	e.seal(open)
	jobs := e.want("bad", "good")
	e.deaden(jobs[0])
	e.ack(jobs[1])
	e.want()
	suite.Get(e.Store.DiscardDeadJobs(e.ctx, admin.DeadJobQuery{Queue: queue, IDs: []int64{jobs[0].ID}})).Must(e, "DiscardDeadJobs")
	e.want("done")
}

// Of a job with OnDeadRun a dead letter counts as an end. The barrier stays closed for others, and opens for them when it was retried; the job has run by then.
func barrierDeadRuns(e *env) {
	b := e.barrier()
	e.enqueue(holder(b, "a"), holder(b, "b"), waiter("waits", b), onDead(penstock.OnDeadRun, waiter("runs", b)))
	jobs := e.want("a", "b")
	e.deaden(jobs[0])
	e.want()
	e.ack(jobs[1])
	e.want()
	e.seal(b)
	e.ack(e.want("runs")...)
	e.enqueue(onDead(penstock.OnDeadRun, waiter("runs as well", b)))
	e.ack(e.want("runs as well")...)
	suite.Get(e.Store.RetryDeadJobs(e.ctx, admin.DeadJobQuery{Queue: queue})).Must(e, "RetryDeadJobs")
	e.enqueue(onDead(penstock.OnDeadRun, waiter("waits for the retry", b)))
	e.ack(e.want("a")...)
	e.want("waits", "waits for the retry")
}

// A job with OnDeadCancel becomes a dead letter with the first of those that it waits for, and so does one that waits for it. When all were retried they have run.
func barrierDeadCancels(e *env) {
	b, next := e.barrier(), e.barrier()
	second := onDead(penstock.OnDeadCancel, waiter("second", b))
	second.Holds = next
	e.enqueue(holder(b, "a"), holder(b, "b"), second, onDead(penstock.OnDeadCancel, waiter("third", next)), waiter("after all", next))
	e.seal(b)
	e.seal(next)
	jobs := e.want("a", "b")
	e.deaden(jobs[1])
	e.want()
	dead := e.deadJobs(admin.DeadJobQuery{})
	if len(dead) != 3 || string(dead[1].Job.Payload) != "second" || string(dead[2].Job.Payload) != "third" || !strings.Contains(dead[1].Failures[0].Err, "cancelled") {
		e.Fatalf("the dead letters are %+v", dead)
	}
	e.enqueue(onDead(penstock.OnDeadCancel, waiter("late", b)))
	suite.Equal(e, len(e.deadJobs(admin.DeadJobQuery{})), 4, "dead letters, with that of the late one")
	e.ack(jobs[0])
	suite.Get(e.Store.RetryDeadJobs(e.ctx, admin.DeadJobQuery{Queue: queue})).Must(e, "RetryDeadJobs")
	e.ack(e.collect("b", "second", "third", "late")...)
	e.want("after all")
}

// A job that holds a barrier may add others, also after the seal.
func barrierAddedFromWithin(e *env) {
	b := e.barrier()
	e.enqueue(holder(b, "0"), waiter("done", b))
	e.seal(b)
	for i := range 3 {
		parent := e.want(fmt.Sprint(i))
		e.enqueue(holder(b, fmt.Sprint(i+1)))
		e.ack(parent...)
	}
	e.ack(e.want("3")...)
	e.want("done")
}

func barrierBulk(e *env) {
	const n = 1500
	b := e.barrier()
	jobs := make([]penstock.NewJob, n)
	for i := range jobs {
		jobs[i] = holder(b, fmt.Sprint(i))
	}
	e.enqueue(append(jobs, waiter("done", b))...)
	e.seal(b)
	for ended := 0; ended < n; {
		got := e.claim(400)
		if ended += len(got); len(got) == 0 || slices.Contains(names(got), "done") {
			e.Fatalf("claimed %q after %d jobs", names(got), ended)
		}
		e.ack(got...)
	}
	e.want("done")
}

// A duplicate holds nothing, and waits for nothing.
func barrierDuplicates(e *env) {
	b := e.barrier()
	first, last := holder(b, "a"), waiter("done", b)
	first.DedupKey, last.DedupKey = "d", "last"
	e.enqueue(first, last)
	e.enqueue(last, first)
	e.enqueue(first, first, last)
	e.seal(b)
	e.ack(e.want("a")...)
	e.enqueue(first, last) // the barrier is open
	e.ack(e.want("done")...)
	e.enqueue(last, first)
	e.want()
}

// The same of unique jobs. One that is replaced keeps what it holds and waits for.
func barrierUnique(e *env) {
	b := e.barrier()
	first := unique("u", "a")
	first.Holds = b
	e.enqueue(first, holder(b, "b"), waiter("done", b))
	e.enqueue(first)
	e.enqueue(first, first)
	e.seal(b)
	e.enqueue(replacing("u", "a again"))
	jobs := e.want("a again", "b")
	e.ack(jobs[0])
	e.want()
	e.ack(jobs[1])
	e.ack(e.want("done")...)

	b = e.barrier()
	waits := unique("w", "waits")
	waits.WaitsFor = []int64{b}
	id := e.twin("the first", 0, waits)
	e.twin("a second", id, waits)
	later := replacing("w", "replaced")
	later.NotBefore = time.Now().Add(time.Hour)
	e.twin("a replacement", id, later)
	e.want()
	e.seal(b)
	e.ack(e.want("replaced")...)
}

// A job that waits for a barrier waits for it also behind a late one of its unique key, which has ended for it. So does the barrier of a job that holds it.
func barrierBehindALateOne(e *env) {
	late := unique("u", "late")
	late.Deadline = passed()
	for _, together := range []bool{true, false} {
		b := e.barrier()
		waits, holds := unique("u", "waits"), unique("u", "holds")
		waits.WaitsFor, holds.Holds = []int64{b}, b
		enqueue := func(j penstock.NewJob) {
			if together {
				e.enqueue(late, j)
				return
			}
			e.enqueue(late)
			e.enqueue(j)
		}
		enqueue(waits)
		e.want()
		e.seal(b)
		e.ack(e.collect("waits")...)
		b = e.barrier()
		holds.Holds = b
		enqueue(holds)
		e.enqueue(waiter("last", b))
		e.seal(b)
		e.ack(e.collect("holds")...)
		e.ack(e.collect("last")...)
	}
	e.eventually("nothing is left", func() bool { e.want(); return e.left() == 0 })
}

// A job that waits for one barrier may hold another.
func barrierNested(e *env) {
	outer := e.barrier()
	for i := range 2 {
		inner := e.barrier()
		end := waiter(fmt.Sprint("end of ", i), inner)
		end.Holds = outer
		e.enqueue(holder(inner, fmt.Sprint(i)), end)
		e.seal(inner)
	}
	e.enqueue(waiter("done", outer))
	e.seal(outer)
	for _, j := range e.want("0", "1") {
		e.ack(j)
		e.ack(e.want("end of " + string(j.Payload))...)
	}
	e.want("done")
}

// A job waits for all of its barriers.
func barrierSeveral(e *env) {
	a, b, c := e.barrier(), e.barrier(), e.barrier()
	e.enqueue(holder(a, "a"), holder(b, "b"), holder(c, "c"), waiter("ab", a, b), waiter("abc", c, a, b))
	for _, x := range []int64{a, b, c} {
		e.seal(x)
	}
	jobs := e.want("a", "b", "c")
	e.ack(jobs[0])
	e.want()
	e.ack(jobs[1])
	e.ack(e.want("ab")...)
	e.ack(jobs[2])
	e.want("abc")
}

// A job that waits for a barrier has no place among those of its key yet. It keeps its key, group, priority and options.
func barrierKeysAndOptions(e *env) {
	b := e.barrier()
	waits := waiter("waits", b)
	waits.Key, waits.Priority, waits.Group = "k", -1, "g"
	waits.MaxAttempts = 3
	held := holder(b, "held")
	held.Key, held.Group = "k", "g"
	e.enqueue(waits, held)
	e.seal(b)
	claim := driver.Claim{Jobs: 5, Group: "g"}
	jobs := e.claimAs(claim)
	e.same(jobs, "held")
	e.ack(jobs...)
	jobs = e.claimAs(claim)
	e.same(jobs, "waits")
	if j := jobs[0]; j.Key != "k" || j.Priority != -1 || j.MaxAttempts() != waits.MaxAttempts || j.Attempt != 1 {
		e.Errorf("the job is %+v", j)
	}
}

// A transaction that rolls back holds nothing, and waits for nothing.
func barrierRollback(e *env) {
	b := e.barrier()
	tx := e.begin()
	tx.enqueue(holder(b, "gone"), waiter("gone too", b))
	tx.Rollback()
	e.enqueue(holder(b, "a"), waiter("done", b))
	tx = e.begin()
	tx.enqueue(holder(b, "b"))
	tx.Commit()
	e.seal(b)
	e.ack(e.want("a", "b")...)
	e.want("done")
}

func barrierRefused(e *env) {
	e.Must(e.Store.CreateQueue(e.ctx, "other", penstock.FIFO), "CreateQueue")
	other := suite.Get(e.Store.DriverQueue("other").(driver.BarrierQueue).Barrier(e.ctx)).Must(e, "Barrier")
	open := e.barrier()
	e.seal(open)
	for name, b := range map[string]int64{"an open barrier": open, "another queue's": other, "none": 1 << 40} {
		e.Fails(suite.Err(e.q.Enqueue(e.ctx, holder(b, "a"))), "to hold %s", name)
		if name == "an open barrier" {
			continue
		}
		e.Fails(suite.Err(e.q.Enqueue(e.ctx, waiter("a", b))), "to wait for %s", name)
		e.Fails(e.q.(driver.BarrierQueue).Seal(e.ctx, b), "to seal %s", name)
	}
	e.want()
	tx := e.begin()
	for _, wrong := range []penstock.NewJob{holder(1<<40, "b"), waiter("b", 1<<40)} {
		_, err := tx.Tx.Enqueue(e.ctx, queue, job("a"), wrong)
		if _, is := errors.AsType[*penstock.FieldError](err); !is { // one ends no transaction, and nothing is written
			e.Fails(err, "Enqueue in a transaction with a barrier that is none")
			tx.Rollback()
			tx = e.begin()
		}
	}
	tx.Commit()
	e.want()
	suite.Equal(e, e.left(), 0, "jobs left")
	e.Fails(suite.Err(e.Store.DriverQueue("none").(driver.BarrierQueue).Barrier(e.ctx)), "Barrier of a queue that is missing")
	e.BadField("SetSchedule", e.Store.SetSchedule(e.ctx, penstock.Schedule{Queue: queue, Name: "s", Cron: "@daily", Job: holder(open, "a")}), "holds")
}

// Ten times as many jobs that hold a barrier, and that wait for it, are ten times as many reads.
func barrierReadsEachOnce(e *env) {
	e.readsInLine(func(n int) {
		b := e.barrier()
		batch := make([]penstock.NewJob, 2*n)
		for i := range n {
			batch[i], batch[n+i] = holder(b, "held"), waiter("waits", b)
		}
		e.enqueue(batch...)
		e.seal(b)
		for range 10 {
			e.ack(e.claim(n / 10)...)
		}
		for ran := 0; ran < n; {
			waited := e.claim(n)
			if len(waited) == 0 || string(waited[0].Payload) != "waits" {
				e.Fatalf("after %d jobs that wait the next are %q", ran, names(waited))
			}
			e.ack(waited...)
			ran += len(waited)
		}
	})
}

// Of jobs that were claimed together the last one ends first, and then all others with one call: the end of each counts once.
func barrierLastOfAClaimFirst(e *env) {
	const together = 9
	b, other := e.barrier(), e.barrier()
	for range together - 1 {
		e.enqueue(holder(other, "other"))
	}
	e.enqueue(holder(b, "last"))
	jobs := e.ackClaim(nil, driver.Claim{Jobs: together})
	e.enqueue(holder(b, "one more"), waiter("done", b))
	e.seal(b)
	e.ack(jobs[together-1])
	e.ack(jobs[:together-1]...)
	e.ack(e.want("one more")...)
	e.ack(e.want("done")...)
}

// Many workers end the jobs of some barriers at once: each opens once, no job that waits runs before, and each message is published once.
func barrierAtOnce(e *env) {
	const barriers, jobs, workers = 4, 60, 6
	bs := make([]int64, barriers)
	for i := range bs {
		bs[i] = e.barrier()
	}
	var all []penstock.NewJob
	for i := range jobs {
		all = append(all, holder(bs[i%barriers], "held"))
	}
	e.enqueue(append(all, waiter("all", bs...))...)
	var read func() ([]penstock.Message, []string)
	if e.features.WaitingMessages {
		read = e.reads()
		e.announce("all", "", bs...)
	}
	for _, b := range bs {
		e.enqueue(waiter("one", b))
		if read != nil {
			e.announce("one", "", b)
		}
		e.seal(b)
	}
	var mu sync.Mutex
	ended := map[string]int{}
	e.Must(e.workers(workers, cancelled(e.ctx), func(_ int, q driver.Queue, j penstock.Job) error {
		mu.Lock()
		ended[string(j.Payload)]++
		if string(j.Payload) == "all" && ended["held"] != jobs {
			e.Errorf("the last job came after %d of %d", ended["held"], jobs)
		}
		mu.Unlock()
		return suite.Err(q.Ack(e.ctx, j.Lease))
	})(), "a worker")
	if read != nil {
		_, published := read()
		e.sameSet(published, append(slices.Repeat([]string{"one"}, barriers), "all"))
	}
	if s := e.status(); ended["held"] != jobs || ended["one"] != barriers || ended["all"] != 1 || s.Waiting != 0 {
		e.Errorf("ended %v, the status is %+v", ended, s)
	}
}
