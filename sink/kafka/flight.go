package kafka

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// flight is records on their way, and which of them failed.
type flight struct {
	records  []kgo.Record
	messages []int // which message each record is, in the order of records

	left atomic.Int64  // records without an answer
	done chan struct{} // closed when there are none

	mu       sync.Mutex
	failures map[*kgo.Record]error
}

func newFlight(n int) *flight {
	return &flight{records: make([]kgo.Record, 0, n), messages: make([]int, 0, n), done: make(chan struct{})}
}

// only is a flight of some of f's records, by their places in it.
func (f *flight) only(which []int) *flight {
	part := newFlight(len(which))
	for _, i := range which {
		r := &f.records[i]
		part.records = append(part.records, kgo.Record{Topic: r.Topic, Key: r.Key, Value: r.Value, Headers: r.Headers, Timestamp: r.Timestamp})
		part.messages = append(part.messages, f.messages[i])
	}
	return part
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

// error is the answer to record i, once done is closed.
func (f *flight) error(i int) error { return f.failures[&f.records[i]] }

// grace is how long the library gets to call back what a Send no longer waits
// for. After that its client is closed, which answers everything.
const grace = 500 * time.Millisecond

// fly produces the records and returns when each has its answer: soon after ctx
// ends at the latest. Then nothing refers to the messages any more.
func (p *producer) fly(ctx context.Context, f *flight) {
	if len(f.records) == 0 {
		return
	}
	f.left.Store(int64(len(f.records)))
	answer := f.answer
	for i := range f.records {
		if err := ctx.Err(); err != nil {
			answer(&f.records[i], err)
			continue
		}
		p.client.Produce(ctx, &f.records[i], answer)
	}
	select {
	case <-f.done:
		return
	case <-p.ended: // its client is being closed
	case <-ctx.Done():
		p.up.Store(false) // the next Send asks first
		patience := time.NewTimer(grace)
		defer patience.Stop()
		select {
		case <-f.done:
			return
		case <-p.ended:
		case <-patience.C:
			p.end(errAbandoned)
		}
	}
	<-f.done
}
