package kafka

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
)

// flight is records that are sent together, and which of them failed.
type flight struct {
	// scouts are one record per topic that the producer does not know yet. The library holds them
	// back until it has asked about the topic, so their order is not known.
	scouts []*kgo.Record
	// line are records of known topics. Those of one key go to one partition
	// and arrive in this order; if one fails, those behind it do too.
	line []*kgo.Record

	placed atomic.Int64  // of the line: in their partitions, each in its turn
	left   atomic.Int64  // records without an answer
	done   chan struct{} // closed when there are none

	mu       sync.Mutex
	failures map[*kgo.Record]error
}

// answer is the library's promise: it is called once for every record.
func (f *flight) answer(r *kgo.Record, err error) {
	if err != nil {
		f.mu.Lock()
		if f.failures == nil {
			f.failures = map[*kgo.Record]error{}
		}
		f.failures[r] = err
		f.mu.Unlock()
	}
	if f.left.Add(-1) == 0 {
		close(f.done)
	}
}

// failed reports whether a record of the line has failed.
func (f *flight) failed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	scouts := 0
	for _, r := range f.scouts {
		if f.failures[r] != nil {
			scouts++
		}
	}
	return len(f.failures) > scouts
}

// place is called for each record that the library has put into its partition.
func (f *flight) place(r *kgo.Record) {
	if i := int(f.placed.Load()); i < len(f.line) && f.line[i] == r {
		f.placed.Store(int64(i + 1))
	}
}

// fly sends a flight and returns when each record has its answer, soon after ctx ends at the
// latest. After that nothing refers to the messages any more.
//
// The library fails all records that wait for one partition together, but accepts one that it gets
// after a failure. So all records are put into place first, while none can be sent. The line is
// released only when all of it is in place, in order and without a failure.
func (p *producer) fly(ctx context.Context, f *flight) {
	f.left.Store(int64(len(f.scouts) + len(f.line)))
	f.done = make(chan struct{})
	if err := ctx.Err(); err != nil {
		for _, r := range slices.Concat(f.scouts, f.line) {
			f.answer(r, err)
		}
		return
	}
	if p.place(f) {
		p.valve.open()
		if err := p.client.Flush(ctx); err != nil {
			p.end(errAbandoned)
		}
	} else {
		p.end(errChanged)
	}
	<-f.done
	p.flight.Store(nil)
}

// place gives the library the records and reports whether the line has found its
// place. The valve stays shut.
func (p *producer) place(f *flight) bool {
	p.valve.close()
	p.flight.Store(f)
	p.flights.Add(1)
	p.repartitioned.Store(false)

	// The library gets a context without an end. If it called back a record that is in flight, the
	// producer's sequence would have a gap.
	always, answer := context.Background(), f.answer
	for _, r := range f.scouts {
		p.client.Produce(always, r, answer)
	}
	for _, r := range f.line {
		p.client.Produce(always, r, answer)
	}
	p.awaitAnswers()
	return int(f.placed.Load()) == len(f.line) && !f.failed() && !p.repartitioned.Load()
}

// awaitAnswers returns when the library has given every answer that it knows by now. It gives
// answers in the order in which they arise, including those to records that cannot be sent; this
// record is one, because it has no topic.
func (p *producer) awaitAnswers() {
	answered := make(chan struct{})
	p.client.Produce(context.Background(), &kgo.Record{}, func(*kgo.Record, error) { close(answered) })
	<-answered
}
