package tables

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// joined has the claims and acks of a process go together. While a round trip of a queue is under way, the calls that come wait. Then they share the
// next one: one transaction, one commit, and one turn at the queue's row. A call that finds none under way goes at once. The next round trip also gathers the calls
// that were just answered. Where claims run side by side, a second round trip begins with the calls that have waited long: the database or its disk is far away then.
type joined struct {
	mu      sync.Mutex
	waiting []*call
	under   int           // round trips that are under way
	callers int           // how many calls the next round trip gathers
	all     chan struct{} // is closed when they wait; nil if nothing is gathered
	alone   int           // how many of the next round trips gather nothing, because none came to the last one that did
	jobs    int           // how many jobs the round trip that began last claims and ends, at most
	far     bool          // the last round trip was long
	enough  bool          // the last claim found all that it asked for. Else its callers pause, and should not all pause at the same time
	acking  bool          // the last round trip had no claim, though there were some
}

const (
	// long is how long a call waits for the round trip that is under way, before a second one begins. Two that are shorter would carry half of the calls each, and
	// cost the database nearly twice as much.
	long = 10 * time.Millisecond
	// longer is how much longer for each job of that round trip. It is long because of them. A second one would find the same jobs, and lose them to it.
	longer = 100 * time.Microsecond
	// sooner is how long it waits where the last round trip was long.
	sooner = 2 * time.Millisecond
	// short is a round trip after which none gathers.
	short = 300 * time.Microsecond
	// mostGathering bounds what a round trip that took very long costs the next one.
	mostGathering = 10 * time.Millisecond
	// inVain is for how many round trips none gathers, once none of those that were answered called again at once.
	inVain = 8
)

// call is one AckClaim, or an Ack, which claims no jobs.
type call struct {
	ctx    context.Context
	leases []int64
	claim  driver.Claim

	done chan struct{} // closed when the answer is there
	gone bool          // its caller does not wait for the answer any more
	more bool          // a round trip has ended its leases, and other calls have had the jobs that it found
	held []int64
	jobs []penstock.Job
	err  error
}

// Limits of calls that share a round trip. A call that is larger goes alone.
const (
	mostJoinedJobs   = 1000
	mostJoinedLeases = 10_000
)

// goesWith reports whether both may share a claim.
func (c *call) goesWith(other *call) bool {
	one, two := c.claim, other.claim
	one.Jobs, two.Jobs = 0, 0
	return c.claim.Jobs == 0 || other.claim.Jobs == 0 || one == two
}

// enter reports whether the call may go at once. If not, it waits for its turn.
func (j *joined) enter(c *call) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.under == 0 {
		j.under, j.jobs = 1, c.claim.Jobs+len(c.leases)
		return true
	}
	c.done = make(chan struct{})
	j.waiting = append(j.waiting, c)
	if j.all != nil && len(j.waiting) == j.callers {
		close(j.all)
		j.all = nil
	}
	return false
}

// ended notes the end of a round trip, which asked for some jobs and found some.
func (j *joined) ended(asked, found int, took time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.far = took >= long+time.Duration(j.jobs)*longer; asked > 0 {
		j.enough = found == asked
	}
}

// gather waits until the calls that were answered come again, for an eighth of the time of that round trip at most. It does not where a second one may be under way.
// Without it these and the calls that wait already would take turns, and each round trip would carry half of them.
func (j *joined) gather(took time.Duration, sideBySide bool) {
	j.mu.Lock()
	came := len(j.waiting)
	if !j.enough || j.alone > 0 || took < short || j.far && sideBySide || j.callers <= max(came, 1) {
		j.alone = max(j.alone-1, 0)
		j.mu.Unlock()
		return
	}
	all := make(chan struct{})
	j.all = all
	j.mu.Unlock()
	enough := time.NewTimer(min(took/8, mostGathering))
	defer enough.Stop()
	select {
	case <-all:
	case <-enough.C:
		j.mu.Lock()
		defer j.mu.Unlock()
		if len(j.waiting) == came {
			j.alone = inVain
		}
	}
}

// next takes the calls that share the next round trip, after one that was under way.
func (j *joined) next() []*call {
	j.mu.Lock()
	defer j.mu.Unlock()
	calls := j.take()
	if len(calls) == 0 {
		j.under--
	}
	return calls
}

// patience is how long a call waits before a second round trip begins.
func (j *joined) patience() time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.far {
		return sooner
	}
	return long + time.Duration(j.jobs)*longer
}

// second takes the calls for a second round trip, if it may begin.
func (j *joined) second() (calls []*call) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.under == 1 {
		calls = j.take()
	}
	if len(calls) > 0 {
		j.under++
	}
	return calls
}

// take takes those that wait and may go together, in the order in which they came. Of acks and claims it first takes the acks. That costs little, and the next claim is
// then for all workers. Otherwise each round trip would claim for half of them.
func (j *joined) take() (calls []*call) {
	var claims *call
	jobs, leases := 0, 0
	isAck := func(c *call) bool { return c.claim.Jobs == 0 }
	j.waiting = slices.DeleteFunc(j.waiting, func(c *call) bool { return c.gone }) // before: claims that let only such acks pass would wait for ever
	j.acking = j.enough && !j.acking && !j.far && slices.ContainsFunc(j.waiting, isAck) && slices.ContainsFunc(j.waiting, func(c *call) bool { return !isAck(c) })
	j.waiting = slices.DeleteFunc(j.waiting, func(c *call) bool {
		fits := jobs+c.claim.Jobs <= mostJoinedJobs && leases+len(c.leases) <= mostJoinedLeases
		if j.acking && !isAck(c) || len(calls) > 0 && !fits || claims != nil && !c.goesWith(claims) {
			return false
		}
		if !isAck(c) {
			claims = c
		}
		jobs, leases, calls = jobs+c.claim.Jobs, leases+len(c.leases), append(calls, c)
		return true
	})
	if len(calls) > 0 {
		j.jobs = jobs + leases
	}
	return calls
}

// await returns when the call has its answer or its context ends.
func (j *joined) await(c *call) {
	select {
	case <-c.done:
	case <-c.ctx.Done():
		j.mu.Lock()
		defer j.mu.Unlock()
		select {
		case <-c.done:
		default:
			c.gone, c.err = true, c.ctx.Err()
		}
	}
}

// answer gives each call its part of the answer, and returns the jobs whose callers have gone. A claim may find fewer than all want while there are more,
// because others were taking them: the calls that get none go with the next round trip. So no call is without a job unless its claim found none.
func (j *joined) answer(calls []*call, held []int64, jobs []penstock.Job, err error) (left []penstock.Job) {
	j.mu.Lock()
	defer j.mu.Unlock()
	ended := make(map[int64]bool, len(held))
	for _, lease := range held {
		ended[lease] = true
	}
	found := len(jobs)
	var again []*call
	defer func() {
		j.callers = len(calls) + len(j.waiting)
		j.waiting = append(again, j.waiting...)
	}()
	for _, c := range calls {
		if c.gone {
			continue
		}
		n := min(c.claim.Jobs, len(jobs))
		c.jobs, jobs = jobs[:n:n], jobs[n:]
		for _, lease := range c.leases {
			if ended[lease] {
				c.held = append(c.held, lease)
				delete(ended, lease)
			}
		}
		slices.Sort(c.held)
		if c.claim.Jobs > 0 && n == 0 && found > 0 && err == nil {
			c.leases, c.more = nil, true
			again = append(again, c)
			continue
		}
		if c.err = err; c.more && len(c.held) > 0 { // they have ended
			c.err = nil
		}
		close(c.done)
	}
	return jobs
}

// join makes a call, or has it go with others.
func (q Queue) join(c *call) ([]int64, []penstock.Job, error) {
	row, err := q.find(c.ctx, q.name)
	if err != nil {
		return nil, nil, err
	}
	line := &row.calls
	if !line.enter(c) {
		if row.sideBySide() {
			defer time.AfterFunc(line.patience(), func() { q.makeAll(row, line.second()) }).Stop()
		}
		line.await(c)
		return c.held, c.jobs, c.err
	}
	defer func() { // also after a panic that the caller recovers from: else all later calls would wait
		if calls := line.next(); len(calls) > 0 {
			go q.makeAll(row, calls)
		}
	}()
	return q.make(c.ctx, c.leases, c.claim)
}

// makeAll makes these calls, and then those that wait, until none does.
func (q Queue) makeAll(row *QueueRow, calls []*call) {
	for j := &row.calls; len(calls) > 0; calls = j.next() {
		began := time.Now()
		var claim driver.Claim
		var leases []int64
		jobs := 0
		for _, c := range calls {
			if c.claim.Jobs > 0 {
				claim = c.claim
			}
			jobs, leases = jobs+c.claim.Jobs, append(leases, c.leases...)
		}
		claim.Jobs = jobs
		ctx, cancel := whileAny(calls)
		held, claimed, err := q.make(ctx, leases, claim)
		cancel()
		j.ended(jobs, len(claimed), time.Since(began))
		if left := j.answer(calls, held, claimed, err); len(left) > 0 {
			q.giveBack(left)
		}
		if !q.on.Looks().Ready { // else the database is in the process
			j.gather(time.Since(began), row.sideBySide())
		}
	}
}

// whileAny is a context that ends when those of all calls have.
func whileAny(calls []*call) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(calls[0].ctx))
	var left atomic.Int64
	left.Store(int64(len(calls)))
	stops := make([]func() bool, len(calls))
	for i, c := range calls {
		stops[i] = context.AfterFunc(c.ctx, func() {
			if left.Add(-1) == 0 {
				cancel()
			}
		})
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel()
	}
}

// givingBack is how long it may take to give back jobs. After that their leases expire.
const givingBack = 10 * time.Second

// giveBack releases jobs whose callers have gone, which costs no attempt.
func (q Queue) giveBack(jobs []penstock.Job) {
	ctx, cancel := context.WithTimeout(context.Background(), givingBack)
	defer cancel()
	leases := make([]int64, len(jobs))
	for i, job := range jobs {
		leases[i] = job.Lease
	}
	_, _ = q.Release(ctx, 0, leases...) // if that fails, their leases end
}
