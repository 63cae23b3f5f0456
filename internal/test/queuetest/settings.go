package queuetest

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

var settingsCases = slices.Concat(
	named("Settings", settingsPauseAndResume, settingsMaxRunning, settingsMaxRunningAtOnce,
		settingsNilLeavesAsItIs, settingsPauseHoldsOnceItIsSet),
	needing(Features{ConcurrentWriters: true}, named("Settings", settingsUncommittedSettingsHoldNot)),
)

func cancelled(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

func (e *env) pause(paused bool) {
	e.set(penstock.QueueSettings{Paused: &paused})
}

func settingsPauseAndResume(e *env) {
	e.enqueue(jobs("a", 3)...)
	claimed := e.claim(1)
	e.pause(true)
	e.enqueue(job("b"), after(time.Millisecond, "c"))
	e.maintain()
	e.want()
	if s := e.status(); s.Paused == nil || !*s.Paused {
		e.Error("the status does not say that the queue is paused")
	}
	e.ack(claimed...) // running jobs continue
	e.pause(false)
	e.ack(e.collect("a1", "a2", "b", "c")...)
}

func settingsMaxRunning(e *env) {
	e.set(penstock.QueueSettings{MaxRunning: new(3)})
	e.enqueue(jobs("a", 8)...)
	first := e.claim(2)
	e.same(first, "a0", "a1")
	other := e.Another(e).DriverQueue(queue)
	second := suite.Get(other.Claim(e.ctx, driver.Claim{Jobs: 5, Lease: suite.LongLease})).Must(e, "Claim")
	e.same(second, "a2")
	e.want()
	e.ack(first[0])
	e.retry(first[1], time.Hour, "x")
	e.Must(e.q.DeadLetter(e.ctx, second[0].Lease, "x"), "DeadLetter")
	e.same(e.claim(8), "a3", "a4", "a5")
	e.set(penstock.QueueSettings{MaxRunning: new(0)})
	e.want("a6", "a7")
}

// Never do more jobs run than may, of the queue and of each group, with several workers, and all are done.
func settingsMaxRunningAtOnce(e *env) {
	const limit, n = 6, 100
	e.set(penstock.QueueSettings{MaxRunning: new(limit)})
	limits := map[string]int{"a": 1, "b": 3, "": 5}
	for group, limit := range limits {
		e.setGroup(penstock.GroupPolicy{Group: group, MaxRunning: limit})
		e.fill(group, n)
	}
	qs := []driver.Queue{e.q, e.Another(e).DriverQueue(queue)}
	t := newTally()
	e.Must(suite.Concurrently(8, func(i int) error {
		for last := ""; t.total() < n*len(limits); {
			ready, err := qs[i%2].(driver.GroupFinder).ReadyGroups(e.ctx, nil, last, 2)
			if err != nil {
				return err
			}
			if len(ready) == 0 {
				runtime.Gosched()
				continue
			}
			last = ready[0]
			if err := t.work(e, qs[i%2], last, 1+i%3); err != nil {
				return err
			}
		}
		return nil
	}), "working")
	for group, limit := range limits {
		if t.most[group] > limit || t.most[group] == 0 {
			e.Errorf("%d jobs of the group %q ran at a time, the limit is %d", t.most[group], group, limit)
		}
	}
	if t.mostOfAll > limit {
		e.Errorf("%d jobs ran at a time, want at most %d", t.mostOfAll, limit)
	}
}

// tally counts how many jobs of each group run at a time, and how many are done.
type tally struct {
	mu             sync.Mutex
	running, most  map[string]int
	all, mostOfAll int // of all groups
	done           int
}

func newTally() *tally { return &tally{running: map[string]int{}, most: map[string]int{}} }

func (t *tally) total() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.done
}

// work claims up to n jobs, and acks them a moment later.
func (t *tally) work(e *env, q driver.Queue, group string, n int) error {
	jobs, err := q.Claim(e.ctx, driver.Claim{Group: group, Jobs: n, Lease: suite.LongLease})
	if err != nil {
		return err
	}
	t.mu.Lock()
	t.running[group] += len(jobs)
	t.most[group] = max(t.most[group], t.running[group])
	t.all += len(jobs)
	t.mostOfAll = max(t.mostOfAll, t.all)
	t.mu.Unlock()
	runtime.Gosched()
	t.mu.Lock()
	t.running[group] -= len(jobs) // before the queue learns of it
	t.all -= len(jobs)
	t.done += len(jobs)
	t.mu.Unlock()
	return suite.Err(q.Ack(e.ctx, leases(jobs)...))
}

func settingsNilLeavesAsItIs(e *env) {
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

// No call that begins after a pause was set is given a job, however many claim at the time.
func settingsPauseHoldsOnceItIsSet(e *env) {
	qs := []driver.Queue{e.q, e.Another(e).DriverQueue(queue)}
	const workers = 4
	var paused atomic.Bool
	var calls [workers]atomic.Int64
	var claimed atomic.Int64
	ctx, stop := context.WithCancel(e.ctx)
	defer stop()
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			for ctx.Err() == nil {
				was := paused.Load()
				jobs, err := qs[i%2].Claim(e.ctx, driver.Claim{Jobs: 1 + i%2, Lease: suite.LongLease})
				if err != nil {
					e.Errorf("Claim: %v", err)
					return
				}
				if was && len(jobs) > 0 {
					e.Errorf("a claim that began after the pause was set got %q", names(jobs))
				}
				claimed.Add(int64(len(jobs)))
				calls[i].Add(1)
			}
		})
	}
	for range 5 {
		before := claimed.Load()
		e.enqueue(jobs("a", 100)...)
		e.eventually("jobs are claimed", func() bool { return claimed.Load() > before })
		e.pause(true)
		paused.Store(true)
		e.enqueue(jobs("paused", 20)...)
		var upto [workers]int64
		for i := range workers {
			upto[i] = calls[i].Load() + 5
		}
		e.eventually("each worker has asked a few times", func() bool {
			for i := range workers {
				if calls[i].Load() < upto[i] {
					return false
				}
			}
			return true
		})
		paused.Store(false)
		for i := range workers { // the calls that know of the pause have ended
			upto[i] = calls[i].Load() + 2
		}
		e.eventually("calls have ended", func() bool {
			return calls[0].Load() >= upto[0] && calls[1].Load() >= upto[1] && calls[2].Load() >= upto[2] && calls[3].Load() >= upto[3]
		})
		e.pause(false)
	}
	stop()
	wg.Wait()
}

// Where settings can be part of a transaction: what has not been committed, or was rolled back, lets no job begin.
func settingsUncommittedSettingsHoldNot(e *env) {
	set := func(s penstock.QueueSettings) tx {
		t := e.begin()
		setter, ok := t.Tx.(TxSetter)
		if !ok {
			e.Skip("this store's settings are no part of transactions")
		}
		e.Must(setter.SetQueue(e.ctx, queue, s), "SetQueue in a transaction")
		return t
	}
	nothing := func(when string) {
		for range 3 {
			for _, group := range []string{"", "g"} {
				if got := e.claimAs(driver.Claim{Jobs: 1, Group: group}); len(got) > 0 {
					e.Fatalf("%s: claimed %q", when, names(got))
				}
			}
			e.maintain()
		}
	}
	yes, no, two, unlimited := true, false, 2, 0
	e.enqueue(jobs("a", 20)...)
	e.enqueue(penstock.NewJob{Group: "g", Payload: []byte("of a group")})
	e.pause(true)
	t := set(penstock.QueueSettings{Paused: &no})
	nothing("the queue's resumption is not committed")
	t.Rollback()
	nothing("the queue's resumption was rolled back")
	t = set(penstock.QueueSettings{Paused: &no})
	t.Commit()
	e.same(e.claim(1), "a0")

	t = set(penstock.QueueSettings{Paused: &yes})
	e.maintain()
	e.same(e.claim(1), "a1") // not yet
	t.Commit()
	nothing("the pause is committed")
	e.pause(false)

	e.set(penstock.QueueSettings{MaxRunning: &two})
	e.claim(2)
	t = set(penstock.QueueSettings{MaxRunning: &unlimited})
	nothing("that the limit is lifted is not committed")
	t.Rollback()
	nothing("that the limit is lifted was rolled back")
	e.set(penstock.QueueSettings{MaxRunning: &unlimited})
	suite.Equal(e, len(e.claim(5)), 5, "claimed without a limit")
}
