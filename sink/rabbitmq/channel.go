package rabbitmq

import (
	"context"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"
	"golang.org/x/sync/semaphore"

	"github.com/penstock/penstock"
)

// channel is an AMQP channel in confirm mode, shared by several Sends.
//
// The broker answers each message with an ack or a nack, and before that, if
// the message had nowhere to go, with a return: ack alone does not mean that a
// queue has the message. A return names no delivery tag, but two things are
// certain: it comes on the same channel before its ack, and the library puts it
// into returns before it looks at that ack. So whoever has seen the acks of its
// messages finds all their returns in the buffer, provided that it cannot
// overflow: it has room for every message that waits for its confirm.
type channel struct {
	conn    *connection
	amqp    *amqp.Channel
	slots   *semaphore.Weighted // as many as returns has room for
	returns chan amqp.Return

	gone chan struct{} // closed when the channel is; err is set by then
	err  *amqp.Error   // what the broker or the network said, nil for neither

	mu      sync.Mutex
	batches map[*batch]struct{} // those with messages on their way
}

// openChannel waits for the broker without a limit of its own: a broken
// connection ends it.
func openChannel(conn *connection) (*channel, error) {
	ch, err := conn.amqp.Channel()
	if err != nil {
		return nil, err
	}
	if err := ch.Confirm(false); err != nil {
		return nil, err
	}
	pending := conn.cfg.MaxPending
	c := &channel{
		conn: conn, amqp: ch,
		slots:   semaphore.NewWeighted(int64(pending)),
		returns: ch.NotifyReturn(make(chan amqp.Return, pending)),
		gone:    make(chan struct{}),
		batches: map[*batch]struct{}{},
	}
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	go func() {
		c.err = <-closed
		close(c.gone)
	}()
	return c, nil
}

func (c *channel) broken() bool { return c.amqp.IsClosed() }

// outgoing is what one Send, or a part of it, wants published.
type outgoing struct {
	msgs []penstock.Message
	todo []int    // which of msgs
	keys []string // their routing keys
	errs *verdicts
}

// batch is messages that are on their way together.
type batch struct {
	outgoing
	confirms []*amqp.DeferredConfirmation // of the first ones; the rest was not published
	returned map[int]amqp.Return          // by index in msgs; guarded by channel.mu
}

// send publishes the messages without waiting in between and then waits for all
// answers. It gives every message its verdict except for the suspects: the
// broker closed the channel over one message, and these had no answer yet.
func (c *channel) send(ctx context.Context, s *Sink, out outgoing) (suspects []int) {
	slots := int64(len(out.todo))
	if err := c.slots.Acquire(ctx, slots); err != nil {
		out.errs.setAll(out.todo, c.unanswered(context.Cause(ctx)))
		return nil
	}
	b := &batch{outgoing: out, confirms: make([]*amqp.DeferredConfirmation, 0, len(out.todo))}
	c.mu.Lock()
	c.batches[b] = struct{}{}
	c.mu.Unlock()

	stopped := c.publish(ctx, s, b)
	answered := await(ctx, b.confirms)
	waiting := b.confirms[answered:]
	if len(waiting) > 0 {
		stopped = context.Cause(ctx)
	}
	suspects = c.judge(b, answered, stopped)
	if len(waiting) == 0 {
		c.slots.Release(slots)
		return suspects
	}
	// The slots belong to messages that the broker still has to answer. Their
	// returns find no batch any more, at most another attempt of the message.
	go func() {
		await(context.Background(), waiting)
		c.collect()
		c.slots.Release(slots)
	}()
	return suspects
}

// publish writes until everything is written, the channel breaks or ctx ends;
// only the last is an error.
func (c *channel) publish(ctx context.Context, s *Sink, b *batch) error {
	c.conn.wire.hold()
	defer c.conn.wire.release()
	headers := make(amqp.Table, 4)
	for n, i := range b.todo {
		if err := c.conn.ready(ctx); err != nil {
			return err
		}
		p := s.publishing(&b.msgs[i], b.keys[n], headers)
		confirm, err := c.amqp.PublishWithDeferredConfirm(s.cfg.Exchange, b.keys[n], true, false, p)
		if err != nil {
			if !c.amqp.IsClosed() {
				_ = c.conn.wire.Close() // half a message may be written
			}
			return nil
		}
		b.confirms = append(b.confirms, confirm)
	}
	return nil
}

// await waits for acks and nacks and returns how many are there, counted up to
// the first that is not. A broken channel answers everything with a nack.
func await(ctx context.Context, confirms []*amqp.DeferredConfirmation) int {
	for i, confirm := range confirms {
		select {
		case <-confirm.Done():
			continue
		default:
		}
		select {
		case <-confirm.Done():
		case <-ctx.Done():
			return i
		}
	}
	return len(confirms)
}

// judge gives the verdicts on a batch whose first messages are answered, and
// takes it off the channel. stopped is why the others are not; nil if the
// channel broke.
func (c *channel) judge(b *batch, answered int, stopped error) (suspects []int) {
	c.collect()
	c.mu.Lock()
	delete(c.batches, b)
	c.mu.Unlock() // from here on nobody touches b.returned
	var lost error
	for n, i := range b.todo {
		switch {
		case n < answered && b.confirms[n].Acked():
			if r, ok := b.returned[i]; ok {
				b.errs.set(i, unroutable(r))
			}
		case n >= answered && stopped != nil:
			b.errs.set(i, c.unanswered(stopped))
		case n < answered && !c.broken():
			b.errs.set(i, refused())
		default:
			if lost == nil {
				<-c.gone
				lost = closedBecause(c.err)
			}
			if lost == errSuspect {
				suspects = append(suspects, i)
			} else {
				b.errs.set(i, lost)
			}
		}
	}
	return suspects
}

// collect applies the returns that have come to the messages on their way. A
// message that is there twice, because a Send gave up on it and another has
// begun, may be the one or the other; then neither counts as delivered.
func (c *channel) collect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		select {
		case r, ok := <-c.returns:
			if !ok {
				return
			}
			for b := range c.batches {
				b.take(r)
			}
		default:
			return
		}
	}
}

func (b *batch) take(r amqp.Return) {
	for _, i := range b.todo {
		if b.msgs[i].ID != r.MessageId {
			continue
		}
		if b.returned == nil {
			b.returned = map[int]amqp.Return{}
		}
		r.Body, r.Headers = nil, nil // only what the error tells is kept
		b.returned[i] = r
	}
}

// unanswered is the error of a message when a Send has to give up waiting.
func (c *channel) unanswered(cause error) error {
	return gaveUp(cause, c.conn.blockedReason())
}
