package work_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/work"
)

// fakeQueue is a queue of jobs that are claimed first in, first out, by the test's clock. The test
// sets errors and pauses.
type fakeQueue struct {
	mu      sync.Mutex
	waiting []penstock.Job
	leases  map[int64]penstock.Job
	lease   int64
	calls   map[string]int
	fails   map[string]error         // by call
	takes   map[string]time.Duration // by call
	retried []string                 // payload and pause
	dead    []string
	freed   []string
	afters  []time.Duration // of freed
	done    []string
	batches []int // of Ack
	claims  []driver.Claim
	extends []int
}

func newFakeQueue(jobs int) *fakeQueue {
	q := &fakeQueue{leases: map[int64]penstock.Job{}, calls: map[string]int{}, fails: map[string]error{}, takes: map[string]time.Duration{}}
	for i := range jobs {
		q.waiting = append(q.waiting, penstock.Job{ID: int64(i + 1), Payload: []byte(fmt.Sprint("j", i))})
	}
	return q
}

// call begins a call; the function that it returns ends it.
func (q *fakeQueue) call(ctx context.Context, name string) (func(), error) {
	q.mu.Lock()
	q.calls[name]++
	err, takes := q.fails[name], q.takes[name]
	q.mu.Unlock()
	if takes > 0 {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	return q.mu.Unlock, nil
}

func (q *fakeQueue) expire() {
	for lease, j := range q.leases {
		if !time.Now().Before(j.LeaseUntil) {
			delete(q.leases, lease)
			q.waiting = append(q.waiting, j)
		}
	}
}

func (q *fakeQueue) Claim(ctx context.Context, c driver.Claim) ([]penstock.Job, error) {
	end, err := q.call(ctx, "claim")
	if err != nil {
		return nil, err
	}
	defer end()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	q.expire()
	q.claims = append(q.claims, c)
	n := min(c.Jobs, len(q.waiting))
	jobs := slices.Clone(q.waiting[:n])
	clear(q.waiting[:n])
	q.waiting = q.waiting[n:]
	for i := range jobs {
		q.lease++
		jobs[i].Attempt++
		jobs[i].Lease, jobs[i].LeaseUntil = q.lease, time.Now().Add(c.Lease)
		q.leases[q.lease] = jobs[i]
	}
	return jobs, nil
}

func (q *fakeQueue) held(leases []int64, f func(j penstock.Job)) []int64 {
	q.expire()
	var held []int64
	for _, l := range leases {
		if j, ok := q.leases[l]; ok {
			f(j)
			held = append(held, l)
		}
	}
	return held
}

func (q *fakeQueue) Extend(ctx context.Context, lease time.Duration, leases ...int64) ([]int64, error) {
	end, err := q.call(ctx, "extend")
	if err != nil {
		return nil, err
	}
	defer end()
	q.extends = append(q.extends, len(leases))
	return q.held(leases, func(j penstock.Job) {
		j.LeaseUntil = time.Now().Add(lease)
		q.leases[j.Lease] = j
	}), nil
}

func (q *fakeQueue) Ack(ctx context.Context, leases ...int64) ([]int64, error) {
	end, err := q.call(ctx, "ack")
	if err != nil {
		return nil, err
	}
	defer end()
	q.batches = append(q.batches, len(leases))
	return q.held(leases, func(j penstock.Job) {
		delete(q.leases, j.Lease)
		q.done = append(q.done, string(j.Payload))
	}), nil
}

func (q *fakeQueue) Retry(ctx context.Context, lease int64, after time.Duration, reason string) (bool, error) {
	end, err := q.call(ctx, "retry")
	if err != nil {
		return false, err
	}
	defer end()
	if len(q.held([]int64{lease}, func(j penstock.Job) {
		delete(q.leases, j.Lease)
		q.retried = append(q.retried, fmt.Sprintf("%s after %s: %s", j.Payload, after, reason))
	})) == 0 {
		return false, penstock.ErrLeaseLost
	}
	return false, nil
}

func (q *fakeQueue) DeadLetter(ctx context.Context, lease int64, reason string) error {
	end, err := q.call(ctx, "dead-letter")
	if err != nil {
		return err
	}
	defer end()
	if len(q.held([]int64{lease}, func(j penstock.Job) {
		delete(q.leases, j.Lease)
		q.dead = append(q.dead, fmt.Sprintf("%s: %s", j.Payload, reason))
	})) == 0 {
		return penstock.ErrLeaseLost
	}
	return nil
}

func (q *fakeQueue) Maintain(ctx context.Context) error {
	end, err := q.call(ctx, "maintain")
	if err == nil {
		end()
	}
	return err
}

// set changes what a call does from now on.
func (q *fakeQueue) set(call string, err error, takes time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.fails[call], q.takes[call] = err, takes
}

// lose takes away all leases, as if they had expired.
func (q *fakeQueue) lose() {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.leases)
}

// releasing is a fakeQueue that is a Releaser.
type releasing struct{ *fakeQueue }

func (q releasing) Release(ctx context.Context, after time.Duration, leases ...int64) ([]int64, error) {
	end, err := q.call(ctx, "release")
	if err != nil {
		return nil, err
	}
	defer end()
	return q.held(leases, func(j penstock.Job) {
		delete(q.leases, j.Lease)
		q.freed = append(q.freed, string(j.Payload))
		q.afters = append(q.afters, after)
	}), nil
}

// RefusesRole implements driver.RoleJudge.
func (q *fakeQueue) RefusesRole(err error) bool { return errors.Is(err, errForbidden) }

var errForbidden = errors.New("permission denied")

// observed counts how attempts ended.
type observed struct {
	mu      sync.Mutex
	claimed int
	started int
	ends    map[work.End]int
	took    time.Duration
}

func (o *observed) Claimed(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.claimed += n
}

func (o *observed) Started(penstock.Job, time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.started++
}

func (o *observed) Ended(_ penstock.Job, how work.End, took time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ends == nil {
		o.ends = map[work.End]int{}
	}
	o.ends[how]++
	o.took = max(o.took, took)
}

func (o *observed) count(how work.End) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ends[how]
}

// begin runs Run in a bubble of virtual time; stop ends it and returns its error.
func begin(t *testing.T, q work.Queue, h work.Handler, o work.Options) (o2 *observed, stop func() error) {
	t.Helper()
	seen := &observed{}
	o.Observer, o.Logger = seen, cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- work.Run(ctx, q, h, o) }()
	return seen, func() error {
		cancel()
		return <-done
	}
}

func nothing(context.Context, penstock.Job) error { return nil }
