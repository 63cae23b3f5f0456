package rabbitmq

import (
	"bufio"
	"context"
	"net"
	"sync"
	"time"
)

// wire is a connection that the AMQP library and this package share. The
// library makes it, keeps it alive and ends it; it sees nothing of the messages
// and their confirms. Both write whole frames.
//
// Writes gather in a buffer, and one goroutine hands them to the kernel: all that came while its
// last call ran. While a Send holds it back, it hands over several at a time. Writing never blocks,
// so it may happen with locks held. A publisher asks for room first, with a context.
type wire struct {
	net.Conn
	tap  tap
	idle patience

	mu      sync.Mutex
	work    sync.Cond // for the writing goroutine
	filling []byte
	writing []byte
	holders int
	err     error         // the first failure; nothing is written after it
	room    chan struct{} // closed when the buffer is taken; nil if no Send waits
}

const (
	// wireBatch is how many bytes make a system call worthwhile while more are coming.
	wireBatch = 32 << 10
	// wireLimit is how much may wait for the kernel before publishing pauses.
	wireLimit = 256 << 10
	// wireKeep is the largest buffer that is used again.
	wireKeep = 1 << 20
)

// newWire starts the writing goroutine, which ends with Close.
func newWire(conn net.Conn) *wire {
	w := &wire{Conn: conn}
	w.work.L = &w.mu
	w.tap.in = bufio.NewReaderSize(readerFunc(w.fromNetwork), 16<<10)
	w.tap.own = map[uint16]receiver{}
	go w.run()
	return w
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func (w *wire) fromNetwork(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	w.idle.move(w.Conn.SetReadDeadline)
	return n, err
}

// Read returns the library's share of the broker's bytes.
func (w *wire) Read(p []byte) (int, error) { return w.tap.Read(p) }

// SetReadDeadline is called by the library to notice a dead connection.
func (w *wire) SetReadDeadline(t time.Time) error {
	w.idle.after.Store(int64(max(0, time.Until(t))))
	return w.Conn.SetReadDeadline(t)
}

// SetDeadline is called by the library for the handshake and at the end.
func (w *wire) SetDeadline(t time.Time) error {
	w.idle.after.Store(0)
	return w.Conn.SetDeadline(t)
}

func (w *wire) run() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		for w.err == nil && (len(w.filling) == 0 || w.holders > 0 && len(w.filling) < wireBatch) {
			w.work.Wait()
		}
		if w.err != nil {
			return
		}
		w.filling, w.writing = w.writing[:0], w.filling
		w.wakeWaiting()
		w.mu.Unlock()
		_, err := w.Conn.Write(w.writing)
		if cap(w.writing) > wireKeep {
			w.writing = nil
		}
		w.mu.Lock()
		if err != nil {
			w.fail(err)
			// The library reads on a broken connection until it learns of it.
			_ = w.Conn.Close()
		}
	}
}

// Write accepts all of p, or returns the error that broke the connection.
func (w *wire) Write(p []byte) (int, error) {
	err := w.append(func(buf []byte) []byte { return append(buf, p...) })
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// append lets more write to the end of the buffer.
func (w *wire) append(more func(buf []byte) []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	w.filling = more(w.filling)
	if w.holders == 0 || len(w.filling) >= wireBatch {
		w.work.Signal()
	}
	return nil
}

// hold announces more writes until release, to collect small ones.
func (w *wire) hold() {
	w.mu.Lock()
	w.holders++
	w.mu.Unlock()
}

func (w *wire) release() {
	w.mu.Lock()
	w.holders--
	if w.holders == 0 {
		w.work.Signal()
	}
	w.mu.Unlock()
}

// await waits until there is room for another message. A broken connection has room: the write
// then reports the cause.
func (w *wire) await(ctx context.Context) error {
	for {
		w.mu.Lock()
		if w.err != nil || len(w.filling) < wireLimit {
			w.mu.Unlock()
			return nil
		}
		if w.room == nil {
			w.room = make(chan struct{})
		}
		room := w.room
		w.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Close closes the connection. Bytes that are still in the buffer are lost.
func (w *wire) Close() error {
	w.mu.Lock()
	w.fail(net.ErrClosed)
	w.mu.Unlock()
	return w.Conn.Close()
}

// fail and wakeWaiting are called with mu held.
func (w *wire) fail(err error) {
	if w.err == nil {
		w.err = err
	}
	w.work.Signal()
	w.wakeWaiting()
}

func (w *wire) wakeWaiting() {
	if w.room != nil {
		close(w.room)
		w.room = nil
	}
}
