package queuetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testseed"
)

// The operations of randomWalk. Each calls the store and the model.

var groupNames = []string{"", "g"}

func (w *walk) operations() []func() {
	var all []func()
	add := func(weight int, f func()) {
		for range weight {
			all = append(all, f)
		}
	}
	add(4, w.enqueueSome)
	add(1, w.beginTx)
	add(2, w.enqueueTx)
	add(1, func() { w.endTx(true) })
	add(1, func() { w.endTx(w.rnd.IntN(3) == 0) })
	add(6, func() { w.claimSome(held, suite.LongLease) })
	add(2, func() { w.claimSome(mortal, time.Duration(1+w.rnd.IntN(20))*time.Millisecond) })
	add(4, func() { w.settleSome(w.ackOne) })
	add(2, func() { w.settleSome(w.retryOne) })
	add(1, func() { w.settleSome(w.deadLetterOne) })
	add(1, func() { w.settleSome(w.extendOne) })
	add(1, w.cancelSome)
	add(1, w.deadSome)
	add(1, w.pauseOrResume)
	add(2, func() { w.Must(w.queue().Maintain(w.ctx), "Maintain") })
	add(1, w.checkDead)
	add(1, w.checkGroups)
	return all
}

func (w *walk) store() driver.QueueStore { return w.stores[w.rnd.IntN(len(w.stores))] }
func (w *walk) queue() driver.Queue      { return w.store().DriverQueue(queue) }

// make invents jobs.
func (w *walk) make() []penstock.NewJob {
	batch := make([]penstock.NewJob, 1+w.rnd.IntN(5))
	for i := range batch {
		batch[i] = penstock.NewJob{
			Key:     []string{"", "", "a", "b", "c"}[w.rnd.IntN(5)],
			Group:   groupNames[w.rnd.IntN(2)],
			Payload: append([]byte(fmt.Sprintf("step %d job %d ", w.step, i)), testseed.Bytes(w.rnd, w.rnd.IntN(2000))...),
		}
		if batch[i].Key == "b" {
			batch[i].Group = "" // a key has one group here
		} else if batch[i].Key != "" {
			batch[i].Group = "g"
		}
		if w.rnd.IntN(4) == 0 {
			batch[i].Priority = w.rnd.IntN(4) - 2
		}
		if w.rnd.IntN(8) == 0 {
			batch[i].NotBefore = time.Now().Add(time.Duration(w.rnd.IntN(30)) * time.Millisecond)
		}
	}
	return batch
}

func (w *walk) track(ids []int64, batch []penstock.NewJob, f fate) []*tracked {
	var ts []*tracked
	for i, id := range ids {
		if w.byID[id] != nil {
			w.wrong(fmt.Sprintf("the id %d was given twice", id), w.byID[id])
		}
		t := &tracked{id: id, place: len(w.all), job: batch[i], attempt: 1, born: w.step}
		if t.note(w.step, string(unborn)); f == ready {
			w.commit(t)
		}
		w.all, w.byID[id], ts = append(w.all, t), t, append(ts, t)
	}
	return ts
}

func (w *walk) commit(t *tracked) {
	t.settled = w.step
	t.note(w.step, string(ready))
	if !t.job.NotBefore.IsZero() {
		t.moved = true
		t.note(w.step, string(resting))
	}
}

func (w *walk) enqueueSome() {
	batch := w.make()
	made := suite.Get(w.queue().Enqueue(w.ctx, batch...)).Must(w, "Enqueue")
	w.track(idsOf(made), batch, ready)
}

func (w *walk) beginTx() {
	if !w.features.ConcurrentWriters || len(w.open) == 4 {
		return
	}
	w.open = append(w.open, &walkTx{tx: w.begin()})
}

func (w *walk) enqueueTx() {
	if len(w.open) == 0 {
		return
	}
	t := w.open[w.rnd.IntN(len(w.open))]
	batch := w.make()
	t.jobs = append(t.jobs, w.track(t.enqueue(batch...), batch, unborn)...)
}

func (w *walk) endTx(commit bool) {
	if len(w.open) == 0 {
		return
	}
	i := w.rnd.IntN(len(w.open))
	t := w.open[i]
	w.open = slices.Delete(w.open, i, i+1)
	if !commit {
		t.Rollback()
		for _, j := range t.jobs {
			j.note(w.step, string(undone))
		}
		return
	}
	t.Commit()
	for _, j := range t.jobs {
		w.commit(j)
	}
}

func (w *walk) claimSome(as fate, lease time.Duration) {
	w.claimGroup(groupNames[w.rnd.IntN(2)], 1+w.rnd.IntN(6), as, lease)
}

func (w *walk) claimGroup(group string, n int, as fate, lease time.Duration) []penstock.Job {
	listed := suite.Get(w.queue().(driver.GroupFinder).ReadyGroups(w.ctx, nil, groupNames[w.rnd.IntN(2)], 100)).Must(w, "ReadyGroups")
	jobs := suite.Get(w.queue().Claim(w.ctx, driver.Claim{Group: group, Jobs: n, Lease: lease})).Must(w, "Claim")
	for _, j := range jobs { // what is due, or waits for a key, may have become ready in between
		if t := w.byID[j.ID]; t != nil && t.fate == ready && !t.moved && t.job.Key == "" && !slices.Contains(listed, group) {
			w.wrong(fmt.Sprintf("job %d was claimed, and the ready groups were %q", t.id, listed), t)
		}
	}
	if len(jobs) > n {
		w.Fatalf("step %d: a claim of %d jobs returned %d", w.step, n, len(jobs))
	}
	w.take(jobs, group, as)
	return jobs
}

// settleSome ends some of the running jobs.
func (w *walk) settleSome(f func(*tracked) bool) {
	for _, t := range w.all {
		if (t.fate == held || t.fate == mortal) && w.rnd.IntN(3) == 0 {
			w.settleOne(t, f)
		}
	}
}

// settleOne calls f, which reports whether the lease was still held.
func (w *walk) settleOne(t *tracked, f func(*tracked) bool) {
	was := t.fate
	if !f(t) && was != mortal {
		w.wrong(fmt.Sprintf("the lease of job %d was lost", t.id), t)
	}
}

func (w *walk) ackOne(t *tracked) bool {
	leases := suite.Get(w.queue().Ack(w.ctx, t.lease)).Must(w, "Ack")
	if len(leases) == 1 {
		t.begun = false
		t.note(w.step, string(ended))
	}
	return len(leases) == 1
}

func (w *walk) retryOne(t *tracked) bool {
	after := time.Duration(w.rnd.IntN(3)*w.rnd.IntN(15)) * time.Millisecond
	asked := time.Now()
	isDead, err := w.queue().Retry(w.ctx, t.lease, after, "retried")
	if errors.Is(err, penstock.ErrLeaseLost) {
		return false
	}
	w.Must(err, "Retry")
	if isDead {
		w.wrong(fmt.Sprintf("Retry made a dead letter of job %d", t.id), t)
	}
	t.moved = true
	t.notUntil = asked.Add(after / 2) // the database's clock may differ a little
	t.note(w.step, string(resting))
	return true
}

func (w *walk) deadLetterOne(t *tracked) bool {
	err := w.queue().DeadLetter(w.ctx, t.lease, "given up")
	if errors.Is(err, penstock.ErrLeaseLost) {
		return false
	}
	w.Must(err, "DeadLetter")
	t.begun = false
	t.note(w.step, string(dead))
	return true
}

func (w *walk) extendOne(t *tracked) bool {
	leases := suite.Get(w.queue().Extend(w.ctx, suite.LongLease, t.lease)).Must(w, "Extend")
	if len(leases) == 1 {
		t.note(w.step, string(held))
	}
	return len(leases) == 1
}

func (w *walk) cancelSome() {
	var chosen []*tracked
	var ids []int64
	for _, t := range w.all {
		if t.alive() && w.rnd.IntN(20) == 0 {
			chosen, ids = append(chosen, t), append(ids, t.id)
		}
	}
	n := suite.Get(w.store().CancelJobs(w.ctx, queue, ids...)).Must(w, "CancelJobs")
	if n != len(chosen) {
		w.wrong(fmt.Sprintf("CancelJobs of %d says %d, want %d", ids, n, len(ids)), chosen...)
	}
	for _, t := range chosen {
		t.begun = false
		t.note(w.step, string(withdrawn))
	}
}

// deadSome sends some dead letters back or discards them.
func (w *walk) deadSome() {
	q := admin.DeadJobQuery{Queue: queue}
	var chosen []*tracked
	for _, t := range w.all {
		if t.fate == dead && w.rnd.IntN(2) == 0 {
			chosen, q.IDs = append(chosen, t), append(q.IDs, t.id)
		}
	}
	if len(chosen) == 0 {
		return
	}
	f, what, then := w.store().RetryDeadJobs, "RetryDeadJobs", resting
	if w.rnd.IntN(3) == 0 {
		f, what, then = w.store().DiscardDeadJobs, "DiscardDeadJobs", withdrawn
	}
	n := suite.Get(f(w.ctx, q)).Must(w, what)
	if n != len(chosen) {
		w.wrong(fmt.Sprintf("%s of %d says %d, want %d", what, q.IDs, n, len(chosen)), chosen...)
	}
	for _, t := range chosen {
		t.moved = true
		t.note(w.step, string(then))
	}
}

func (w *walk) pauseOrResume() {
	if !w.paused && w.rnd.IntN(3) > 0 {
		return // most of the time it runs
	}
	w.paused = !w.paused
	w.Must(w.store().SetQueue(w.ctx, queue, penstock.QueueSettings{Paused: &w.paused}), "SetQueue")
}
