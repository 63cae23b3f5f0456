package rabbitmq

import (
	"context"
	"fmt"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"
	"golang.org/x/sync/semaphore"
)

// channel is an AMQP channel in confirm mode. Several Sends share it.
//
// The broker counts the messages published on a channel; an ack or a nack names that number, its
// delivery tag, or the last of several. A message that had nowhere to go is acked too, and returned
// before that. A return carries no tag. It is about a message that waits for its answer and has the
// returned message id. More than one may have it, if a Send gave up on a message and the next has
// begun. Then none of them counts as delivered.
type channel struct {
	conn *connection
	id   uint16

	slots *semaphore.Weighted // as many as pending has room for
	ready chan struct{}       // closed when it is open, in confirm mode
	gone  chan struct{}       // closed when it is

	mu      sync.Mutex
	closed  bool
	retired bool        // no Send begins on it any more
	leaving bool        // the broker knows
	err     *amqp.Error // why, nil if it was this side
	alone   bool        // the connection is still good
	pending []entry     // a ring: tag t is at t % len
	first   uint64      // the oldest tag that waits for its answer
	next    uint64      // the tag of the next message

	// Between the method and the header of a returned message. Only the reader
	// touches it.
	returning *returned
}

// entry is a message that waits for its answer. Without a batch it has one and
// waits for those before it.
type entry struct {
	batch *batch
	n     int // which of the batch
}

// returned is the broker's answer about a message it could not route.
type returned struct {
	exchange, key string
}

// newChannel asks the broker for a channel, which is usable once ready is closed.
func newChannel(conn *connection, id uint16) *channel {
	c := &channel{
		conn: conn, id: id,
		slots:   semaphore.NewWeighted(int64(conn.cfg.MaxPending)),
		ready:   make(chan struct{}),
		gone:    make(chan struct{}),
		pending: make([]entry, conn.cfg.MaxPending),
		first:   1, next: 1,
	}
	conn.wire.tap.add(id, c)
	c.write(channelOpen, 0)
	c.write(confirmSelect, 0)
	return c
}

func (c *channel) broken() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed || c.retired
}

// retire is for a channel on which a Send was refused completely: the next Sends get another. A
// channel may be opened while a quorum queue has no leader, as when a node dies. Then the queue
// refuses everything on it permanently, long after the queue is back.
func (c *channel) retire() {
	c.retired = true
	if c.first == c.next {
		c.goodbye()
	}
}

// publish writes messages of a batch from the n-th on: at least one, and few enough not to delay
// the reader. It returns where to continue, and false if the channel has ended.
func (c *channel) publish(b *batch, n int) (next int, ok bool) {
	const few = 32
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.leaving {
		return n, false
	}
	err := c.conn.wire.append(func(buf []byte) []byte {
		f := frames{buf: buf, channel: c.id}
		for last := min(n+few, len(b.todo)); n < last; {
			f.publish(&b.msgs[b.todo[n]], c.conn.cfg.Exchange, b.keys[n], c.conn.cfg.CreatedAtHeader, c.conn.frame)
			*c.entry(c.next) = entry{b, n}
			c.next++
			n++
			if len(f.buf) >= wireLimit {
				break
			}
		}
		return f.buf
	})
	return n, err == nil
}

// frame handles a frame of this channel.
func (c *channel) frame(kind byte, payload []byte) error {
	switch kind {
	case frameMethod:
		a := arguments{rest: payload}
		m := method(a.uint16())<<16 | method(a.uint16())
		if err := c.method(m, &a); err != nil {
			return err
		}
		if a.bad {
			return fmt.Errorf("%w: method %d.%d", errMalformed, m>>16, m&0xffff)
		}
	case frameHeader:
		r := c.returning
		if r == nil {
			return fmt.Errorf("%w: content of nothing", errMalformed)
		}
		c.returning = nil
		id, err := messageID(payload)
		if err != nil {
			return err
		}
		c.returns(id, r)
	}
	return nil // the bodies of returned messages are of no interest
}

func (c *channel) method(m method, a *arguments) error {
	switch m {
	case channelOpenOK:
	case confirmSelectOK:
		select {
		case <-c.ready:
			return fmt.Errorf("%w: confirm.select-ok twice", errMalformed)
		default:
			close(c.ready)
		}
	case basicAck, basicNack:
		tag, flags := a.uint64(), a.uint8()
		if a.bad {
			return nil // the caller reports it; half an ack does not count
		}
		return c.answer(tag, flags&1 != 0, m == basicAck)
	case basicReturn:
		a.uint16() // code
		a.short()  // text
		c.returning = &returned{exchange: a.short(), key: a.short()}
	case channelClose:
		e := &amqp.Error{Code: int(a.uint16()), Reason: a.short(), Server: true}
		c.end(e, true)
	case channelCloseOK:
		c.end(nil, true)
	default:
		return fmt.Errorf("%w: method %d.%d on a publishing channel", errMalformed, m>>16, m&0xffff)
	}
	return nil
}

// answer takes an ack or a nack for one message, or for all up to it.
func (c *channel) answer(tag uint64, multiple, acked bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	from := tag
	if multiple {
		from = c.first
		if tag == 0 {
			tag = c.next - 1
		}
	}
	if c.closed {
		return nil
	}
	if from < c.first && !multiple || tag >= c.next {
		return fmt.Errorf("%w: an answer to message %d, where %d to %d wait", errMalformed, tag, c.first, c.next-1)
	}
	for t := from; t <= tag; t++ {
		e := c.entry(t)
		if e.batch != nil {
			e.batch.answer(e.n, acked)
			e.batch = nil
		}
	}
	freed := int64(0)
	for c.first < c.next && c.entry(c.first).batch == nil {
		c.first++
		freed++
	}
	c.slots.Release(freed)
	return nil
}

func (c *channel) entry(tag uint64) *entry { return &c.pending[tag%uint64(len(c.pending))] }

// returns finds the messages that a return may be about.
func (c *channel) returns(id string, r *returned) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for t := c.first; t < c.next; t++ {
		if e := c.entry(t); e.batch != nil {
			e.batch.bounce(e.n, id, r)
		}
	}
}

// end ends the channel for every Send that waits on it: alone, with the broker's reason, or
// together with the connection.
//
// A broker that has closed a channel ignores frames on it until it reads the confirmation. Nothing
// may follow that on the wire, hence the lock.
func (c *channel) end(e *amqp.Error, alone bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed, c.err, c.alone = true, e, alone
	c.conn.wire.tap.remove(c.id)
	if alone && e != nil {
		c.write(channelCloseOK)
	}
	for t := c.first; t < c.next; t++ {
		if e := c.entry(t); e.batch != nil {
			e.batch.lose(e.n)
			e.batch = nil
		}
	}
	c.slots.Release(int64(c.next - c.first))
	c.first = c.next
	c.conn.giveBack(c.id)
	close(c.gone)
}

// leave closes the channel gracefully, without waiting for the broker.
func (c *channel) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.goodbye()
}

// goodbye is sent once, and nothing is published after it.
func (c *channel) goodbye() {
	if !c.closed && !c.leaving {
		c.leaving = true
		c.write(channelClose, goodChannel...)
	}
}

// goodChannel is why a channel is closed: code 200, no text, no method to blame.
var goodChannel = []byte{0, 200, 0, 0, 0, 0, 0}

// write appends a method. A broken wire is reported elsewhere.
func (c *channel) write(m method, arguments ...byte) {
	_ = c.conn.wire.append(func(buf []byte) []byte {
		f := frames{buf: buf, channel: c.id}
		f.method(m, arguments...)
		return f.buf
	})
}

// send publishes the messages without waiting in between and then waits for all
// answers. It gives every message its verdict except for the suspects: the
// broker closed the channel over one message, and these had no answer yet.
func (c *channel) send(ctx context.Context, out outgoing) (suspects []int) {
	if err := c.slots.Acquire(ctx, int64(len(out.todo))); err != nil {
		out.errs.setAll(out.todo, c.unanswered(ctx))
		return nil
	}
	b := newBatch(out)
	published, err := c.publishAll(ctx, b)
	c.slots.Release(int64(len(out.todo) - published))
	if err == nil {
		end := b.done
		if published < len(out.todo) {
			end = c.gone // it is closing
		}
		select {
		case <-end:
		case <-ctx.Done():
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return b.finish(closedBecause(c.err, c.alone))
	}
	if c.retired || b.nacked == len(b.todo) {
		c.retire()
	}
	return b.finish(c.unanswered(ctx))
}

// publishAll writes until everything is written, the channel ends or ctx does; only the end of ctx
// is an error.
func (c *channel) publishAll(ctx context.Context, b *batch) (published int, err error) {
	c.conn.wire.hold()
	defer c.conn.wire.release()
	for ok := true; ok && published < len(b.todo); {
		if err := c.conn.writable(ctx); err != nil {
			return published, err
		}
		published, ok = c.publish(b, published)
	}
	return published, nil
}

// unanswered is the error of a message for which a Send could not wait longer.
func (c *channel) unanswered(ctx context.Context) error {
	return gaveUp(context.Cause(ctx), c.conn.blockedReason())
}
