package queuetest

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/penstock/penstock"
)

var settingsCases = []testCase{
	{name: "PauseAndResume", run: pause},
	{name: "MaxRunning", run: maxRunning},
	{name: "MaxRunningAtOnce", run: maxRunningRace},
	{name: "NilLeavesAsItIs", run: settingsStay},
}

func cancelled(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

func (e *env) pause(paused bool) {
	e.Helper()
	e.set(penstock.QueueSettings{Paused: &paused})
}

func pause(e *env) {
	e.enqueue(jobs("a", 3)...)
	claimed := e.claim(1)
	e.pause(true)
	e.enqueue(job("b"), after(time.Millisecond, "c"))
	e.maintain()
	e.want()
	if s := e.status(); s.Paused == nil || !*s.Paused {
		e.Error("the status does not say that the queue is paused")
	}
	e.ack(claimed...) // what runs goes on
	e.pause(false)
	e.ack(e.collect("a1", "a2", "b", "c")...)
}

func maxRunning(e *env) {
	limit := 3
	e.set(penstock.QueueSettings{MaxRunning: &limit})
	e.enqueue(jobs("a", 8)...)
	first := e.claim(2)
	e.same(first, "a0", "a1")
	other := e.Another(e).Queue(queue)
	second, err := other.Claim(e.ctx, penstock.Claim{Jobs: 5, Lease: longLease})
	e.must(err, "Claim")
	e.same(second, "a2")
	e.want()
	e.ack(first[0])
	e.retry(first[1], time.Hour, "x")
	e.must(e.q.DeadLetter(e.ctx, second[0].Lease, "x"), "DeadLetter")
	e.same(e.claim(8), "a3", "a4", "a5")
	limit = 0
	e.set(penstock.QueueSettings{MaxRunning: &limit})
	e.want("a6", "a7")
}

// The limit holds for claims at the same time.
func maxRunningRace(e *env) {
	limit := 5
	e.set(penstock.QueueSettings{MaxRunning: &limit})
	const n = 200
	e.enqueue(jobs("a", n)...)
	qs := []penstock.Queue{e.q, e.Another(e).Queue(queue)}
	var mu sync.Mutex
	running, most, done := 0, 0, 0
	e.must(concurrently(8, func(i int) error {
		for e.ctx.Err() == nil {
			jobs, err := qs[i%2].Claim(e.ctx, penstock.Claim{Jobs: 1 + i%3, Lease: longLease})
			if err != nil {
				return err
			}
			mu.Lock()
			running += len(jobs)
			most = max(most, running)
			mu.Unlock()
			runtime.Gosched()
			mu.Lock()
			running -= len(jobs) // before the queue learns of it
			done += len(jobs)
			over := done >= n
			mu.Unlock()
			if _, err := qs[i%2].Ack(e.ctx, leases(jobs)...); err != nil || over {
				return err
			}
		}
		return e.ctx.Err()
	}), "working")
	if most > limit {
		e.Errorf("%d jobs ran at a time, want at most %d", most, limit)
	}
}

func settingsStay(e *env) {
	attempts, running, window := 7, 3, 90*time.Second
	e.set(penstock.QueueSettings{MaxAttempts: &attempts})
	e.set(penstock.QueueSettings{MaxRunning: &running, DedupWindow: &window})
	e.pause(true)
	e.set(penstock.QueueSettings{})
	s := e.status()
	if s.MaxAttempts == nil || *s.MaxAttempts != 7 || s.MaxRunning == nil || *s.MaxRunning != 3 || s.DedupWindow == nil || *s.DedupWindow != window || s.Paused == nil || !*s.Paused {
		e.Errorf("the settings are %+v, want those that were set", s.QueueSettings)
	}
}
