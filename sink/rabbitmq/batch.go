package rabbitmq

import "github.com/penstock/penstock"

// outgoing has the messages that one Send, or a part of it, publishes.
type outgoing struct {
	msgs []penstock.Message
	todo []int    // which of msgs
	keys []string // their routing keys
	errs *verdicts
}

// only is the part with these indices of msgs, which are in order.
func (o outgoing) only(which []int) outgoing {
	part := o
	part.todo, part.keys = which, make([]string, 0, len(which))
	n := 0
	for _, i := range which {
		for o.todo[n] != i {
			n++
		}
		part.keys = append(part.keys, o.keys[n])
	}
	return part
}

// batch is messages of one Send in flight on one channel, counted from 0. The channel's lock
// guards it.
type batch struct {
	outgoing
	states  []state
	left    int // how many wait
	nacked  int
	bounced map[int]*returned
	done    chan struct{} // closed when none waits any more
	over    bool          // the Send has gone; later answers are not needed
}

type state uint8

const (
	waiting  state = iota
	answered       // and has its verdict
	lost           // there will be no answer
)

func newBatch(out outgoing) *batch {
	return &batch{outgoing: out, states: make([]state, len(out.todo)), left: len(out.todo), done: make(chan struct{})}
}

// answer notes the broker's answer to the n-th message.
func (b *batch) answer(n int, acked bool) {
	if b.over {
		return
	}
	if !acked {
		b.nacked++
		b.errs.set(b.todo[n], refused())
	} else if r := b.bounced[n]; r != nil {
		b.errs.set(b.todo[n], unroutable(r))
	}
	b.settle(n, answered)
}

// lose notes that there will be no answer.
func (b *batch) lose(n int) {
	if !b.over && b.states[n] == waiting {
		b.settle(n, lost)
	}
}

func (b *batch) settle(n int, s state) {
	b.states[n] = s
	if b.left--; b.left == 0 {
		close(b.done)
	}
}

// bounce notes that the broker has returned a message with this id.
func (b *batch) bounce(n int, id string, r *returned) {
	if b.over || b.msgs[b.todo[n]].ID != id {
		return
	}
	if b.bounced == nil {
		b.bounced = map[int]*returned{}
	}
	b.bounced[n] = r
}

// finish gives the messages without an answer their verdict. If that is errSuspect, it returns
// which they are instead.
func (b *batch) finish(verdict error) (suspects []int) {
	b.over = true
	for n, s := range b.states {
		switch {
		case s == answered:
		case verdict == errSuspect:
			suspects = append(suspects, b.todo[n])
		default:
			b.errs.set(b.todo[n], verdict)
		}
	}
	b.outgoing = outgoing{} // answers may take long; the messages are not kept for them
	return suspects
}
