package work

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// finish forgets a task whose end is durable.
func (w *worker) finish(t *task, how End) {
	w.mu.Lock()
	w.forget(t)
	w.mu.Unlock()
	w.tell(t, how, t.took)
}

// tell is the last step for a task. It frees what its job points to, though others of its claim continue.
func (w *worker) tell(t *task, how End, took time.Duration) {
	w.ended.count(how)
	w.Observer.Ended(*t.job, how, took)
	if (how == Done || how == Settled) && w.log.Enabled(context.Background(), slog.LevelDebug) { // asked first: arguments cost
		w.log.Debug("a job is done", "job", t.job.ID, "attempt", t.job.Attempt, "after", took, kindOf(t.job), traced(t.job))
	}
	*t.job = penstock.Job{}
}

// ackLoop writes down which jobs are done, many with one call. Jobs that end while a call is
// running go with the next one. It ends when noMore is closed and everything is written, or with
// ctx.
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
		for wait := w.ackDue(); wait > 0; wait = w.ackDue() {
			t := time.NewTimer(wait)
			select {
			case <-w.done:
			case <-t.C:
			case <-noMore:
				w.ack(ctx)
				return
			case <-ctx.Done():
				return
			}
			t.Stop()
		}
		w.ack(ctx)
	}
}

// ackDue is how long ended jobs may still wait for others. It is 0 if there are many, or none
// because a claim has taken them along.
func (w *worker) ackDue() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.acks) == 0 || len(w.acks) >= w.Batch {
		return 0
	}
	return w.AckEvery - time.Since(w.acks[0].done)
}

// carryAt is how many ended jobs make it worthwhile for a claim to carry them.
const carryAt = 32

// carries reports whether the next claim should carry ended jobs. Carrying makes the claim slower,
// whatever the number of jobs. So jobs that ended just now go with a later claim. They do not wait
// if a job of their key may wait for them, or if a limit blocks more. It does if a claim brought none, or said so and
// there is one group. The next claim carries nothing if the last one failed, because acking must not wait until
// claims work again.
func (w *worker) carries(none bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acks) > 0 && !w.noClaims && (none || w.full && w.turns.finder == nil || len(w.acks) >= min(carryAt, w.Batch) || time.Since(w.acks[0].done) >= w.AckEvery/2 ||
		slices.ContainsFunc(w.acks, func(t *task) bool { return t.job.Key != "" }))
}

// takeAcks returns the ended jobs that are not written yet. The caller writes them, or returns them.
func (w *worker) takeAcks() []*task {
	w.mu.Lock()
	defer w.mu.Unlock()
	tasks := w.acks[:min(len(w.acks), driver.MaxClaim)]
	w.acks = w.acks[len(tasks):]
	w.writing += len(tasks)
	return tasks
}

// returnAcks takes back acks of a failed call, which may or may not have been written.
func (w *worker) returnAcks(tasks []*task) {
	w.mu.Lock()
	for _, t := range tasks {
		t.tried = true
	}
	w.writing -= len(tasks)
	w.acks = slices.Concat(tasks, w.acks)
	w.mu.Unlock()
	notify(w.done)
}

func leasesOf(tasks []*task) []int64 {
	leases := make([]int64, len(tasks))
	for i, t := range tasks {
		leases[i] = t.job.Lease
	}
	return leases
}

// ack writes ended jobs. It retries until they are written or ctx ends.
func (w *worker) ack(ctx context.Context) {
	var retry growing
	for {
		tasks := w.takeAcks()
		if len(tasks) == 0 {
			return
		}
		call, cancel := context.WithTimeout(ctx, callTimeout)
		acked, err := w.q.Ack(call, leasesOf(tasks)...)
		cancel()
		if err == nil {
			w.acked(tasks, acked)
			retry = growing{}
			notify(w.freed)
			continue
		}
		w.returnAcks(tasks)
		if w.permanent(err) {
			return
		}
		wait := retry.next()
		w.fails(acking, err, "jobs", len(tasks))
		if !sleep(ctx, wait) {
			return
		}
	}
}

// acked finishes the tasks of a call that returned the leases that were held.
func (w *worker) acked(tasks []*task, leases []int64) {
	var held map[int64]bool // nil: all of them
	if len(leases) < len(tasks) {
		held = make(map[int64]bool, len(leases))
		for _, l := range leases {
			held[l] = true
		}
	}
	w.works(acking)
	w.mu.Lock()
	w.writing -= len(tasks)
	for _, t := range tasks {
		if held != nil && !held[t.job.Lease] {
			t.notesGone(t.tried)
		}
		w.forget(t)
	}
	w.mu.Unlock()
	for _, t := range tasks {
		if held != nil && !held[t.job.Lease] {
			if t.gone {
				w.logRemoved(t)
			} else {
				w.log.Warn("a job is done, but its lease was gone; unless an earlier call wrote it, it runs again", "job", t.job.ID, "attempt", t.job.Attempt, "earlier_call", t.tried, kindOf(t.job))
			}
			t.how = Lost
		}
		w.tell(t, t.how, t.took)
	}
}

// notesGone notes whether a lease that is lost was lost before its time. earlier: a call before this one may have ended the job. The caller holds the lock.
func (t *task) notesGone(earlier bool) {
	t.gone = t.gone || !t.lost && !earlier && time.Now().Before(t.until)
}

// logRemoved logs that the lease of a job was lost before its time.
func (w *worker) logRemoved(t *task, more ...any) {
	w.log.Warn("a job was removed while it ran, as job cancel does", append([]any{"job", t.job.ID, "attempt", t.job.Attempt, "after", t.took, kindOf(t.job)}, more...)...)
}

// fail writes down that the handler failed. It retries until that is written or ctx ends. The slot
// stays in use, to keep claims from outrunning the writing of ends.
func (w *worker) fail(ctx context.Context, t *task, failure error, interrupted bool) {
	var retry growing
	for {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		how, err := w.endFailed(call, t, failure, interrupted)
		cancel()
		switch {
		case err == nil:
			w.works(failing)
			w.warnOf(t, failure)
			if how == Failed || how == Dead {
				w.log.Warn("a job failed", "job", t.job.ID, "attempt", t.job.Attempt, "dead", how == Dead, "err", failure, retryIn(how, failure), kindOf(t.job), traced(t.job))
			}
			w.finish(t, how)
			return
		case errors.Is(err, penstock.ErrLeaseLost):
			w.works(failing)
			w.mu.Lock()
			t.notesGone(retry.failures > 0)
			gone := t.gone
			w.mu.Unlock()
			if gone {
				w.logRemoved(t, "err", failure)
			} else {
				w.log.Warn("a job failed, but its lease was gone; unless an earlier call wrote it, it runs again", "job", t.job.ID, "attempt", t.job.Attempt, "earlier_call", retry.failures > 0, "err", failure, kindOf(t.job))
			}
			w.finish(t, Lost)
			return
		case w.permanent(err):
			return
		}
		wait := retry.next()
		w.fails(failing, err, "job", t.job.ID)
		if !sleep(ctx, wait) {
			return
		}
	}
}

// warnOf notes that no handler began, if that is why a job ended. It logs the first job of each such kind, for up to 100 kinds.
func (w *worker) warnOf(t *task, failure error) {
	e, ok := errors.AsType[*noHandlerError](failure)
	if !ok {
		return
	}
	t.took = 0 // no handler began
	w.mu.Lock()
	if e.after == 0 { // others that look for jobs meet it first
		w.yields = time.Now().Add(w.PollMax + w.PollMax/4)
	}
	told := w.strange[e.kind] || len(w.strange) == 100
	if !told {
		w.strange[e.kind] = true
	}
	w.mu.Unlock()
	if !told {
		w.log.Warn("no handler for a job's kind in this worker: such jobs are left to other workers, and are dead letters after give_up; "+
			"add a handler, or enqueue with one of kinds", "kind", e.kind, "kinds", fmt.Sprintf("%q", e.kinds[:min(len(e.kinds), 20)]), "give_up", e.giveUp)
	}
}

// endFailed makes the one call that ends a failed attempt.
func (w *worker) endFailed(ctx context.Context, t *task, failure error, interrupted bool) (End, error) {
	if penstock.IsPermanent(failure) {
		return Dead, w.q.DeadLetter(ctx, t.job.Lease, reason(failure))
	}
	after, asked := penstock.RetryDelay(failure)
	if !asked {
		after = -1 // the queue's own backoff
	}
	end := Failed
	if pause, ok := SnoozeDelay(failure); ok {
		end, after = Snoozed, pause
	} else if hold, ok := errors.AsType[holdGroup](failure); ok {
		held, err := w.holdGroup(ctx, t, hold)
		if err != nil {
			return Snoozed, err
		}
		if end, after = Snoozed, hold.d; held {
			after = 0 // with its group
		}
	} else if e, ok := errors.AsType[*noHandlerError](failure); ok {
		end, after = Released, spread(e.after)
	} else if interrupted { // it is not the job's fault
		end, after = Released, 0
	}
	if r, ok := w.q.(driver.Releaser); ok && end != Failed {
		released, err := r.Release(ctx, max(after, 0), t.job.Lease)
		if err == nil && len(released) == 0 {
			err = penstock.ErrLeaseLost
		}
		return end, err
	}
	dead, err := w.q.Retry(ctx, t.job.Lease, max(after, -1), reason(failure))
	if dead {
		return Dead, err
	}
	return Failed, err
}

// retryIn is when a job that failed runs again, for the log, if its handler chose that. The queue's backoff is the database's.
func retryIn(how End, failure error) slog.Attr {
	if after, asked := penstock.RetryDelay(failure); asked && how == Failed {
		return slog.Duration("retry_in", after)
	}
	return slog.Attr{}
}

// holdGroup holds the group of a job, before the job is given back, and reports whether it is held.
func (w *worker) holdGroup(ctx context.Context, t *task, hold holdGroup) (held bool, err error) {
	q, ok := w.q.(driver.GroupHolder)
	text := strings.ToValidUTF8(strings.ReplaceAll(hold.reason, "\x00", ""), "")
	text = strings.ToValidUTF8(text[:min(len(text), penstock.MaxReasonBytes)], "")
	if !ok || hold.d <= 0 || penstock.ValidateHold(t.job.Group, hold.d, text) != nil {
		return false, nil
	}
	if err := q.HoldGroup(ctx, t.job.Group, hold.d, text); err != nil {
		return false, err
	}
	w.log.Warn("a handler holds the group of its job: none of its jobs starts for this time", "group", t.job.Group, "for", hold.d, "reason", text, "job", t.job.ID)
	w.release(ctx, w.dropGroup(t.job.Group)) // those that were claimed ahead
	return true, nil
}

// release gives back jobs that have not begun.
func (w *worker) release(ctx context.Context, tasks []*task) {
	if len(tasks) == 0 {
		return
	}
	r, ok := w.q.(driver.Releaser)
	if !ok {
		w.log.Info("claimed jobs that have not begun come back when their leases end", "jobs", len(tasks), "lease", w.Lease)
		return
	}
	leases := leasesOf(tasks)
	for retry := (growing{}); ; {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		_, err := r.Release(call, 0, leases...)
		cancel()
		if err == nil {
			for _, t := range tasks {
				w.tell(t, Released, 0)
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

// kindOf is the kind of a job, for the log, or nothing.
func kindOf(job *penstock.Job) slog.Attr {
	if kind := job.Kind(); kind != "" {
		return slog.String("kind", kind)
	}
	return slog.Attr{}
}

// traced is the trace that a job belongs to, for the log, or nothing.
func traced(job *penstock.Job) slog.Attr {
	if parts := strings.Split(job.Headers["traceparent"], "-"); len(parts) >= 4 {
		return slog.String("trace_id", parts[1])
	}
	return slog.Attr{}
}
