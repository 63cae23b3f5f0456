package work

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/penstock/penstock"
)

// enqueue queues the jobs of a claim that began at start, and starts as many as there are slots for. Jobs whose group a handler has held since then are
// given back.
func (w *worker) enqueue(handling, writing context.Context, jobs []penstock.Job, start, until time.Time) {
	w.Observer.Claimed(len(jobs))
	w.mu.Lock()
	defer w.mu.Unlock()
	over := time.Now().Add(w.Lease)
	tasks := make([]task, len(jobs)) // one allocation: jobs point to their payloads, tasks to jobs
	var held []*task
	for i := range tasks {
		t := &tasks[i]
		t.job, t.until, t.over = &jobs[i], until, over
		t.ctx.parent, t.ctx.queue, t.ctx.log, t.ctx.job = handling, w.q, w.log, &jobs[i]
		if at, ok := w.holds[t.job.Group]; ok && at.After(start) {
			held = append(held, t)
			continue
		}
		w.hold(t)
		w.queued = append(w.queued, t)
	}
	for i := 0; i < len(jobs) && w.busy < w.Concurrency; i++ {
		w.openSlot(handling, writing)
	}
	if held != nil {
		w.slots.Go(func() { w.release(writing, held) })
	}
}

// openSlot makes a goroutine work until nothing is queued. It prefers one at rest, whose stack has
// grown to the handler's needs, and otherwise starts a new one. The caller holds the lock.
func (w *worker) openSlot(handling, writing context.Context) {
	w.busy++
	if w.resting > 0 {
		w.resting--
		w.opened <- struct{}{} // has room for every slot
		return
	}
	w.slots.Go(func() {
		for {
			w.work(handling, writing)
			if !w.rest() {
				return
			}
		}
	})
}

// work is the loop of an open slot.
func (w *worker) work(handling, writing context.Context) {
	// Deferred, because a handler may end its goroutine (runtime.Goexit).
	defer w.closeSlot(handling, writing)
	now := time.Now()
	for t := w.next(now); t != nil; t = w.next(now) {
		now = w.do(handling, writing, t, now)
	}
}

// rest waits until the slot is opened again; false means that it will not be.
func (w *worker) rest() bool {
	w.mu.Lock()
	w.resting++
	w.mu.Unlock()
	select {
	case <-w.opened:
		return true
	case <-w.closed:
		return false
	}
}

func (w *worker) closeSlot(handling, writing context.Context) {
	w.mu.Lock()
	w.busy--
	w.over = true
	if len(w.queued) > 0 && !w.stopping { // they came after the slot's last look
		w.openSlot(handling, writing)
	}
	w.mu.Unlock()
	notify(w.freed)
}

// next takes the next job to begin, nil if there is none. It gives up those whose leases have ended for sure: the process stood
// still, and they may run elsewhere.
func (w *worker) next(now time.Time) *task {
	w.mu.Lock()
	var late []*task
	for !w.stopping && len(w.queued) > 0 && !now.Before(w.queued[0].over) {
		late = append(late, w.queued[0])
		w.lose(w.queued[0])
	}
	t := w.take()
	w.mu.Unlock()
	for _, t := range late {
		w.tell(t, Lost, 0)
	}
	return t
}

// take is next, with the lock.
func (w *worker) take() *task {
	if w.stopping || len(w.queued) == 0 {
		return nil
	}
	t := w.queued[0]
	w.queued = w.queued[1:]
	t.begun = true
	w.handlers.Add(1)
	if w.wanted() > 0 {
		notify(w.freed)
	}
	return t
}

// dropGroup removes the jobs of a group that a handler has held and that have not begun, and returns them. A claim under way may bring others.
func (w *worker) dropGroup(group string) (dropped []*task) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.holds, func(_ string, at time.Time) bool { return time.Since(at) > callTimeout+w.Lease })
	w.holds[group] = time.Now()
	w.queued = slices.DeleteFunc(slices.Clone(w.queued), func(t *task) bool {
		if t.job.Group != group {
			return false
		}
		w.forget(t)
		dropped = append(dropped, t)
		return true
	})
	return dropped
}

// dropQueued keeps more jobs from starting and returns those that have not started.
func (w *worker) dropQueued() []*task {
	w.mu.Lock()
	defer w.mu.Unlock()
	queued := w.queued
	w.stopping, w.queued = true, nil
	close(w.closed)
	for _, t := range queued {
		w.forget(t)
	}
	return queued
}
