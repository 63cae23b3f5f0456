package work

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/penstock/penstock"
)

// beatLoop extends the leases of all held tasks at every third of a lease, with one call, until
// ctx ends.
func (w *worker) beatLoop(ctx context.Context) {
	var retry growing
	for wait := w.Lease / 3; sleep(ctx, wait); {
		if err := w.beat(ctx); err != nil {
			if w.permanent(err) || ctx.Err() != nil {
				return
			}
			wait = min(retry.next(), max(w.Lease/10, time.Millisecond))
			w.fails(extending, err)
			continue
		}
		w.works(extending)
		retry, wait = growing{}, w.Lease/3
	}
}

// beat extends all leases and gives up the jobs whose lease is lost, or, if the database does not
// answer, must be presumed lost. It gives back the jobs that have waited since the last beat.
func (w *worker) beat(ctx context.Context) error {
	defer func() {
		call, cancel := context.WithTimeout(ctx, w.Lease/3)
		defer cancel()
		if stuck := w.stuck(); len(stuck) > 0 {
			w.log.Warn("no handler has begun these jobs for long: they are given back for other workers", "jobs", len(stuck), "handlers", w.Concurrency)
			w.release(call, stuck)
		}
	}()
	w.mu.Lock()
	tasks, leases := make([]*task, 0, len(w.held)), make([]int64, 0, len(w.held))
	for _, t := range w.held {
		if !t.lost {
			tasks, leases = append(tasks, t), append(leases, t.job.Lease)
		}
	}
	w.mu.Unlock()
	if len(leases) == 0 {
		return nil
	}
	start := time.Now()
	call, cancel := context.WithTimeout(ctx, w.Lease/3)
	extended, err := w.q.Extend(call, w.Lease, leases...)
	cancel()
	for _, t := range w.prolong(tasks, leases, extended, start.Add(w.Lease), err == nil) {
		w.tell(t, Lost, 0)
	}
	return err
}

// stuck takes out the jobs that were queued at the last beat. The handlers hang, and other workers may be free. So none is claimed ahead until one has ended.
func (w *worker) stuck() (tasks []*task) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queued = slices.DeleteFunc(w.queued, func(t *task) bool {
		if t.waited {
			tasks = append(tasks, t)
			w.forget(t)
			w.pace = max(w.pace, w.Lease/3)
		}
		t.waited = true
		return t.ended
	})
	return tasks
}

// stillLeased returns those of the jobs of a claim whose leases last, and until when. Leases of a claim that took longer than one began at its end, or have ended
// while its answer was on the way. Then the jobs may run elsewhere. So they are extended first. Without an answer for as long as a lease, all have ended.
func (w *worker) stillLeased(ctx context.Context, jobs []penstock.Job, start time.Time) ([]penstock.Job, time.Time) {
	until := start.Add(w.Lease)
	if len(jobs) == 0 || time.Now().Before(until) {
		return jobs, until
	}
	leases := make([]int64, len(jobs))
	for i := range jobs {
		leases[i] = jobs[i].Lease
	}
	var retry growing
	for over := time.Now().Add(w.Lease); time.Now().Before(over); {
		start = time.Now()
		call, cancel := context.WithTimeout(ctx, w.Lease/3)
		lasting, err := w.q.Extend(call, w.Lease, leases...)
		cancel()
		if err == nil {
			return slices.DeleteFunc(jobs, func(j penstock.Job) bool { return !slices.Contains(lasting, j.Lease) }), start.Add(w.Lease)
		}
		if w.permanent(err) || !sleep(ctx, min(retry.next(), w.Lease/10)) { // the worker stops, and gives them back
			return jobs, until
		}
	}
	return nil, until
}

// prolong notes which of the tasks, by their leases, last until the given time, and gives up the
// others. Without an answer, it gives up those that have expired by now. It returns the jobs that
// had not begun.
func (w *worker) prolong(tasks []*task, leases, extended []int64, until time.Time, answered bool) (dropped []*task) {
	lasts := make(map[int64]bool, len(extended))
	for _, lease := range extended {
		lasts[lease] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for i, t := range tasks {
		if lasts[leases[i]] {
			t.until, t.over = until, now.Add(w.Lease)
		}
		if t.ended { // the call that writes its end will report it
			continue
		}
		if answered && t.until != until || !answered && !now.Before(t.until) {
			t.gone = now.Before(t.until) // it has not run out
			if w.lose(t) {
				dropped = append(dropped, t)
			}
		}
	}
	return dropped
}

// lose gives up a job whose lease is lost and reports whether it has not begun. The caller holds
// the lock.
func (w *worker) lose(t *task) (dropped bool) {
	if t.begun {
		t.lost = true
		t.ctx.end(penstock.ErrLeaseLost)
		return false
	}
	w.queued = slices.DeleteFunc(w.queued, func(q *task) bool { return q == t })
	w.forget(t)
	notify(w.freed)
	return true
}

// maintainEvery is how often the queue's maintenance is done.
const maintainEvery = 500 * time.Millisecond

// maintainLoop does the queue's maintenance until ctx ends.
func (w *worker) maintainLoop(ctx context.Context) {
	var retry growing
	for wait := time.Duration(0); sleep(ctx, wait); {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		err := w.q.Maintain(call)
		cancel()
		if err != nil {
			if ctx.Err() != nil || w.permanent(err) {
				return
			}
			wait = max(retry.next(), maintainEvery)
			w.fails(maintaining, err)
			continue
		}
		w.works(maintaining)
		retry, wait = growing{}, spread(maintainEvery)
	}
}

// callTimeout ends a call of the database that hangs.
const callTimeout = 30 * time.Second

// growing is the pause after failures in a row. It doubles from 50 ms to 5 s, and is up to half
// shorter, to keep many workers from coming back together.
type growing struct{ failures int }

func (g *growing) next() time.Duration {
	d := min(50*time.Millisecond<<min(g.failures, 7), 5*time.Second)
	g.failures++
	return d/2 + rand.N(d/2+1)
}

// spread makes a pause up to an eighth longer or shorter, to keep workers that started together from claiming
// together.
func spread(d time.Duration) time.Duration { return d - d/8 + rand.N(d/4+1) }

// sleep waits for d and reports whether ctx has not ended.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// afterwards returns a context that ends d after ctx does.
func afterwards(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	later, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		sleep(later, d)
		cancel()
	})
	return later, func() { stop(); cancel() }
}

// notify wakes the goroutine that waits on c, now or when it next waits.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
