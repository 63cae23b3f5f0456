package memory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/backoff"
	"github.com/penstock/penstock/internal/cron"
)

// workQueue is a handle on a queue.
type workQueue struct {
	store *Store
	name  string
}

var (
	_ driver.Queue       = workQueue{}
	_ driver.Releaser    = workQueue{}
	_ driver.GroupFinder = workQueue{}
)

// Queue implements driver.QueueStore. The queue is a driver.Releaser and a
// driver.GroupFinder, too.
func (s *Store) Queue(name string) driver.Queue { return workQueue{s, name} }

func (w workQueue) enter(ctx context.Context) (*jobQueue, time.Time, error) {
	q, err := w.store.enterQueue(ctx, w.name)
	if err != nil {
		return nil, time.Time{}, err
	}
	return q, w.store.db.now(), nil
}

// Enqueue writes jobs, all or none.
func (w workQueue) Enqueue(ctx context.Context, jobs ...penstock.NewJob) ([]penstock.Enqueued, error) {
	if err := validate(jobs); err != nil {
		return nil, err
	}
	q, now, err := w.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer w.store.db.Unlock()
	made := make([]penstock.Enqueued, len(jobs))
	for i := range jobs {
		made[i] = q.enqueue(&jobs[i], now)
	}
	return made, nil
}

func validate(jobs []penstock.NewJob) error {
	for i := range jobs {
		if err := jobs[i].Validate(); err != nil {
			return fmt.Errorf("job %d of %d: %w", i+1, len(jobs), err)
		}
	}
	return nil
}

func (q *jobQueue) enqueue(n *penstock.NewJob, now time.Time) penstock.Enqueued {
	id, j := q.write(n, now)
	if j != nil {
		q.add(j, now)
		q.remember(n.DedupKey, id, now)
	}
	return penstock.Enqueued{ID: id, Deduplicated: j == nil}
}

func (q *jobQueue) remember(dedupKey string, id int64, now time.Time) {
	if dedupKey != "" {
		q.dedup[dedupKey] = first{id, now}
	}
}

// Claim leases jobs that may run now.
func (w workQueue) Claim(ctx context.Context, c driver.Claim) ([]penstock.Job, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	q, now, err := w.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer w.store.db.Unlock()
	q.maintain(now)
	n := q.room(c.Jobs)
	var claimed []penstock.Job
	for p := penstock.MinPriority; p <= penstock.MaxPriority; p++ {
		for len(claimed) < n {
			j := q.next(lane{c.Group, p})
			if j == nil {
				break
			}
			w.store.db.lease++
			q.begin(j, w.store.db.lease, c, now)
			claimed = append(claimed, j.copy())
		}
	}
	return claimed, nil
}

// room is how many of n jobs may be claimed.
func (q *jobQueue) room(n int) int {
	if q.settings.paused {
		return 0
	}
	if q.settings.maxRunning > 0 {
		n = min(n, q.settings.maxRunning-len(q.leases))
	}
	return n
}

// ReadyGroups implements driver.GroupFinder.
func (w workQueue) ReadyGroups(ctx context.Context, groups []string, behind string, most int) ([]string, error) {
	q, now, err := w.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer w.store.db.Unlock()
	q.maintain(now)
	if q.room(1) < 1 {
		return nil, nil
	}
	var found []string
	for l := range q.ready {
		if len(groups) == 0 || slices.Contains(groups, l.group) {
			found = append(found, l.group)
		}
	}
	slices.Sort(found)
	found = slices.Compact(found)
	next, is := slices.BinarySearch(found, behind)
	if is {
		next++
	}
	found = slices.Concat(found[next:], found[:next])
	return found[:min(most, len(found))], nil
}

// copy is the job as callers get it, who may change it.
func (j *job) copy() penstock.Job {
	c := j.Job
	c.Headers, c.Payload = headers(c.Headers), slices.Clone(c.Payload)
	return c
}

// held calls f for each lease that is held and returns these leases.
func (w workQueue) held(ctx context.Context, leases []int64, f func(q *jobQueue, j *job, now time.Time)) ([]int64, error) {
	q, now, err := w.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer w.store.db.Unlock()
	var held []int64
	seen := map[int64]bool{}
	for _, lease := range leases {
		if j := q.leases[lease]; j != nil && now.Before(j.LeaseUntil) && !seen[lease] {
			f(q, j, now)
			seen[lease] = true
			held = append(held, lease)
		}
	}
	return held, nil
}

// Extend makes leases last longer, or shorter.
func (w workQueue) Extend(ctx context.Context, lease time.Duration, leases ...int64) ([]int64, error) {
	if err := driver.ValidateLease(lease); err != nil {
		return nil, err
	}
	return w.held(ctx, leases, func(_ *jobQueue, j *job, now time.Time) { j.LeaseUntil = now.Add(lease) })
}

// Ack ends jobs that are done.
func (w workQueue) Ack(ctx context.Context, leases ...int64) ([]int64, error) {
	return w.held(ctx, leases, func(q *jobQueue, j *job, _ time.Time) { q.end(j) })
}

// Release implements driver.Releaser.
func (w workQueue) Release(ctx context.Context, after time.Duration, leases ...int64) ([]int64, error) {
	return w.held(ctx, leases, func(q *jobQueue, j *job, now time.Time) {
		j.Attempt--
		q.giveBack(j, now.Add(after), now)
	})
}

// Retry gives a job back after a failure.
func (w workQueue) Retry(ctx context.Context, lease int64, after time.Duration, reason string) (dead bool, err error) {
	err = w.fail(ctx, lease, func(q *jobQueue, j *job, now time.Time) {
		if after < 0 {
			after = backoff.After(j.Attempt)
		}
		dead = q.fail(j, now.Add(after), now, reason, false)
	})
	return dead, err
}

// DeadLetter makes a job a dead letter.
func (w workQueue) DeadLetter(ctx context.Context, lease int64, reason string) error {
	return w.fail(ctx, lease, func(q *jobQueue, j *job, now time.Time) { q.fail(j, now, now, reason, true) })
}

func (w workQueue) fail(ctx context.Context, lease int64, f func(*jobQueue, *job, time.Time)) error {
	held, err := w.held(ctx, []int64{lease}, f)
	if err == nil && len(held) == 0 {
		err = penstock.WithHint(penstock.ErrLeaseLost, "extend leases in time, or claim with a longer one")
	}
	return err
}

// Maintain implements driver.Queue.
func (w workQueue) Maintain(ctx context.Context) error {
	q, now, err := w.enter(ctx)
	if err != nil {
		return err
	}
	defer w.store.db.Unlock()
	q.maintain(now)
	for _, s := range q.schedules {
		due := !s.Next.After(now)
		if !due && !cron.Ahead(s.Cron, s.Next, now) {
			continue
		}
		next, err := cron.Next(s.Cron, now)
		if err != nil {
			return fmt.Errorf("schedule %q of queue %q: %w", s.Name, w.name, err)
		}
		if due {
			q.enqueue(&s.Job, now)
		}
		s.Next = next
	}
	for k, f := range q.dedup {
		if now.Sub(f.at) >= q.settings.dedupWindow {
			delete(q.dedup, k)
		}
	}
	return nil
}

// maintain takes leases away that have ended and lets jobs arrive that are due.
func (q *jobQueue) maintain(now time.Time) {
	for _, j := range q.leases {
		if !now.Before(j.LeaseUntil) {
			reason := "lease expired"
			if j.worker != "" {
				reason += ", held by " + j.worker
			}
			q.fail(j, now, now, reason, false)
		}
	}
	for id, j := range q.scheduled {
		if !j.due.After(now) {
			delete(q.scheduled, id)
			q.arrive(j)
		}
	}
}
