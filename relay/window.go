package relay

import "github.com/penstock/penstock"

// batch is a fetched batch that is not settled.
type batch struct {
	penstock.Batch
	entries []entry // one per message
	left    int     // messages without a verdict
	bytes   int

	// verdicts is nil until a message is refused or parked; of those that have
	// none yet it keeps the failures.
	verdicts     []penstock.Verdict
	parked, dead int
	marked       []*lane // that have a mark because of this batch
	tried        bool    // it was passed to Settle
}

// decide sets the verdict, or what is to become it, of one message.
func (b *batch) decide(index uint32, v penstock.Verdict) {
	if b.verdicts == nil {
		b.verdicts = make([]penstock.Verdict, len(b.Messages))
	}
	b.verdicts[index] = v
}

// settled is the outcome of a batch of which every message has its verdict.
func (b *batch) settled() penstock.Settled {
	if b.parked+b.dead == 0 {
		return penstock.Settled{Batch: b.Batch}
	}
	return penstock.Settled{Batch: b.Batch, Verdicts: b.verdicts}
}

// window is what is fetched and not settled, oldest first, and its limits. It
// settles as a prefix: however far ahead later batches are, the cursor moves no
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
func (w *window) room() (penstock.Limit, bool) {
	quarter := penstock.Limit{Messages: max(w.maxMessages/4, 1), Bytes: max(w.maxBytes/4, 1)}
	return quarter, w.maxMessages-w.messages >= quarter.Messages && w.maxBytes-w.bytes >= quarter.Bytes
}

// fill returns a batch for b's messages, with their entries.
func (w *window) fill(b penstock.Batch) *batch {
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

// settled removes the n leading batches and returns how many messages they had.
func (w *window) settled(n int) int {
	messages := 0
	for _, b := range w.batches[:n] {
		messages += len(b.Messages)
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
	return messages
}

// forget empties the window. Its batches are not used again, because a running
// Send may still hold their entries.
func (w *window) forget() {
	w.batches = nil
	w.messages, w.bytes = 0, 0
	w.done, w.doneMessages, w.doneBytes = 0, 0, 0
}
