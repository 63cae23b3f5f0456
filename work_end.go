package penstock

import (
	"context"
	"errors"
	"time"
)

// finish forgets a task whose end is durable.
func (w *worker) finish(t *task, how JobEnd) {
	w.mu.Lock()
	delete(w.held, t.job.Lease)
	w.mu.Unlock()
	w.Observer.Ended(t.job, how, t.took)
}

// ackLater hands a job that is done to the acking.
func (w *worker) ackLater(t *task) {
	w.mu.Lock()
	w.acks = append(w.acks, t)
	n := len(w.acks)
	w.mu.Unlock()
	if n == 1 || n == w.Batch {
		poke(w.done)
	}
}

// ackLoop writes down which jobs are done, many with one call: what comes
// while a call is under way goes with the next one. It ends when noMore
// is closed and everything is written, or with ctx.
func (w *worker) ackLoop(ctx context.Context, noMore <-chan struct{}) {
	for {
		select {
		case <-w.done:
		case <-noMore:
			w.ack(ctx)
			return
		case <-ctx.Done():
			return
		}
		t := time.NewTimer(w.AckEvery)
		for waited := false; !waited && !w.acksFull(); {
			select {
			case <-w.done:
			case <-t.C:
				waited = true
			case <-noMore:
				waited = true
			case <-ctx.Done():
				waited = true
			}
		}
		t.Stop()
		w.ack(ctx)
	}
}

func (w *worker) acksFull() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acks) >= w.Batch
}

// ack writes down what is done, and tries until it is written or ctx ends.
func (w *worker) ack(ctx context.Context) {
	var retry growing
	for {
		w.mu.Lock()
		tasks := w.acks[:min(len(w.acks), MaxClaim)]
		w.mu.Unlock()
		if len(tasks) == 0 {
			return
		}
		leases := make([]int64, len(tasks))
		for i, t := range tasks {
			leases[i] = t.job.Lease
		}
		call, cancel := context.WithTimeout(ctx, callTimeout)
		acked, err := w.q.Ack(call, leases...)
		cancel()
		if err == nil {
			w.mu.Lock()
			w.acks = w.acks[len(tasks):]
			w.mu.Unlock()
			w.acked(tasks, acked, retry.failures > 0)
			retry = growing{}
			poke(w.freed)
			continue
		}
		if w.permanent(err) {
			return
		}
		wait := retry.next()
		w.log.Warn("cannot write down that jobs are done; trying again", "err", err, "jobs", len(tasks), "in", wait)
		if !sleep(ctx, wait) {
			return
		}
	}
}

// acked finishes the tasks of a call that returned the leases that were held.
// After a call that failed, again says that one whose lease is gone may have
// been written by that one.
func (w *worker) acked(tasks []*task, leases []int64, again bool) {
	held := make(map[int64]bool, len(leases))
	for _, l := range leases {
		held[l] = true
	}
	for _, t := range tasks {
		if held[t.job.Lease] {
			w.finish(t, JobDone)
			continue
		}
		w.log.Warn("a job is done, but its lease was gone; unless an earlier call wrote it, it runs again", "job", t.job.ID, "attempt", t.job.Attempt, "earlier_call", again)
		w.finish(t, JobLost)
	}
}

// fail writes down that the handler failed, and tries until it is written or ctx
// ends. The slot stays in use, so that no more is claimed than can be ended.
func (w *worker) fail(ctx context.Context, t *task, failure error, interrupted bool) {
	var retry growing
	for {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		how, err := w.tell(call, t, failure, interrupted)
		cancel()
		switch {
		case err == nil:
			if how == JobFailed || how == JobDead {
				w.log.Warn("a job failed", "job", t.job.ID, "attempt", t.job.Attempt, "dead", how == JobDead, "err", failure)
			}
			w.finish(t, how)
			return
		case errors.Is(err, ErrLeaseLost):
			w.log.Warn("a job failed, but its lease was gone; unless an earlier call wrote it, it runs again", "job", t.job.ID, "attempt", t.job.Attempt, "earlier_call", retry.failures > 0, "err", failure)
			w.finish(t, JobLost)
			return
		case w.permanent(err):
			return
		}
		wait := retry.next()
		w.log.Warn("cannot write down that a job failed; trying again", "err", err, "job", t.job.ID, "in", wait)
		if !sleep(ctx, wait) {
			return
		}
	}
}

// tell makes the one call that ends a failed attempt.
func (w *worker) tell(ctx context.Context, t *task, failure error, interrupted bool) (JobEnd, error) {
	if IsPermanent(failure) {
		return JobDead, w.q.Bury(ctx, t.job.Lease, reason(failure))
	}
	after, asked := RetryDelay(failure)
	if !asked {
		after = -1 // the queue's own backoff
	}
	if interrupted { // it is not the job's fault
		if r, ok := w.q.(Releaser); ok {
			released, err := r.Release(ctx, t.job.Lease)
			if err == nil && len(released) == 0 {
				err = ErrLeaseLost
			}
			return JobReleased, err
		}
		after = 0
	}
	dead, err := w.q.Retry(ctx, t.job.Lease, max(after, -1), reason(failure))
	if dead {
		return JobDead, err
	}
	return JobFailed, err
}

// release gives back jobs that have not begun.
func (w *worker) release(ctx context.Context, tasks []*task) {
	if len(tasks) == 0 {
		return
	}
	r, ok := w.q.(Releaser)
	if !ok {
		w.log.Info("claimed jobs that have not begun come back when their leases end", "jobs", len(tasks), "lease", w.Lease)
		return
	}
	leases := make([]int64, len(tasks))
	for i, t := range tasks {
		leases[i] = t.job.Lease
	}
	for retry := (growing{}); ; {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		_, err := r.Release(call, leases...)
		cancel()
		if err == nil {
			for _, t := range tasks {
				w.Observer.Ended(t.job, JobReleased, 0)
			}
			return
		}
		wait := retry.next()
		if w.permanent(err) || !sleep(ctx, wait) {
			w.log.Warn("cannot give back jobs that have not begun; they come back when their leases end", "err", err, "jobs", len(tasks), "lease", w.Lease)
			return
		}
	}
}
