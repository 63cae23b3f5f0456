// Package inflight is the ledger of a subscription's messages in flight: those that were fetched and are not settled,
// batch by batch, with their verdicts. It has the verdicts for the next call of Settle, and knows which are durable
// when that is answered. So a store need not remember verdicts.
package inflight

import (
	"time"

	"github.com/penstock/penstock/driver"
)

// Batch is a fetched batch that is not settled. Of is the reader's own data about it.
type Batch[T any] struct {
	driver.Batch
	Of    T
	Bytes int
	Since time.Time // it is in the ledger

	stages  []stage // of its messages
	left    int     // messages without a verdict
	durable int     // messages whose verdicts are durable
	failed  bool    // some have a verdict other than Delivered
	// verdicts is nil until there is something to note about a message. For a message without a
	// verdict it has the verdict of Note.
	verdicts []driver.Verdict
}

// stage is the progress of a message.
type stage uint8

const (
	open stage = iota
	decided
	durable
)

// Note keeps details of a message that has no verdict yet, for example its failures.
func (b *Batch[T]) Note(i uint32, v driver.Verdict) {
	if b.verdicts == nil {
		b.verdicts = make([]driver.Verdict, len(b.Messages))
	}
	b.verdicts[i] = v
}

// Noted returns the note about a message.
func (b *Batch[T]) Noted(i uint32) (v driver.Verdict) {
	if b.verdicts != nil {
		v = b.verdicts[i]
	}
	return v
}

// Decide gives a message a verdict other than Delivered.
func (b *Batch[T]) Decide(i uint32, v driver.Verdict) {
	b.Note(i, v)
	b.failed = true
	b.stages[i] = decided
	b.left--
}

// Deliver gives a message the verdict Delivered.
func (b *Batch[T]) Deliver(i uint32) {
	if b.verdicts != nil {
		b.verdicts[i] = driver.Verdict{}
	}
	b.stages[i] = decided
	b.left--
}

// Ledger lists the messages in flight, oldest first, and its limits. Batches leave it only as a prefix: however far later batches
// have got, the cursor moves only to the first message without a verdict. Not safe for concurrent use.
type Ledger[T any] struct {
	MaxMessages, MaxBytes int

	batches         []*Batch[T]
	messages, bytes int
	// done batches are first, and all their messages have verdicts.
	done, doneMessages, doneBytes int

	call       Call[T] // the last one
	unanswered bool
	spares     []*Batch[T]
}

// Call is a call of Settle.
type Call[T any] struct {
	Attempt uint64
	News    []driver.Settled
	Of      []*Batch[T] // with the reported verdicts
	// Withheld are keys of which a verdict waits for an earlier message.
	Withheld map[string]bool

	passes int // leading batches
}

// Tally counts messages with their verdicts.
type Tally struct{ Messages, Parked, Dead int }

// Room returns the limit of the next Fetch. A fetch takes a quarter of the messages that may be in flight, and there is no
// room before a quarter is free. So fetches are not tiny when the ledger is nearly full, and not so large that nothing
// overlaps.
func (l *Ledger[T]) Room() (driver.Limit, bool) {
	quarter := driver.Limit{Messages: max(l.MaxMessages/4, 1), Bytes: max(l.MaxBytes/4, 1)}
	return quarter, l.MaxMessages-l.messages >= quarter.Messages && l.MaxBytes-l.bytes >= quarter.Bytes
}

// Messages in flight.
func (l *Ledger[T]) Messages() int { return l.messages }

// Batches in flight, oldest first.
func (l *Ledger[T]) Batches() []*Batch[T] { return l.batches }

// Ready reports whether the first batches have all their verdicts.
func (l *Ledger[T]) Ready() bool { return l.done > 0 }

// Pressing reports whether at least half of the permitted messages wait for the cursor to be written.
func (l *Ledger[T]) Pressing() bool {
	return l.done > 0 && (2*l.doneMessages >= l.MaxMessages || 2*l.doneBytes >= l.MaxBytes)
}

// Oldest returns since when the oldest batch that waits for a verdict is in flight; zero if there
// is none.
func (l *Ledger[T]) Oldest() (since time.Time) {
	if l.done < len(l.batches) {
		since = l.batches[l.done].Since
	}
	return since
}

// Batch makes a batch from fetched messages. It may reuse a settled one: then Of is unchanged.
func (l *Ledger[T]) Batch(fetched driver.Batch) *Batch[T] {
	n, b := len(fetched.Messages), &Batch[T]{}
	if last := len(l.spares) - 1; last >= 0 && n <= cap(l.spares[last].stages) && 4*n >= cap(l.spares[last].stages) {
		b, l.spares = l.spares[last], l.spares[:last]
		clear(b.stages[:n])
	} else {
		b.stages = make([]stage, n)
	}
	*b = Batch[T]{Batch: fetched, Of: b.Of, stages: b.stages[:n], left: n}
	return b
}

// Add appends a batch.
func (l *Ledger[T]) Add(b *Batch[T]) {
	l.batches = append(l.batches, b)
	l.messages += len(b.Messages)
	l.bytes += b.Bytes
}

// Advance counts the leading batches that have all their verdicts and reports whether there are more than before.
func (l *Ledger[T]) Advance() bool {
	before := l.done
	for l.done < len(l.batches) && l.batches[l.done].left == 0 {
		l.doneMessages += len(l.batches[l.done].Messages)
		l.doneBytes += l.batches[l.done].Bytes
		l.done++
	}
	return l.done > before
}

// Settle is the next call of Settle, without News if there are none. It has the leading batches that have their verdicts.
// If parts are asked for, it also has the new verdicts of other batches, except this many of the last ones. A call that
// was not answered is repeated unchanged, and isNew is false.
func (l *Ledger[T]) Settle(parts bool, but int) (c Call[T], isNew bool) {
	if l.unanswered {
		return l.call, false
	}
	c = Call[T]{Attempt: l.call.Attempt, News: l.call.News[:0], Of: l.call.Of[:0], passes: l.done}
	for _, b := range l.batches[:l.done] {
		c.add(b, driver.Settled{Batch: b.Batch, Verdicts: b.whole()})
	}
	rest := l.batches[l.done:max(l.done, len(l.batches)-but)]
	for len(rest) > 0 && (!parts || rest[len(rest)-1].told()) {
		rest = rest[:len(rest)-1]
	}
	waiting := map[string]bool{}
	for _, b := range rest {
		if verdicts, some := c.part(b, waiting); some {
			c.add(b, driver.Settled{Batch: b.Batch, Verdicts: verdicts, Open: true})
		}
	}
	if len(c.News) > 0 {
		c.Attempt++
		l.call, l.unanswered, isNew = c, true, true
	}
	return c, isNew
}

// told reports that all its verdicts are durable.
func (b *Batch[T]) told() bool { return len(b.stages)-b.left == b.durable }

func (c *Call[T]) add(b *Batch[T], s driver.Settled) {
	c.News, c.Of = append(c.News, s), append(c.Of, b)
}

// whole is the news about a batch whose messages all have their verdicts.
func (b *Batch[T]) whole() []driver.Verdict {
	switch {
	case b.durable > 0:
		verdicts, _ := new(Call[T]).part(b, map[string]bool{})
		return verdicts
	case b.failed:
		return b.verdicts
	}
	return nil
}

// part is the news about a batch, if there is any. waiting are the keys of earlier messages without a verdict; those of this
// batch are added. A message behind such a message must not be in the store before it. Otherwise, when the earlier one came
// again, it would be parked behind the later one.
func (c *Call[T]) part(b *Batch[T], waiting map[string]bool) (verdicts []driver.Verdict, some bool) {
	verdicts = make([]driver.Verdict, len(b.stages))
	for i, at := range b.stages {
		verdicts[i].Outcome = driver.Undecided
		key := b.Messages[i].Key
		inOrder := key != "" && b.Order(i) != driver.OutOfOrder
		switch {
		case at == open && inOrder:
			waiting[key] = true
		case at == decided && inOrder && waiting[key]:
			if c.Withheld == nil {
				c.Withheld = map[string]bool{}
			}
			c.Withheld[key] = true
		case at == decided:
			verdicts[i], some = b.Noted(uint32(i)), true
		}
	}
	return verdicts, some
}

// Settled notes that the call is durable, and counts its news. The batches that it passes leave the ledger.
func (l *Ledger[T]) Settled() (t Tally) {
	c := &l.call
	for i, b := range c.Of {
		t.add(b.keep(c.News[i].Verdicts))
	}
	for _, b := range l.batches[:c.passes] {
		l.messages -= len(b.Messages)
		l.doneMessages -= len(b.Messages)
		l.bytes -= b.Bytes
		l.doneBytes -= b.Bytes
		*b = Batch[T]{Of: b.Of, stages: b.stages}
		if len(l.spares) < 8 {
			l.spares = append(l.spares, b)
		}
	}
	l.done -= c.passes
	rest := copy(l.batches, l.batches[c.passes:])
	clear(l.batches[rest:])
	l.batches = l.batches[:rest]
	l.unanswered = false
	clear(c.News)
	clear(c.Of)
	return t
}

// keep notes that these verdicts are durable.
func (b *Batch[T]) keep(verdicts []driver.Verdict) (t Tally) {
	if verdicts == nil {
		return Tally{Messages: len(b.stages)}
	}
	for i := range verdicts {
		switch verdicts[i].Outcome {
		case driver.Undecided:
			continue
		case driver.Parked:
			t.Parked++
		case driver.Dead:
			t.Dead++
		}
		b.stages[i] = durable
		t.Messages++
	}
	b.durable += t.Messages
	return t
}

func (t *Tally) add(d Tally) {
	t.Messages += d.Messages
	t.Parked += d.Parked
	t.Dead += d.Dead
}

// Forget empties the ledger: its messages will be fetched again. Its batches are not reused, because a running Send may still
// give them verdicts.
func (l *Ledger[T]) Forget() {
	l.batches = nil
	l.messages, l.bytes = 0, 0
	l.done, l.doneMessages, l.doneBytes = 0, 0, 0
	l.call, l.unanswered = Call[T]{Attempt: l.call.Attempt}, false // its slices may be in use
}
