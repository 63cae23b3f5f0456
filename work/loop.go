package work

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// worker is one call of Run. A task is held from its claim until its end is
// written down; in between it is queued, then runs in a slot.
type worker struct {
	Options
	q       Queue
	several driver.GroupClaimer // nil if the queue is none
	handle  Handler
	log     *slog.Logger
	turns   turns // of claimLoop only; with one group, others read it

	helpers sync.WaitGroup // claims in addition to the loop's own
	started time.Time
	reached atomic.Bool // a claim has worked
	ended   attempts

	slots    sync.WaitGroup // goroutines that run handlers and write failures
	handlers sync.WaitGroup // handlers that have not returned
	freed    chan struct{}  // wakes the claiming: there may be room
	opened   chan struct{}  // wakes a slot at rest, one value each
	closed   chan struct{}  // ends the slots at rest
	done     chan struct{}  // wakes the acking: jobs are done

	mu       sync.Mutex
	held     []*task              // in no order: each knows its place
	queued   []*task              // claimed, not begun
	acks     []*task              // done, not written, the oldest first
	writing  int                  // acks that a running call has taken
	asked    int                  // jobs that running claims may bring
	noClaims bool                 // the last claim failed
	settles  bool                 // a handler has ended its job itself
	claimed  time.Time            // when a claim last brought jobs
	backlog  bool                 // the last claim brought all that it asked for
	full     bool                 // a limit of running jobs left hardly room at the last claim
	over     bool                 // a job has ended since that claim began, and nothing was queued
	helping  int                  // goroutines that claim in addition to the loop
	busy     int                  // slots in use
	resting  int                  // slots whose goroutine waits to be used again
	pace     time.Duration        // how long a handler takes, about; 0 is not known
	stopping bool                 // no handler begins any more
	holds    map[string]time.Time // when handlers last held groups of their jobs
	strange  map[string]bool      // kinds without a handler that the log and heartbeats name
	yields   time.Time            // until then it claims nothing: others claim jobs that it has no handler for
	failed   error                // an error that another attempt cannot cure
	outage   outage
	stop     context.CancelCauseFunc
}

// task is one claimed job.
type task struct {
	job    *penstock.Job // among those of its claim; cleared once the task is forgotten
	place  int           // in held
	until  time.Time     // when the lease ends, or earlier: by this machine's clock
	over   time.Time     // when it has ended for sure: it began before the answer came
	begun  bool
	waited bool // a beat has found it queued
	ended  bool // the handler has returned, or will not be called
	lost   bool
	gone   bool // lost before its time: the job was removed
	took   time.Duration
	how    End        // once it is acked
	done   time.Time  // when it was given to the acking
	tried  bool       // a failed call may have written the end
	ctx    jobContext // the handler's
}

// hold notes a task. The caller holds the lock.
func (w *worker) hold(t *task) {
	t.place = len(w.held)
	w.held = append(w.held, t)
}

// forget is the end of a task that is held. The caller holds the lock.
func (w *worker) forget(t *task) {
	last := len(w.held) - 1
	w.held[t.place] = w.held[last]
	w.held[t.place].place = t.place
	w.held[last] = nil
	w.held = w.held[:last]
	t.ended = true
}

func newWorker(q Queue, h Handler, o Options) *worker {
	several, _ := q.(driver.GroupClaimer)
	return &worker{
		Options: o, q: q, several: several, started: time.Now(), handle: wrap(h, o.Middleware), holds: map[string]time.Time{}, strange: map[string]bool{}, log: o.Logger, turns: newTurns(q, &o),
		freed: make(chan struct{}, 1), opened: make(chan struct{}, o.Concurrency), closed: make(chan struct{}), done: make(chan struct{}, 1),
	}
}

// run does the work of Run.
func (w *worker) run(ctx context.Context) error {
	claiming, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	w.stop = stop
	handling, interrupt := context.WithCancelCause(context.WithoutCancel(ctx))
	defer interrupt(nil)
	writing, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	noMore := make(chan struct{})

	var loops, acking sync.WaitGroup
	loops.Go(func() { w.beatLoop(writing) })
	loops.Go(func() { w.maintainLoop(claiming) })
	loops.Go(func() { w.heartLoop(writing) })
	acking.Go(func() { w.ackLoop(writing, noMore) })
	w.claimLoop(claiming, handling, writing)

	queued := w.dropQueued()
	acking.Go(func() { w.release(writing, queued) })
	handlers := waiting(&w.handlers)
	if w.failure() == nil {
		select {
		case <-handlers:
		case <-time.After(w.DrainTimeout):
		}
	}
	if jobs := w.running(); len(jobs) > 0 {
		w.log.Warn("jobs still run at the end of the drain time, and are aborted", "jobs", jobs)
	}
	interrupt(ErrStopping)
	<-handlers
	end := time.AfterFunc(w.DrainTimeout, giveUp)
	defer end.Stop()
	w.slots.Wait()
	close(noMore)
	acking.Wait()
	giveUp()
	loops.Wait()
	if !w.outage.some.Load() {
		w.heartbeat(context.WithoutCancel(ctx), true, time.Second)
	}
	if w.reached.Load() {
		w.log.Info("the worker has stopped", "done", w.ended.done.Load(), "failed", w.ended.failed.Load(), "dead", w.ended.dead.Load(), "lost", w.ended.lost.Load(), "settled", w.ended.settled.Load())
	}
	return w.result()
}

// running are the ids of the jobs whose handlers have not returned.
func (w *worker) running() (ids []int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.held {
		if t.begun && !t.ended {
			ids = append(ids, t.job.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// waiting returns a channel that is closed when wg is done.
func waiting(wg *sync.WaitGroup) <-chan struct{} {
	c := make(chan struct{})
	go func() {
		wg.Wait()
		close(c)
	}()
	return c
}

func (w *worker) result() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed != nil {
		return w.failed
	}
	if n := len(w.held); n > 0 {
		return penstock.WithHint(fmt.Errorf("how %d jobs ended could not be written within %s", n, w.DrainTimeout), "they run again when their leases end; see the log for the database's errors")
	}
	return nil
}

// permanent reports whether err ends Run, and notes it.
func (w *worker) permanent(err error) bool {
	var field *penstock.FieldError
	if !errors.Is(err, penstock.ErrNoQueue) && !errors.Is(err, penstock.ErrClosed) && !errors.As(err, &field) && !w.barred(err) {
		return false
	}
	w.mu.Lock()
	if w.failed == nil {
		w.failed = err
	}
	w.mu.Unlock()
	w.stop(err)
	return true
}

// starts logs the start, once a claim has worked: before that there may be no queue, or no right to it.
func (w *worker) starts() {
	groups := any(w.Groups)
	switch {
	case w.AllGroups:
		groups = "all"
	case len(w.Groups) == 0:
		groups = []string{w.Group}
	}
	w.log.Info("a worker has started", "worker", w.Worker, "concurrency", w.Concurrency, "groups", groups)
}

// barred reports whether the role lacks a right to the queue, and no claim has worked before.
func (w *worker) barred(err error) bool {
	judge, ok := w.q.(driver.RoleJudge)
	return ok && !w.reached.Load() && judge.RefusesRole(err)
}

func (w *worker) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

// claimLoop claims jobs and starts them until ctx ends.
func (w *worker) claimLoop(ctx, handling, writing context.Context) {
	// A Claim that is cut off may have claimed jobs that no worker learns of.
	calls, cancel := afterwards(ctx, w.DrainTimeout)
	defer cancel()
	defer w.helpers.Wait()
	var (
		retry growing
		last  = time.Now() // when there were jobs
		none  bool         // the last claim brought no jobs
	)
	for {
		n, ok := w.room(ctx, false)
		if !ok {
			return
		}
		start := time.Now()
		jobs, more, err := w.claim(calls, n, w.carries(none))
		if err != nil {
			w.answered(n, 0, err)
			if w.permanent(err) || ctx.Err() != nil {
				return
			}
			wait := retry.next()
			w.fails(claiming, err)
			if !sleep(ctx, wait) {
				return
			}
			continue
		}
		if !w.reached.Swap(true) {
			w.starts()
		}
		w.works(claiming)
		jobs, until := w.stillLeased(calls, jobs, start)
		retry, none = growing{}, len(jobs) == 0
		if !none {
			last = time.Now()
			w.enqueue(handling, writing, jobs, start, until)
		}
		w.answered(n, len(jobs), nil)
		if len(jobs) == n && w.turns.finder == nil {
			w.help(ctx, calls, handling, writing)
		}
		// An eighth of the silence so far: while jobs keep coming, the next claim is never further away
		// than about PollMin.
		pause := max(min(max(time.Since(last)/8, w.PollMin), w.PollMax), 4*w.turns.looked)
		if !more && !w.rests(ctx, spread(pause)) {
			return
		}
	}
}

// rests waits between two claims, and reports whether ctx has not ended. Where a limit has kept jobs back, it waits only until a job has ended; where
// keys may have, until all have.
func (w *worker) rests(ctx context.Context, pause time.Duration) bool {
	end := time.NewTimer(pause)
	defer end.Stop()
	for {
		w.mu.Lock()
		freed, over := w.freed, w.over && (w.full || w.busy == 0)
		if !w.full && !slices.ContainsFunc(w.held, func(t *task) bool { return t.job.Key != "" }) {
			freed, over = nil, false
		}
		w.mu.Unlock()
		if over {
			return ctx.Err() == nil
		}
		select {
		case <-freed:
		case <-end.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// help starts one more goroutine that claims while there is a backlog, until a claim brings less than it
// asked for. One claim keeps one backend of the database busy, and none while it is in transit. Errors are
// left to the loop, which will meet them as well.
func (w *worker) help(ctx, calls, handling, writing context.Context) {
	w.mu.Lock()
	enough := w.helping == w.Claims-1
	if !enough {
		w.helping++
	}
	w.mu.Unlock()
	if enough {
		return
	}
	w.helpers.Go(func() {
		for {
			n, ok := w.room(ctx, true)
			if !ok {
				break
			}
			start := time.Now()
			call, cancel := context.WithTimeout(calls, callTimeout)
			jobs, err := w.claimFrom(call, []string{w.turns.last}, n, w.carries(false))
			cancel()
			jobs, until := w.stillLeased(calls, jobs, start)
			if len(jobs) > 0 {
				w.enqueue(handling, writing, jobs, start, until)
			}
			w.answered(n, len(jobs), err)
			if err != nil {
				break
			}
			if len(jobs) == n {
				w.help(ctx, calls, handling, writing)
			}
		}
		w.mu.Lock()
		w.helping--
		w.mu.Unlock()
		notify(w.freed) // it may have consumed the loop's notification
	})
}

// answered notes the end of a claim that asked for n jobs and brought some of them.
func (w *worker) answered(n, brought int, err error) {
	w.mu.Lock()
	w.asked -= n
	w.backlog, w.noClaims = brought == n, err != nil
	if brought > 0 {
		w.claimed = time.Now()
	}
	w.mu.Unlock()
}

// claim claims up to n jobs of the group whose turn it is, and reports whether there may be more to claim at once.
func (w *worker) claim(ctx context.Context, n int, carry bool) (jobs []penstock.Job, more bool, err error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	several := w.several != nil && w.limited() // else a large share of one group costs less: a store may keep its leases together
	group, share, err := w.turns.next(call, n, several)
	if err != nil {
		return nil, false, err
	}
	if share == 0 {
		if !carry {
			return nil, false, nil
		}
		share = n // this group's jobs may wait for the end of carried jobs
	}
	if several {
		if groups := w.turns.several(n); groups != nil {
			jobs, err = w.claimFrom(call, groups, w.turns.unit, carry)
			return jobs, w.turns.took(len(jobs), len(jobs)), err
		}
	}
	jobs, err = w.claimFrom(call, []string{group}, share, carry)
	return jobs, w.turns.took(len(jobs), share), err
}

// apart reports whether a claim that carries no acks should be made without room for them: handlers
// end their jobs in their own transactions, or the last claim failed.
func (w *worker) apart() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.settles || w.noClaims
}

// limited reports whether a limit of running jobs left hardly room at the last claim.
func (w *worker) limited() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.full
}

// claimFrom makes one call, for n jobs of each group. Ended jobs go with it if the queue supports that and carries says so. Without
// ended jobs it is the same call, unless apart: its jobs end many at a time, and the store may make use of
// that.
func (w *worker) claimFrom(call context.Context, groups []string, n int, carry bool) (jobs []penstock.Job, err error) {
	c := driver.Claim{Group: groups[0], Jobs: n, Lease: w.Lease, Worker: w.Worker}
	q, ok := w.q.(driver.AckClaimer)
	var tasks []*task
	if ok && carry {
		tasks = w.takeAcks()
	}
	if len(groups) == 1 && (!ok || len(tasks) == 0 && w.apart()) {
		return w.q.Claim(call, c)
	}
	var acked []int64
	if len(groups) == 1 {
		acked, jobs, err = q.AckClaim(call, leasesOf(tasks), c)
	} else {
		acked, jobs, err = w.several.AckClaimGroups(call, leasesOf(tasks), groups, c)
	}
	if err != nil {
		w.returnAcks(tasks)
		return nil, err
	}
	full := slices.Contains(acked, driver.Full)
	if full {
		acked = slices.DeleteFunc(acked, func(lease int64) bool { return lease == driver.Full })
	}
	w.mu.Lock()
	w.full = full
	w.mu.Unlock()
	w.acked(tasks, acked)
	return jobs, nil
}

// room waits until a claim is worthwhile and returns how many jobs to ask for. false means that ctx
// has ended, or, for a helper, that there is no backlog.
func (w *worker) room(ctx context.Context, helper bool) (int, bool) {
	for ctx.Err() == nil {
		w.mu.Lock()
		n, yields := w.wanted(), time.Until(w.yields)
		over := helper && !w.backlog
		if yields > 0 && !over {
			w.mu.Unlock()
			sleep(ctx, yields)
			continue
		}
		if n > 0 && !over {
			w.asked += n
			w.over = false
		}
		more := n > 0 && w.wanted() > 0
		w.mu.Unlock()
		if over {
			break
		}
		if n > 0 {
			if more {
				notify(w.freed) // another one may wait
			}
			return n, true
		}
		select {
		case <-w.freed:
		case <-ctx.Done():
		}
	}
	return 0, false
}

// wanted is how many jobs to claim now: for the free slots, and, once half of the jobs claimed
// ahead have begun, for the time until the next claim. Jobs that claims under way may bring count as
// claimed.
func (w *worker) wanted() int {
	ahead := 0
	if w.pace > 0 && !w.full { // what is claimed ahead would take places of jobs that could run elsewhere
		window := min(100*time.Millisecond, w.Lease/10)
		ahead = int(min(int64(w.Claims*w.Batch), int64(w.Concurrency)*int64(window/w.pace)))
	}
	claimed := len(w.queued) + w.asked
	// If the database and the acks do not keep up, no more is claimed.
	if claimed > ahead/2 || len(w.acks)+w.writing >= (3+w.Claims)*w.Batch {
		return 0
	}
	return min(w.Batch, w.Concurrency-w.busy+ahead-claimed)
}
