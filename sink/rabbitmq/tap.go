package rabbitmq

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// tap is the reading half of a wire. It passes the library its own frames (the handshake,
// heartbeats, alarms, the end of the connection) and keeps the frames of channels on which
// messages are published.
type tap struct {
	in      *bufio.Reader
	pass    int    // bytes of the current frame that the library still gets
	foreign bool   // it is not AMQP; the library may interpret it
	scratch []byte // the payload of the current frame

	mu  sync.Mutex
	own map[uint16]receiver
}

// receiver is a channel. Its frames come one after another; the payload is
// valid during the call only, and an error ends the connection.
type receiver interface {
	frame(kind byte, payload []byte) error
	// end is called with the connection's.
	end(why *amqp.Error, alone bool)
}

func (t *tap) add(id uint16, r receiver) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.own[id] = r
}

func (t *tap) remove(id uint16) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.own, id)
}

func (t *tap) receiver(id uint16) receiver {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.own[id]
}

func (t *tap) receivers() []receiver {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.own))
}

// Read is called only by the library.
func (t *tap) Read(p []byte) (int, error) {
	for t.pass == 0 && !t.foreign {
		head, err := t.in.Peek(frameHead)
		if err != nil {
			return 0, err
		}
		kind, id, size := head[0], binary.BigEndian.Uint16(head[1:]), int(binary.BigEndian.Uint32(head[3:]))
		r := t.receiver(id)
		switch {
		case kind != frameMethod && kind != frameHeader && kind != frameBody && kind != 8: // 8 is a heartbeat
			t.foreign = true
		case r == nil:
			t.pass = frameHead + size + 1
		case size > frameSize:
			return 0, fmt.Errorf("%w: it has %d bytes", errMalformed, size)
		default:
			if err := t.take(r, kind, size); err != nil {
				return 0, err
			}
		}
	}
	if !t.foreign {
		p = p[:min(len(p), t.pass)]
	}
	n, err := t.in.Read(p)
	t.pass -= n
	return n, err
}

// take hands a whole frame to its receiver.
func (t *tap) take(r receiver, kind byte, size int) error {
	whole := frameHead + size + 1
	if cap(t.scratch) < whole {
		t.scratch = make([]byte, whole)
	}
	frame := t.scratch[:whole]
	if _, err := io.ReadFull(t.in, frame); err != nil {
		return err
	}
	if frame[whole-1] != frameEnd {
		return fmt.Errorf("%w: it does not end", errMalformed)
	}
	return r.frame(kind, frame[frameHead:whole-1])
}

// patience is the library's read deadline, as a duration. The library sets a new one for every
// frame that it sees, and it does not see the tap's; RabbitMQ sends no heartbeats while it sends
// confirms. So any read moves the deadline.
type patience struct {
	after atomic.Int64 // nanoseconds, 0 for no deadline
	moved time.Time    // only the reader touches it
}

// move is called when something was read.
func (p *patience) move(set func(time.Time) error) {
	after := time.Duration(p.after.Load())
	if after == 0 {
		return
	}
	if now := time.Now(); now.Sub(p.moved) > after/8 {
		p.moved = now
		_ = set(now.Add(after)) // fails on a closed connection, as the next Read will
	}
}
