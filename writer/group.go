package writer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// target is an outbox or a queue. Each has separate commits.
type target struct {
	name  string
	queue bool
}

// group has the calls that are waiting or being written for one target.
type group struct {
	target
	w       *Writer
	forming *batch
	active  map[*batch]bool // commits that are running
	waiting []*call         // waiting for room, in the order in which they came
	expect  int             // how many calls are likely to come at once
	late    *time.Timer     // ends the waiting for them
}

// batch has the messages and jobs of one commit.
type batch struct {
	calls []*call
	rows  int
	bytes int
	due   bool
	done  chan struct{} // closed when all its calls have their answer: one for all costs less than one for each
}

type call struct {
	msgs []penstock.Message
	jobs []penstock.NewJob
	size int

	unconfirmed bool
	in          *batch        // nil while it waits for room
	entered     chan struct{} // closed once it has some, if it had to wait
	taken       bool          // its batch is under way
	made        []penstock.Enqueued
	err         error
	one         [1]penstock.Message // where msgs are if there is one
}

func (c *call) rows() int { return len(c.msgs) + len(c.jobs) }

func (w *Writer) do(ctx context.Context, to target, c *call) ([]penstock.Enqueued, error) {
	g, err := w.enter(ctx, to, c)
	if err != nil {
		return nil, err
	}
	return w.await(ctx, g, c)
}

// await returns the result of a call that has entered.
func (w *Writer) await(ctx context.Context, g *group, c *call) ([]penstock.Enqueued, error) {
	select {
	case <-c.in.done:
		return c.made, c.err
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !c.taken {
		g.leave(c)
		return nil, ctx.Err()
	}
	select {
	case <-c.in.done:
		return c.made, c.err
	default:
		return nil, fmt.Errorf("given up while the commit is under way, which may succeed: %w", ctx.Err())
	}
}

// enter puts a call into the next batch once there is room.
func (w *Writer) enter(ctx context.Context, to target, c *call) (*group, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, penstock.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	g := w.groups[to]
	if g == nil {
		g = &group{target: to, w: w, forming: newBatch(), active: map[*batch]bool{}}
		w.groups[to] = g
	}
	g.waiting = append(g.waiting, c)
	g.fill()
	g.start()
	if c.in != nil {
		return g, nil
	}
	c.entered = make(chan struct{})
	w.mu.Unlock()
	err := penstock.ErrClosed
	select {
	case <-c.entered:
	case <-ctx.Done():
		err = ctx.Err()
	case <-w.end:
	}
	w.mu.Lock()
	if c.in != nil {
		return g, nil
	}
	g.waiting = slices.DeleteFunc(g.waiting, func(other *call) bool { return other == c })
	return nil, err
}

func newBatch() *batch { return &batch{done: make(chan struct{})} }

// fill lets waiting calls in while there is room.
func (g *group) fill() {
	for o := g.w.opts; len(g.waiting) > 0; g.waiting = g.waiting[1:] {
		b, c := g.forming, g.waiting[0]
		if len(b.calls) > 0 && (b.rows+c.rows() > o.Rows || b.bytes+c.size > o.Bytes) {
			b.due = true
			return
		}
		b.calls = append(b.calls, c)
		b.rows += c.rows()
		b.bytes += c.size
		g.w.stats.Calls++
		g.w.stats.Rows += int64(c.rows())
		if c.in = b; c.entered != nil {
			close(c.entered)
		}
		if o.Delay <= 0 || b.full(&o) {
			b.due = true
		} else if len(b.calls) == 1 {
			time.AfterFunc(o.Delay, func() {
				g.w.mu.Lock()
				defer g.w.mu.Unlock()
				b.due = true
				g.start()
			})
		}
	}
}

// leave removes a call whose caller has given up.
func (g *group) leave(c *call) {
	b := g.forming
	b.calls = slices.DeleteFunc(b.calls, func(other *call) bool { return other == c })
	b.rows -= c.rows()
	b.bytes -= c.size
	if len(b.calls) == 0 { // Flush may wait for it, and its timer still run
		close(b.done)
		g.forming = newBatch()
	}
	g.fill()
	g.start()
}

// start writes the next batch if it is due and a commit may start.
func (g *group) start() {
	for g.forming.due && len(g.forming.calls) > 0 && len(g.active) < g.w.opts.InFlight && (len(g.forming.calls) >= g.expect || g.forming.full(&g.w.opts)) {
		b := g.forming
		for _, c := range b.calls {
			c.taken = true
		}
		g.forming, g.active[b], g.expect = newBatch(), true, 0
		go g.send(b)
		g.fill()
	}
}

func (b *batch) full(o *Options) bool { return b.rows >= o.Rows || b.bytes >= o.Bytes }

func (g *group) send(b *batch) {
	began := time.Now()
	g.write(b.calls)
	took := time.Since(began)
	g.w.mu.Lock()
	delete(g.active, b)
	if g.w.opts.Delay <= 0 && !g.w.closed {
		g.await(len(b.calls)+len(g.forming.calls), min(took/4, maxGather))
	}
	g.start()
	g.forget()
	g.w.mu.Unlock()
	close(b.done) // the callers that it wakes need the lock
}

// forget removes a group that no call uses. A program may write to many names, most of which do not exist.
func (g *group) forget() {
	if g.expect+len(g.active)+len(g.forming.calls)+len(g.waiting) == 0 {
		delete(g.w.groups, g.target)
	}
}

// maxGather bounds how long a commit waits for the callers that were just answered, for example
// after a commit that hung.
const maxGather = 5 * time.Millisecond

// await makes the next commit wait for this number of calls, up to a time. Otherwise the callers that were answered
// and those that came meanwhile would take turns. Each commit would be half as large, and wait for the other's.
func (g *group) await(calls int, upTo time.Duration) {
	g.expect = calls
	if g.late == nil {
		g.late = time.AfterFunc(upTo, func() {
			g.w.mu.Lock()
			defer g.w.mu.Unlock()
			g.expect = 0
			g.start()
			g.forget()
		})
		return
	}
	g.late.Reset(upTo)
}

// write commits calls together, without those that the store refuses.
func (g *group) write(calls []*call) {
	err := g.commit(calls)
	if judge, ok := g.w.store.(driver.ContentJudge); err != nil && len(calls) > 1 && ok && judge.RefusesContent(err) {
		half := len(calls) / 2
		g.write(calls[:half])
		g.write(calls[half:])
		return
	}
	for _, c := range calls {
		c.err = err
		if c.unconfirmed && err != nil {
			g.w.mu.Lock()
			g.w.stats.Lost += int64(c.rows())
			g.w.stats.LastLoss = err
			g.w.mu.Unlock()
		}
	}
}

// commit writes calls in one transaction.
func (g *group) commit(calls []*call) error {
	g.w.mu.Lock()
	g.w.stats.Commits++
	g.w.mu.Unlock()
	rows := 0
	for _, c := range calls {
		rows += c.rows()
	}
	if !g.queue {
		msgs := make([]penstock.Message, 0, rows)
		for _, c := range calls {
			msgs = append(msgs, c.msgs...)
		}
		return g.w.store.Publish(g.w.ctx, g.name, msgs...)
	}
	jobs := make([]penstock.NewJob, 0, rows)
	for _, c := range calls {
		jobs = append(jobs, c.jobs...)
	}
	made, err := g.w.store.(queueStore).DriverQueue(g.name).Enqueue(g.w.ctx, jobs...)
	if err != nil {
		return err
	}
	for _, c := range calls {
		c.made, made = made[:len(c.jobs):len(c.jobs)], made[len(c.jobs):]
	}
	return nil
}
