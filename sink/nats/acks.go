package nats

import (
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/penstock/penstock"
)

// acks matches acknowledgements to messages. A Send registers a flight; the
// reply subject of each of its messages is
//
//	<inbox>.<flight>.<index>
//
// with both numbers in base 36, so that one subscription serves all Sends and
// finding the message costs no map of messages, no channel and no allocation.
// Flight numbers are never used again: a late acknowledgement finds nothing.
type acks struct {
	prefix  string // "<inbox>."
	window  *window
	streams streams

	mu      sync.RWMutex
	last    uint64
	flights map[uint64]*flight
}

// flight is one running Send.
type flight struct {
	number uint64
	msgs   []penstock.Message

	mu     sync.Mutex
	errs   []error // nil until the first failure
	answer []bool  // which messages are confirmed or failed
	open   int     // how many are not
	taken  int     // this many messages, from the first, have room in the window
	landed chan struct{}
}

func newAcks(prefix string, w *window) *acks {
	return &acks{prefix: prefix, window: w, flights: map[uint64]*flight{}}
}

func (a *acks) begin(msgs []penstock.Message) *flight {
	f := &flight{msgs: msgs, answer: make([]bool, len(msgs)), open: len(msgs), landed: make(chan struct{})}
	a.mu.Lock()
	a.last++
	f.number = a.last
	a.flights[f.number] = f
	a.mu.Unlock()
	return f
}

// end removes the flight: messages without an answer get err. After that nothing writes to the
// returned results.
func (a *acks) end(f *flight, err error) []error {
	a.mu.Lock()
	delete(a.flights, f.number)
	a.mu.Unlock()
	a.fail(f, nil, err)
	return f.errs
}

// replies cuts the reply subjects of messages from..to out of one string.
func (a *acks) replies(f *flight, from, to int, buf []string) []string {
	var b strings.Builder
	number := strconv.FormatUint(f.number, 36)
	b.Grow((to - from) * (len(a.prefix) + len(number) + 1 + 4))
	var digits [16]byte
	for i := from; i < to; i++ {
		b.WriteString(a.prefix)
		b.WriteString(number)
		b.WriteByte('.')
		b.Write(strconv.AppendUint(digits[:0], uint64(i), 36))
	}
	all := b.String()
	buf = buf[:0]
	start := 0
	for i := from; i < to; i++ {
		n := len(a.prefix) + len(number) + 1 + len(strconv.AppendUint(digits[:0], uint64(i), 36))
		buf = append(buf, all[start:start+n])
		start += n
	}
	return buf
}

// receive handles one acknowledgement; it is the subscription's callback.
func (a *acks) receive(m *nats.Msg) {
	rest, ok := strings.CutPrefix(m.Subject, a.prefix)
	if !ok {
		return
	}
	dot := strings.IndexByte(rest, '.')
	if dot < 0 {
		return
	}
	number, err1 := strconv.ParseUint(rest[:dot], 36, 64)
	index, err2 := strconv.ParseUint(rest[dot+1:], 36, 31)
	if err1 != nil || err2 != nil {
		return
	}
	a.mu.RLock()
	f := a.flights[number]
	a.mu.RUnlock()
	if f != nil {
		a.settle(f, int(index), verdict(m, &a.streams))
	}
}

// settle records the answer to one message; the first answer counts.
func (a *acks) settle(f *flight, i int, err error) {
	f.mu.Lock()
	if i >= len(f.answer) || f.answer[i] {
		f.mu.Unlock()
		return
	}
	f.record(i, err)
	size, gives := footprint(&f.msgs[i]), i < f.taken
	f.mu.Unlock()
	if gives {
		a.window.give(1, size)
	}
}

// fail gives err to every message of f that has no answer and that which picks;
// nil picks all.
func (a *acks) fail(f *flight, which func(*penstock.Message) bool, err error) {
	f.mu.Lock()
	messages, bytes := 0, 0
	for i := range f.answer {
		if f.answer[i] || (which != nil && !which(&f.msgs[i])) {
			continue
		}
		f.record(i, err)
		if i < f.taken {
			messages++
			bytes += footprint(&f.msgs[i])
		}
	}
	f.mu.Unlock()
	if messages > 0 {
		a.window.give(messages, bytes)
	}
}

// failAll is fail for every flight.
func (a *acks) failAll(which func(*penstock.Message) bool, err error) {
	a.mu.RLock()
	flights := make([]*flight, 0, len(a.flights))
	for _, f := range a.flights {
		flights = append(flights, f)
	}
	a.mu.RUnlock()
	for _, f := range flights {
		a.fail(f, which, err)
	}
}

// reserve notes that the next n messages have room in the window. It gives back the room of
// messages that were answered before they were published, because their Send was aborted.
func (a *acks) reserve(f *flight, n int) {
	f.mu.Lock()
	messages, bytes := 0, 0
	for i := f.taken; i < f.taken+n; i++ {
		if f.answer[i] {
			messages++
			bytes += footprint(&f.msgs[i])
		}
	}
	f.taken += n
	f.mu.Unlock()
	if messages > 0 {
		a.window.give(messages, bytes)
	}
}

// unanswered is how many messages have no answer yet.
func (f *flight) unanswered() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open
}

// record stores the answer to message i; f.mu is held.
func (f *flight) record(i int, err error) {
	f.answer[i] = true
	if err != nil {
		if f.errs == nil {
			f.errs = make([]error, len(f.answer))
		}
		f.errs[i] = err
	}
	if f.open--; f.open == 0 {
		close(f.landed)
	}
}
