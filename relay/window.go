package relay

import (
	"time"

	"github.com/penstock/penstock/driver"
)

// batch is a fetched batch that is not settled.
type batch struct {
	driver.Batch
	entries []entry // one per message
	left    int     // messages without a verdict
	bytes   int
	since   time.Time // it is in the window

	// verdicts is nil until a message is refused or parked; of those that have
	// none yet it keeps the failures.
	verdicts []driver.Verdict
	parked   int // verdicts
	dead     int
	settled  tally   // the part of them that is durable
	parking  []*lane // that have a park point because of this batch
}

// tally counts messages that have their verdicts.
type tally struct{ messages, parked, dead int }

func (t *tally) add(d tally) {
	t.messages += d.messages
	t.parked += d.parked
	t.dead += d.dead
}

// decide sets the verdict, or what is to become it, of one message.
func (b *batch) decide(index uint32, v driver.Verdict) {
	if b.verdicts == nil {
		b.verdicts = make([]driver.Verdict, len(b.Messages))
	}
	b.verdicts[index] = v
}

// whole is the outcome of a batch of which every message has its verdict.
func (b *batch) whole() driver.Settled {
	if b.parked+b.dead == 0 {
		return driver.Settled{Batch: b.Batch}
	}
	return driver.Settled{Batch: b.Batch, Verdicts: b.verdicts}
}

// part is what is known of the outcome of a batch, and whether there is anything
// that is not durable. waiting, unless it is nil, are the keys that have messages
// without a verdict ahead of this batch, and gets those of this one: what is to be
// parked behind such a message must not be in the store before it. Should it come
// again, it would be parked behind the other.
func (b *batch) part(waiting map[string]bool) (p driver.Settled, news bool) {
	p = driver.Settled{Batch: b.Batch, Verdicts: make([]driver.Verdict, len(b.entries))}
	for i := range b.entries {
		e, v := &b.entries[i], &p.Verdicts[i]
		if e.done && b.verdicts != nil {
			*v = b.verdicts[i]
		}
		key := b.Messages[i].Key
		switch inOrder := waiting != nil && key != "" && e.order() != driver.OutOfOrder; {
		case !e.done:
			v.Outcome = driver.Undecided
			if inOrder {
				waiting[key] = true
			}
		case inOrder && v.Outcome == driver.Parked && waiting[key]:
			*v = driver.Verdict{Outcome: driver.Undecided}
		default:
			news = news || !e.durable
		}
	}
	return p, news
}

// keep notes that these verdicts are durable, and counts those that were not.
func (b *batch) keep(verdicts []driver.Verdict) (t tally) {
	for i := range verdicts {
		e := &b.entries[i]
		if e.durable || verdicts[i].Outcome == driver.Undecided {
			continue
		}
		e.durable = true
		t.messages++
		switch verdicts[i].Outcome {
		case driver.Parked:
			t.parked++
		case driver.Dead:
			t.dead++
		}
	}
	b.settled.add(t)
	return t
}

// window is what is fetched and not settled, oldest first, and its limits. It
// leaves as a prefix: however far ahead later batches are, the cursor moves no
// further than to the first batch that waits for a verdict. Not safe for
// concurrent use.
type window struct {
	maxMessages, maxBytes int

	batches         []*batch
	messages, bytes int

	// done batches lead the window, and all their messages have verdicts.
	done, doneMessages, doneBytes int

	spares []*batch
}

// room returns what the next Fetch may return. A fetch takes a quarter of the
// window, and there is no room before a quarter is free: so that fetches are
// neither tiny when the window is nearly full, nor so large that nothing
// overlaps.
func (w *window) room() (driver.Limit, bool) {
	quarter := driver.Limit{Messages: max(w.maxMessages/4, 1), Bytes: max(w.maxBytes/4, 1)}
	return quarter, w.maxMessages-w.messages >= quarter.Messages && w.maxBytes-w.bytes >= quarter.Bytes
}

// fill returns a batch for b's messages, with their entries.
func (w *window) fill(b driver.Batch) *batch {
	n := len(b.Messages)
	var t *batch
	if last := len(w.spares) - 1; last >= 0 && n <= cap(w.spares[last].entries) && 4*n >= cap(w.spares[last].entries) {
		t, w.spares = w.spares[last], w.spares[:last]
	} else {
		t = &batch{entries: make([]entry, n)}
	}
	*t = batch{Batch: b, entries: t.entries[:n], left: n}
	return t
}

func (w *window) push(b *batch) {
	w.batches = append(w.batches, b)
	w.messages += len(b.Messages)
	w.bytes += b.bytes
}

// advance counts the leading batches that have all their verdicts and reports
// whether there are more than before.
func (w *window) advance() bool {
	before := w.done
	for w.done < len(w.batches) && w.batches[w.done].left == 0 {
		w.doneMessages += len(w.batches[w.done].Messages)
		w.doneBytes += w.batches[w.done].bytes
		w.done++
	}
	return w.done > before
}

// pressing reports whether at least half of the window waits for the cursor to
// be written.
func (w *window) pressing() bool {
	return w.done > 0 && (2*w.doneMessages >= w.maxMessages || 2*w.doneBytes >= w.maxBytes)
}

// parts adds the verdicts of batches that are not done, where there is news; if the
// last one is not in lanes yet, not of that. waiting are the keys of which something may
// have been left out.
func (w *window) parts(settled []driver.Settled, of []*batch, enqueuing bool) (_ []driver.Settled, _ []*batch, waiting map[string]bool) {
	open := w.batches[w.done:]
	if n := len(open); enqueuing && n > 0 {
		open = open[:n-1]
	}
	for _, b := range open {
		if b.parked > b.settled.parked {
			waiting = map[string]bool{}
		}
	}
	for _, b := range open {
		if waiting == nil && len(b.entries)-b.left == b.settled.messages {
			continue
		}
		if p, news := b.part(waiting); news {
			settled, of = append(settled, p), append(of, b)
		}
	}
	return settled, of, waiting
}

// settled removes the n leading batches and returns what was not durable of them.
func (w *window) settled(n int) (t tally) {
	messages := 0
	for _, b := range w.batches[:n] {
		messages += len(b.Messages)
		t.add(tally{len(b.Messages) - b.settled.messages, b.parked - b.settled.parked, b.dead - b.settled.dead})
		w.bytes -= b.bytes
		w.doneBytes -= b.bytes
		*b = batch{entries: b.entries}
		if len(w.spares) < 8 {
			w.spares = append(w.spares, b)
		}
	}
	w.messages -= messages
	w.doneMessages -= messages
	w.done -= n
	rest := copy(w.batches, w.batches[n:])
	clear(w.batches[rest:])
	w.batches = w.batches[:rest]
	return t
}

// forget empties the window. Its batches are not used again, because a running
// Send may still hold their entries.
func (w *window) forget() {
	w.batches = nil
	w.messages, w.bytes = 0, 0
	w.done, w.doneMessages, w.doneBytes = 0, 0, 0
}
