// Package writer is for producers without a transaction of their own: telemetry, imports, web handlers. Callers at the same
// time share a commit, and each returns when its own messages are committed, or with its own error.
package writer

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/penstock/penstock"
)

// Store is what a Writer writes to. To enqueue it must also be a QueueStore, and to tell a bad message from the others of its
// commit a ContentJudge; the stores of this module are.
type Store interface {
	Publish(ctx context.Context, outbox string, msgs ...penstock.Message) error
}

// Options bound what is written together.
type Options struct {
	// Delay is how long the first of a commit waits for others; 0 means that it waits only while another
	// commit is under way, and then up to a quarter of that one's time, 5 ms at most, for those whom it has
	// answered: they are likely to come again. That gathers many under load and delays nobody without.
	Delay time.Duration
	// Rows and Bytes are the most messages, or jobs, of one commit; 3,072 and 16 MiB unless they are set. A call is
	// never divided: one that is larger has a commit of its own.
	Rows  int
	Bytes int
	// InFlight is how many commits of one outbox or queue may be under way at a time; 1 unless it is set. With more of them
	// messages of a key that are published without waiting for each other may change places.
	InFlight int
}

// Once has messages with an id published once, however often they are given: a store whose inbox knows those of its window.
func Once(store OnceStore, inbox string) Store { return &once{store, inbox} }

// OnceStore is a Store that can; PostgreSQL's and SQLite's are.
type OnceStore interface {
	Store
	penstock.OncePublisher
	penstock.ContentJudge
}

type once struct {
	OnceStore
	inbox string
}

func (o *once) Publish(ctx context.Context, outbox string, msgs ...penstock.Message) error {
	return o.PublishOnce(ctx, o.inbox, outbox, msgs...)
}

// Stats count what a Writer has done.
type Stats struct {
	Calls   int64
	Rows    int64 // messages and jobs of these
	Commits int64 // that were tried
	// Lost are messages that were given to PublishUnconfirmed and not written; LastLoss is why.
	Lost     int64
	LastLoss error
}

// Writer gathers calls into commits. It holds at most what one commit may, and what is under way; more callers wait. Safe
// for concurrent use. Close it.
type Writer struct {
	store Store
	opts  Options
	ctx   context.Context // of commits
	stop  context.CancelFunc
	end   chan struct{} // closed by Close

	mu     sync.Mutex
	groups map[target]*group
	stats  Stats
	closed bool
}

// target is where something goes: each outbox and each queue has its own commits.
type target struct {
	name  string
	queue bool
}

// group is what is on its way there.
type group struct {
	target
	w       *Writer
	forming *batch
	active  map[*batch]bool // under way
	waiting []*call         // for room, in the order in which they came
	expect  int             // so many calls are likely to be here at once
	late    *time.Timer     // ends the waiting for them
}

// batch is what is committed together.
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

// New makes a Writer on a store, which the caller closes after it.
func New(store Store, opts Options) *Writer {
	opts.Rows, opts.Bytes, opts.InFlight = cmp.Or(opts.Rows, 3072), cmp.Or(opts.Bytes, 16<<20), cmp.Or(opts.InFlight, 1)
	w := &Writer{store: store, opts: opts, groups: map[target]*group{}, end: make(chan struct{})}
	w.ctx, w.stop = context.WithCancel(context.Background())
	return w
}

// Publish returns when the messages are committed, all or none of them. Errors: *penstock.FieldError for one that cannot be carried, those of
// the store's Publish, penstock.ErrClosed. When ctx ends while the commit is under way the error says so: they
// may be committed nevertheless.
func (w *Writer) Publish(ctx context.Context, outbox string, msgs ...penstock.Message) error {
	c, err := published(msgs)
	if err != nil || len(msgs) == 0 {
		return err
	}
	_, err = w.do(ctx, target{name: outbox}, c)
	return err
}

// PublishAsync returns when there is room for the messages, and wait what became of them, as Publish does. What one goroutine
// gives so is written in the order given, with InFlight 1.
func (w *Writer) PublishAsync(ctx context.Context, outbox string, msgs ...penstock.Message) (wait func(context.Context) error, err error) {
	c, err := published(msgs)
	if err != nil || len(msgs) == 0 {
		return func(context.Context) error { return nil }, err
	}
	g, err := w.enter(ctx, target{name: outbox}, c)
	return func(ctx context.Context) error {
		_, err := w.await(ctx, g, c)
		return err
	}, err
}

// PublishUnconfirmed returns when there is room for the messages, before they are committed. What is lost then, because the process ends or
// the store refuses it, nobody is told: Stats counts the latter. Errors are those of what is seen at once.
func (w *Writer) PublishUnconfirmed(ctx context.Context, outbox string, msgs ...penstock.Message) error {
	c, err := published(msgs)
	if err != nil || len(msgs) == 0 {
		return err
	}
	c.unconfirmed = true
	_, err = w.enter(ctx, target{name: outbox}, c)
	return err
}

func published(msgs []penstock.Message) (*call, error) {
	c := &call{}
	if c.msgs = c.one[:]; len(msgs) != 1 {
		c.msgs = make([]penstock.Message, len(msgs))
	}
	for i, m := range msgs {
		if err := m.Validate(); err != nil {
			return nil, numbered("message", i, len(msgs), err)
		}
		m.Payload, m.Headers = bytes.Clone(m.Payload), maps.Clone(m.Headers) // the caller may give up before they are written
		c.msgs[i] = m
		c.size += m.Size()
	}
	return c, nil
}

func numbered(what string, i, n int, err error) error {
	if n == 1 {
		return err
	}
	return fmt.Errorf("%s %d of %d: %w", what, i+1, n, err)
}

// Enqueue is Publish for jobs, and says what became of each, in the order given.
func (w *Writer) Enqueue(ctx context.Context, queue string, jobs ...penstock.NewJob) ([]penstock.Enqueued, error) {
	wait, err := w.EnqueueAsync(ctx, queue, jobs...)
	if err != nil {
		return nil, err
	}
	return wait(ctx)
}

// EnqueueAsync is PublishAsync for jobs.
func (w *Writer) EnqueueAsync(ctx context.Context, queue string, jobs ...penstock.NewJob) (wait func(context.Context) ([]penstock.Enqueued, error), err error) {
	if _, ok := w.store.(queueStore); !ok {
		return nil, errors.New("the store has no queues")
	}
	if len(jobs) == 0 {
		return func(context.Context) ([]penstock.Enqueued, error) { return nil, nil }, nil
	}
	c := &call{jobs: make([]penstock.NewJob, len(jobs))}
	for i, j := range jobs {
		if err := j.Validate(); err != nil {
			return nil, numbered("job", i, len(jobs), err)
		}
		j.Payload, j.Headers = bytes.Clone(j.Payload), maps.Clone(j.Headers)
		c.jobs[i] = j
		carried := penstock.Message{Key: j.Key, Headers: j.Headers, Payload: j.Payload}
		c.size += carried.Size()
	}
	g, err := w.enter(ctx, target{queue, true}, c)
	return func(ctx context.Context) ([]penstock.Enqueued, error) { return w.await(ctx, g, c) }, err
}

type queueStore interface {
	Queue(name string) penstock.Queue
}

// Flush returns when everything that was given before has been written, or has failed.
func (w *Writer) Flush(ctx context.Context) error {
	w.mu.Lock()
	var waitFor []*batch
	for _, g := range w.groups {
		g.forming.due, g.expect = true, 0
		g.start()
		for b := range g.active {
			waitFor = append(waitFor, b)
		}
		if len(g.forming.calls) > 0 {
			waitFor = append(waitFor, g.forming)
		}
	}
	w.mu.Unlock()
	for _, b := range waitFor {
		select {
		case <-b.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Close refuses what comes, and returns when everything that was given before has been written, or has failed. When ctx ends
// first, what is not committed yet fails.
func (w *Writer) Close(ctx context.Context) error {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.end)
		for _, g := range w.groups {
			g.waiting = nil
		}
	}
	w.mu.Unlock()
	err := w.Flush(ctx)
	w.stop()
	if err != nil {
		_ = w.Flush(context.Background()) // nothing is left behind
	}
	return err
}

// Stats are a copy.
func (w *Writer) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stats
}

func (w *Writer) do(ctx context.Context, to target, c *call) ([]penstock.Enqueued, error) {
	g, err := w.enter(ctx, to, c)
	if err != nil {
		return nil, err
	}
	return w.await(ctx, g, c)
}

// await returns what became of a call that has entered.
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

// enter puts a call into the batch that forms, once there is room.
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

// fill takes in who waits for room, as long as there is some.
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

// leave takes out a call whose caller has given up.
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

// start sends off the batch that forms, if it is due and may go.
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
	close(b.done) // whom it wakes wants the lock
}

// forget removes a group that nobody uses: a program may write to many names, of which most are not there.
func (g *group) forget() {
	if g.expect+len(g.active)+len(g.forming.calls)+len(g.waiting) == 0 {
		delete(g.w.groups, g.target)
	}
}

// maxGather bounds how long who was answered is waited for, after a commit that hung, say.
const maxGather = 5 * time.Millisecond

// await has the next commit wait for so many calls, up to a time: else those that the last one answered and those that
// came meanwhile would take turns, each in commits half as large, and each waiting for the other's.
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

// write commits calls together, and without those that the store refuses.
func (g *group) write(calls []*call) {
	err := g.commit(calls)
	if judge, ok := g.w.store.(penstock.ContentJudge); err != nil && len(calls) > 1 && ok && judge.RefusesContent(err) {
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
	made, err := g.w.store.(queueStore).Queue(g.name).Enqueue(g.w.ctx, jobs...)
	if err != nil {
		return err
	}
	for _, c := range calls {
		c.made, made = made[:len(c.jobs):len(c.jobs)], made[len(c.jobs):]
	}
	return nil
}
