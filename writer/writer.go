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
	// commit is under way, which gathers many under load and delays nobody without.
	Delay time.Duration
	// Rows and Bytes are the most messages, or jobs, of one commit; 3,072 and 16 MiB unless they are set. A call is
	// never divided: one that is larger has a commit of its own.
	Rows  int
	Bytes int
	// InFlight is how many commits of one outbox or queue may be under way at a time; 1 unless it is set. With more of them
	// messages of a key that are published without waiting for each other may change places.
	InFlight int
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
	lanes  map[lane]*line
	stats  Stats
	closed bool
}

// lane is where something goes: each outbox and each queue has its own commits.
type lane struct {
	name  string
	queue bool
}

// line is what is on its way there.
type line struct {
	lane
	w       *Writer
	forming *batch
	flying  int
	active  map[*batch]bool
	waiting []*call // for room, in the order in which they came
}

// batch is what is committed together.
type batch struct {
	calls []*call
	rows  int
	bytes int
	due   bool
	done  chan struct{}
}

type call struct {
	msgs []penstock.Message
	jobs []penstock.NewJob
	size int

	unconfirmed bool
	entered     chan struct{} // closed once it is in a batch
	taken       bool          // and that is under way
	done        chan struct{}
	made        []penstock.Enqueued
	err         error
}

func (c *call) rows() int { return len(c.msgs) + len(c.jobs) }

// New makes a Writer on a store, which the caller closes after it.
func New(store Store, opts Options) *Writer {
	opts.Rows, opts.Bytes, opts.InFlight = cmp.Or(opts.Rows, 3072), cmp.Or(opts.Bytes, 16<<20), cmp.Or(opts.InFlight, 1)
	w := &Writer{store: store, opts: opts, lanes: map[lane]*line{}, end: make(chan struct{})}
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
	_, err = w.do(ctx, lane{name: outbox}, c)
	return err
}

// PublishUnconfirmed returns when there is room for the messages, before they are committed. What is lost then, because the process ends or
// the store refuses it, nobody is told: Stats counts the latter. Errors are those of what is seen at once.
func (w *Writer) PublishUnconfirmed(ctx context.Context, outbox string, msgs ...penstock.Message) error {
	c, err := published(msgs)
	if err != nil || len(msgs) == 0 {
		return err
	}
	c.unconfirmed = true
	_, err = w.enter(ctx, lane{name: outbox}, c)
	return err
}

func published(msgs []penstock.Message) (*call, error) {
	c := &call{msgs: make([]penstock.Message, len(msgs)), done: make(chan struct{})}
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
	if _, ok := w.store.(queueStore); !ok {
		return nil, errors.New("the store has no queues")
	}
	c := &call{jobs: make([]penstock.NewJob, len(jobs)), done: make(chan struct{})}
	for i, j := range jobs {
		if err := j.Validate(); err != nil {
			return nil, numbered("job", i, len(jobs), err)
		}
		j.Payload, j.Headers = bytes.Clone(j.Payload), maps.Clone(j.Headers)
		c.jobs[i] = j
		carried := penstock.Message{Key: j.Key, Headers: j.Headers, Payload: j.Payload}
		c.size += carried.Size()
	}
	if len(jobs) == 0 {
		return nil, nil
	}
	return w.do(ctx, lane{queue, true}, c)
}

type queueStore interface {
	Queue(name string) penstock.Queue
}

// Flush returns when everything that was given before has been written, or has failed.
func (w *Writer) Flush(ctx context.Context) error {
	w.mu.Lock()
	var waitFor []*batch
	for _, l := range w.lanes {
		l.forming.due = true
		l.start()
		for b := range l.active {
			waitFor = append(waitFor, b)
		}
		if len(l.forming.calls) > 0 {
			waitFor = append(waitFor, l.forming)
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
		for _, l := range w.lanes {
			l.waiting = nil
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

func (w *Writer) do(ctx context.Context, to lane, c *call) ([]penstock.Enqueued, error) {
	l, err := w.enter(ctx, to, c)
	if err != nil {
		return nil, err
	}
	select {
	case <-c.done:
		return c.made, c.err
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !c.taken {
		l.leave(c)
		return nil, ctx.Err()
	}
	select {
	case <-c.done:
		return c.made, c.err
	default:
		return nil, fmt.Errorf("given up while the commit is under way, which may succeed: %w", ctx.Err())
	}
}

// enter puts a call into the batch that forms, once there is room.
func (w *Writer) enter(ctx context.Context, to lane, c *call) (*line, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, penstock.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l := w.lanes[to]
	if l == nil {
		l = &line{lane: to, w: w, forming: newBatch(), active: map[*batch]bool{}}
		w.lanes[to] = l
	}
	c.entered = make(chan struct{})
	l.waiting = append(l.waiting, c)
	l.admit()
	l.start()
	w.mu.Unlock()
	err := penstock.ErrClosed
	select {
	case <-c.entered:
	case <-ctx.Done():
		err = ctx.Err()
	case <-w.end:
	}
	w.mu.Lock()
	select {
	case <-c.entered:
		return l, nil
	default:
		l.waiting = slices.DeleteFunc(l.waiting, func(other *call) bool { return other == c })
		return nil, err
	}
}

func newBatch() *batch { return &batch{done: make(chan struct{})} }

// admit takes in who waits for room, as long as there is some.
func (l *line) admit() {
	for o := l.w.opts; len(l.waiting) > 0; l.waiting = l.waiting[1:] {
		b, c := l.forming, l.waiting[0]
		if len(b.calls) > 0 && (b.rows+c.rows() > o.Rows || b.bytes+c.size > o.Bytes) {
			b.due = true
			return
		}
		b.calls = append(b.calls, c)
		b.rows += c.rows()
		b.bytes += c.size
		l.w.stats.Calls++
		l.w.stats.Rows += int64(c.rows())
		close(c.entered)
		if o.Delay <= 0 || b.rows >= o.Rows || b.bytes >= o.Bytes {
			b.due = true
		} else if len(b.calls) == 1 {
			time.AfterFunc(o.Delay, func() {
				l.w.mu.Lock()
				defer l.w.mu.Unlock()
				b.due = true
				l.start()
			})
		}
	}
}

// leave takes out a call whose caller has given up.
func (l *line) leave(c *call) {
	b := l.forming
	b.calls = slices.DeleteFunc(b.calls, func(other *call) bool { return other == c })
	b.rows -= c.rows()
	b.bytes -= c.size
	if len(b.calls) == 0 { // Flush may wait for it, and its timer still run
		close(b.done)
		l.forming = newBatch()
	}
	l.admit()
	l.start()
}

// start sends off the batch that forms, if it is due and may go.
func (l *line) start() {
	for l.forming.due && len(l.forming.calls) > 0 && l.flying < l.w.opts.InFlight {
		b := l.forming
		for _, c := range b.calls {
			c.taken = true
		}
		l.forming, l.active[b] = newBatch(), true
		l.flying++
		go l.fly(b)
		l.admit()
	}
}

func (l *line) fly(b *batch) {
	l.write(b.calls)
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	delete(l.active, b)
	l.flying--
	close(b.done)
	l.start()
}

// write commits calls together, and without those that the store refuses.
func (l *line) write(calls []*call) {
	err := l.commit(calls)
	if judge, ok := l.w.store.(penstock.ContentJudge); err != nil && len(calls) > 1 && ok && judge.RefusesContent(err) {
		half := len(calls) / 2
		l.write(calls[:half])
		l.write(calls[half:])
		return
	}
	for _, c := range calls {
		c.err = err
		close(c.done)
	}
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	for _, c := range calls {
		if c.unconfirmed && err != nil {
			l.w.stats.Lost += int64(c.rows())
			l.w.stats.LastLoss = err
		}
	}
}

// commit writes calls in one transaction.
func (l *line) commit(calls []*call) error {
	l.w.mu.Lock()
	l.w.stats.Commits++
	l.w.mu.Unlock()
	if !l.queue {
		var msgs []penstock.Message
		for _, c := range calls {
			msgs = append(msgs, c.msgs...)
		}
		return l.w.store.Publish(l.w.ctx, l.name, msgs...)
	}
	var jobs []penstock.NewJob
	for _, c := range calls {
		jobs = append(jobs, c.jobs...)
	}
	made, err := l.w.store.(queueStore).Queue(l.name).Enqueue(l.w.ctx, jobs...)
	if err != nil {
		return err
	}
	for _, c := range calls {
		c.made, made = made[:len(c.jobs):len(c.jobs)], made[len(c.jobs):]
	}
	return nil
}
