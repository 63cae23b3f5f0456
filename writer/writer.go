// Package writer is for producers that have no transaction: telemetry, imports, web handlers. Concurrent callers share a commit.
// Each returns when its own messages are committed, or with its own error.
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

// Store is the destination of a Writer. To enqueue, it must also have the DriverQueue of a driver.QueueStore. To separate a refused
// message from the others of its commit, it must be a driver.ContentJudge. The stores of this module are both.
type Store interface {
	Publish(ctx context.Context, outbox string, msgs ...penstock.Message) error
}

// Options limit how many messages or jobs are written in one commit, and how long they wait for it. A field that is
// negative means its default.
type Options struct {
	// Delay is how long the first call of a commit waits for others. With 0, the default, it waits only for
	// a commit that is under way. After that it waits up to a quarter of that commit's time, 5 ms at most, because
	// the callers that were answered are likely to call again. So calls are gathered under load, and an idle
	// Writer adds no delay.
	Delay time.Duration
	// Rows and Bytes limit the messages or jobs of one commit. Default 3,072 and 16 MiB. A call is never divided: a
	// larger call gets a separate commit.
	Rows  int
	Bytes int
	// InFlight is how many commits of one outbox or queue may run at a time. Default 1. With more, messages of a key may
	// change places if they are published without waiting for each other.
	InFlight int
}

// Once returns a Store that publishes a message with an id once, however often it is given. The inbox knows the ids that were
// published within its window.
func Once(store OnceStore, inbox string) Store { return &once{store, inbox} }

// OnceStore is a Store that Once can use: PostgreSQL's or SQLite's.
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

// Stats count the work of a Writer.
type Stats struct {
	Calls   int64
	Rows    int64 // messages and jobs in these calls
	Commits int64 // commits that were tried
	// Lost counts messages that were given to PublishUnconfirmed and not written. LastLoss is the last reason.
	Lost     int64
	LastLoss error
}

// Writer gathers calls into commits. For each outbox or queue it holds the messages of one commit and of those under way;
// other callers wait. Safe for concurrent use. Close it.
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
	opts.Rows, opts.Bytes, opts.InFlight = cmp.Or(max(opts.Rows, 0), 3072), cmp.Or(max(opts.Bytes, 0), 16<<20), cmp.Or(max(opts.InFlight, 0), 1)
	w := &Writer{store: store, opts: opts, groups: map[target]*group{}, end: make(chan struct{})}
	w.ctx, w.stop = context.WithCancel(context.Background())
	return w
}

// Publish returns when the messages are committed, all or none of them. Errors: *penstock.FieldError for one that cannot be carried, those
// of the store's Publish, and penstock.ErrClosed. If ctx ends while the commit is under way, the error says that they may still be
// committed.
func (w *Writer) Publish(ctx context.Context, outbox string, msgs ...penstock.Message) error {
	c, err := published(msgs)
	if err != nil || len(msgs) == 0 {
		return err
	}
	_, err = w.do(ctx, target{name: outbox}, c)
	return err
}

// PublishAsync returns when there is room for the messages. wait returns when they are committed, with the errors of Publish, or with
// err if that is not nil. With InFlight 1, messages of one goroutine are written in the order in which it gave them.
func (w *Writer) PublishAsync(ctx context.Context, outbox string, msgs ...penstock.Message) (wait func(context.Context) error, err error) {
	c, err := published(msgs)
	if err != nil || len(msgs) == 0 {
		return func(context.Context) error { return err }, err
	}
	results, err := w.later(ctx, target{name: outbox}, c)
	return func(ctx context.Context) error {
		_, err := results(ctx)
		return err
	}, err
}

// later returns when a call has entered, or why it has not. wait returns the result, or the same error.
func (w *Writer) later(ctx context.Context, to target, c *call) (wait func(context.Context) ([]penstock.Enqueued, error), err error) {
	g, err := w.enter(ctx, to, c)
	if err != nil {
		return refusal(err), err
	}
	return func(ctx context.Context) ([]penstock.Enqueued, error) { return w.await(ctx, g, c) }, nil
}

func refusal(err error) func(context.Context) ([]penstock.Enqueued, error) {
	return func(context.Context) ([]penstock.Enqueued, error) { return nil, err }
}

// PublishUnconfirmed returns when there is room for the messages, before they are committed. The caller does not learn of messages that are
// lost later: Stats counts those that the store refuses, and a crash loses others. It returns only errors that are found at once.
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

// Enqueue is Publish for jobs. It returns a result for each job, in the order given.
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
		err := errors.New("the store has no queues")
		return refusal(err), err
	}
	if len(jobs) == 0 {
		return refusal(nil), nil
	}
	c := &call{jobs: make([]penstock.NewJob, len(jobs))}
	for i, j := range jobs {
		if err := j.Validate(); err != nil {
			err = numbered("job", i, len(jobs), err)
			return refusal(err), err
		}
		j.Payload, j.Headers = bytes.Clone(j.Payload), maps.Clone(j.Headers)
		c.jobs[i] = j
		carried := penstock.Message{Key: j.Key, Headers: j.Headers, Payload: j.Payload}
		c.size += carried.Size()
	}
	return w.later(ctx, target{queue, true}, c)
}

type queueStore interface {
	DriverQueue(name string) driver.Queue
}

// Flush returns when all earlier messages and jobs have been written or have failed, or with the error of ctx.
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

// Close refuses new calls. It returns when all earlier messages and jobs have been written or have failed. If ctx ends first, those
// that are not committed yet fail, and Close returns the error of ctx.
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

// Stats returns a copy of the counts.
func (w *Writer) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stats
}
