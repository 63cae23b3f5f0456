package nats

import (
	"context"
	"sync"

	"github.com/penstock/penstock"
)

// window limits the messages and bytes that all Sends together have published and that are not
// acknowledged. The server queues messages that it has not stored yet, and refuses more when that
// queue is full.
type window struct {
	mu       sync.Mutex
	messages int // free
	bytes    int // free
	whole    [2]int
	waiting  chan struct{} // closed when there is room again; nil if no Send waits
}

func newWindow(messages, bytes int) *window {
	return &window{messages: messages, bytes: bytes, whole: [2]int{messages, bytes}}
}

// take reserves room for as many as fit of the first n of msgs, at least one. While not even one
// fits, it waits. A message larger than the whole window passes when no other is in flight.
func (w *window) take(ctx context.Context, quit <-chan struct{}, msgs []penstock.Message) (n int, err error) {
	for {
		w.mu.Lock()
		for n < len(msgs) && w.messages > 0 {
			size := footprint(&msgs[n])
			if size > w.bytes && w.messages < w.whole[0] {
				break
			}
			w.messages--
			w.bytes -= size
			n++
		}
		if n > 0 {
			w.mu.Unlock()
			return n, nil
		}
		if w.waiting == nil {
			w.waiting = make(chan struct{})
		}
		room := w.waiting
		w.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-quit:
			return 0, penstock.ErrClosed
		}
	}
}

// give returns the room of n messages of size bytes in sum. It wakes waiting Sends only when a
// quarter of the window is free. So they publish many at a time, and not one per acknowledgement.
func (w *window) give(n, size int) {
	w.mu.Lock()
	w.messages += n
	w.bytes += size
	if w.waiting != nil && (w.messages*4 >= w.whole[0] && w.bytes*4 >= w.whole[1]) {
		close(w.waiting)
		w.waiting = nil
	}
	w.mu.Unlock()
}

// footprint is about how many bytes of a message the server holds.
func footprint(m *penstock.Message) int { return m.Size() }
