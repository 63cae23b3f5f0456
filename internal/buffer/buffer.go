// Package buffer holds the messages and jobs of a transaction until it must be written. Drivers of
// buffered transactions share it. It knows no database and runs nothing in the background.
package buffer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock"
)

// Group has the rows that one flush writes to one outbox or queue, in the given order.
type Group[O, Q any] struct {
	Outbox   O // if there are messages
	Queue    Q // if there are jobs
	Messages []penstock.Message
	Jobs     []penstock.NewJob
	// Made is set by the driver: the result for each job.
	Made []penstock.Enqueued

	Name        string // distinguishes it from others
	Inbox       string // that knows the ids of published messages, or empty
	pending     []*pending
	first, last int // operations of the transaction, from 1
}

// Flush has the groups that are written at once.
type Flush[O, Q any] struct {
	Groups []*Group[O, Q]
	began  time.Time
	took   time.Duration
	failed int
	err    error
}

// End is called by the goroutine that writes it, also in the background. The groups before failed were written, or all if
// err is nil.
func (f *Flush[O, Q]) End(failed int, err error) {
	f.took, f.failed, f.err = time.Since(f.began), failed, err
}

// Buffer is the buffer of one transaction. Only one goroutine may use it at a time.
type Buffer[O, Q any] struct {
	opts   penstock.BufferOptions
	groups []*Group[O, Q]
	rows   int
	bytes  int
	once   bool // a job with a dedup key is buffered, or a message that must be new to an inbox
	stats  penstock.BufferStats
}

// New makes an empty buffer.
func New[O, Q any](opts penstock.BufferOptions) *Buffer[O, Q] {
	opts.SetDefaults()
	return &Buffer[O, Q]{opts: opts, stats: penstock.BufferStats{Flushes: map[penstock.FlushReason]int{}}}
}

// Publish adds valid messages. It calls flush whenever the buffer is full. It copies payloads and headers, so the caller
// may reuse them. name distinguishes outboxes. inbox knows the ids of published messages, or is empty.
func (b *Buffer[O, Q]) Publish(outbox O, name, inbox string, msgs []penstock.Message, flush func() error) error {
	for i := range msgs {
		m := msgs[i]
		if err := b.room(m.Size(), flush); err != nil {
			return err
		}
		m.Payload, m.Headers = bytes.Clone(m.Payload), maps.Clone(m.Headers)
		g := b.group(name, inbox, false)
		g.Outbox, g.Messages = outbox, append(g.Messages, m)
		b.once = b.once || inbox != ""
	}
	return nil
}

// Enqueue is Publish for jobs.
func (b *Buffer[O, Q]) Enqueue(queue Q, name string, jobs []penstock.NewJob, ask func(context.Context) error, flush func() error) (penstock.PendingJobs, error) {
	p := &pending{ask: ask, made: make([]penstock.Enqueued, 0, len(jobs)), most: len(jobs)}
	for i := range jobs {
		j := jobs[i]
		carried := penstock.Message{Key: j.Key, ID: j.DedupKey, Topic: j.Group, Headers: j.Headers, Payload: j.Payload}
		if err := b.room(carried.Size(), flush); err != nil {
			return nil, err
		}
		j.Payload, j.Headers = bytes.Clone(j.Payload), maps.Clone(j.Headers)
		g := b.group(name, "", true)
		g.Queue, g.Jobs, g.pending = queue, append(g.Jobs, j), append(g.pending, p)
		b.once = b.once || j.Deduplicates()
	}
	return p, nil
}

// room flushes if one more would not fit, so the buffer never holds more than the bounds and one item.
func (b *Buffer[O, Q]) room(size int, flush func() error) error {
	if b.rows >= b.opts.Rows || b.rows > 0 && b.bytes+size > b.opts.Bytes {
		if err := flush(); err != nil {
			return err
		}
	}
	b.rows++
	b.bytes += size
	b.stats.Writes++
	b.stats.Bytes += int64(size)
	return nil
}

// group is the last group of an outbox or queue, or a new one behind it if the inbox differs. There are few
// groups. Messages that other outboxes have given to the inbox since come first: of two with one id, the
// first is published.
func (b *Buffer[O, Q]) group(name, inbox string, jobs bool) *Group[O, Q] {
	for _, g := range slices.Backward(b.groups) {
		if other := g.Name != name || (g.Jobs != nil) != jobs; other && (inbox == "" || g.Inbox != inbox) {
			continue
		} else if other || g.Inbox != inbox {
			break
		}
		g.last = b.stats.Writes
		return g
	}
	g := &Group[O, Q]{Name: name, Inbox: inbox, first: b.stats.Writes, last: b.stats.Writes}
	b.groups = append(b.groups, g)
	return g
}

// Rows is how many messages and jobs are buffered.
func (b *Buffer[O, Q]) Rows() int { return b.rows }

// Locks reports whether writing them may wait for other transactions. Dedup keys and an inbox's ids are locked in the order
// in which they are written, so they must be written before another lock.
func (b *Buffer[O, Q]) Locks() bool { return b.once }

// Take empties the buffer, and counts the reason.
func (b *Buffer[O, Q]) Take(reason penstock.FlushReason) *Flush[O, Q] {
	f := &Flush[O, Q]{Groups: b.groups, began: time.Now()}
	b.stats.Flushes[reason]++
	b.stats.Statements += len(f.Groups)
	b.clear()
	return f
}

func (b *Buffer[O, Q]) clear() { b.groups, b.rows, b.bytes, b.once = nil, 0, 0, false }

// Settle reports the result of a flush to the calls that wait for it, and returns its error with the operation that
// failed.
func (b *Buffer[O, Q]) Settle(f *Flush[O, Q]) (err error) {
	b.stats.FlushTime += f.took
	if f.err != nil {
		err = explain(f.Groups[f.failed], f.err)
	}
	for _, g := range f.Groups {
		for i, p := range g.pending {
			if p.err = err; err == nil {
				p.made = append(p.made, g.Made[i])
			}
		}
	}
	return err
}

// explain names the operation that failed. The server reports the failed statement, not the row.
func explain[O, Q any](g *Group[O, Q], err error) error {
	switch n := len(g.Messages) + len(g.Jobs); {
	case n == 1:
		return fmt.Errorf("write buffer: operation %d of the transaction: %w", g.first, err)
	default:
		return fmt.Errorf("write buffer: one of %d operations of the transaction, from %d to %d: %w", n, g.first, g.last, err)
	}
}

// errRolledBack is for jobs that were never written.
var errRolledBack = errors.New("the jobs were rolled back before they were written")

// Discard empties the buffer.
func (b *Buffer[O, Q]) Discard() {
	for _, g := range b.groups {
		for _, p := range g.pending {
			p.err = errRolledBack
		}
	}
	b.clear()
}

// Writes reports whether a statement is one of those in AcrossWrites. Any other statement, and one that begins with a comment, causes
// a flush.
func Writes(sql string) bool {
	verb, _, _ := strings.Cut(strings.TrimSpace(sql), " ")
	switch strings.ToLower(verb) {
	case "insert", "update", "delete", "merge":
		return true
	}
	return false
}

// Stats returns a copy.
func (b *Buffer[O, Q]) Stats() penstock.BufferStats {
	s := b.stats
	s.Flushes = maps.Clone(s.Flushes)
	return s
}

// pending are the jobs of one call.
type pending struct {
	ask  func(context.Context) error
	made []penstock.Enqueued
	most int
	err  error
}

// Enqueued implements penstock.PendingJobs.
func (p *pending) Enqueued(ctx context.Context) ([]penstock.Enqueued, error) {
	if p.err == nil && len(p.made) < p.most {
		if err := p.ask(ctx); err != nil {
			return nil, err
		}
	}
	if p.err != nil {
		return nil, p.err
	}
	return p.made, nil
}
