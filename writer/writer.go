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
	"sync"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
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
	driver.OncePublisher
	driver.ContentJudge
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
	DriverQueue(name string) driver.Queue
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
