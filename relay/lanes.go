package relay

import (
	"container/heap"
	"strings"
	"time"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/inflight"
)

// batch is a batch of the ledger, with its messages in lanes.
type batch = inflight.Batch[inLanes]

type inLanes struct {
	entries []entry // one per message
	parking []*lane // lanes that have a park point because of this batch
}

// entry is one fetched message that has no verdict yet. Entries are linked into
// lanes; a batch's entries are one slice.
type entry struct {
	next    *entry
	batch   *batch
	index   uint32 // of the message in its batch
	size    uint32 // Message.Size
	tries   uint16 // how often the sink refused it
	skip    bool   // the filter does not choose it
	decided bool   // its verdict is known and waits to take effect
	doubted bool   // a Send of it failed, and it is unclear whether that was its fault
}

// tried reports whether a Send of it has failed, in this session or before.
func (e *entry) tried() bool {
	return e.doubted || e.tries > 0 || e.batch.Messages[e.index].Attempt > 1
}

func (e *entry) order() driver.KeyOrder { return e.batch.Order(int(e.index)) }

type laneState uint8

const (
	idle    laneState = iota // has no messages, exists only for its park points
	ready                    // in the ready queue
	held                     // a running Send has its first messages
	waiting                  // its first message waits for another attempt
)

// lane is the queue of messages of one key. It exists while it is held, has
// messages or has park points, so their number is bounded by the window.
type lane struct {
	key        string
	head, tail *entry
	next       *lane // in a queue, or among the spares
	state      laneState
	due        time.Time   // while waiting
	parkPoints []parkPoint // see park.go; nil unless a message of the key was parked
}

func (l *lane) pushBack(e *entry) {
	e.next = nil
	if l.head == nil {
		l.head = e
	} else {
		l.tail.next = e
	}
	l.tail = e
}

func (l *lane) pushFront(e *entry) {
	e.next = l.head
	if l.head == nil {
		l.tail = e
	}
	l.head = e
}

func (l *lane) popFront() *entry {
	e := l.head
	l.head = e.next
	if l.head == nil {
		l.tail = nil
	}
	e.next = nil
	return e
}

// lanes holds every message that is not being sent: keyed ones in a lane per
// key, those without a key in the loose lane, which is never held. It is not
// safe for concurrent use.
//
// A message without a key that was refused gets a lane to itself, so that it
// waits alone.
type lanes struct {
	byKey      map[string]*lane
	loose      lane
	ready      queue
	doubted    queue // while the breaker is open: lanes whose first message was tried, see sift
	waiting    dueHeap
	spare      *lane
	spares     int
	wholeLanes bool // a Send may take many messages of one key
	parking    int  // lanes with park points
}

// maxSpares bounds the free list; more lanes than that at once are rare.
const maxSpares = 4096

func newLanes(wholeLanes bool) *lanes {
	return &lanes{byKey: make(map[string]*lane), wholeLanes: wholeLanes}
}

// add appends entries to their lanes.
func (ls *lanes) add(entries []entry) {
	var l *lane // of the entry before: runs of one key are common
	for i := range entries {
		e := &entries[i]
		key := e.batch.Messages[e.index].Key
		if l == nil || l.key != key {
			l = ls.lane(key)
		}
		l.pushBack(e)
		if l.state == idle {
			ls.pushReady(l)
		}
	}
}

func (ls *lanes) lane(key string) *lane {
	if key == "" {
		return &ls.loose
	}
	l := ls.byKey[key]
	if l == nil {
		l = ls.newLane()
		// A lane may outlive the batch it began with, and the key may be a part of
		// that batch's buffer.
		l.key = strings.Clone(key)
		ls.byKey[l.key] = l
	}
	return l
}

func (ls *lanes) newLane() *lane {
	if l := ls.spare; l != nil {
		ls.spare, l.next = l.next, nil
		ls.spares--
		return l
	}
	return new(lane)
}

// drop forgets an empty lane.
func (ls *lanes) drop(l *lane) {
	if l.key != "" {
		delete(ls.byKey, l.key)
	}
	*l = lane{}
	if ls.spares < maxSpares {
		l.next, ls.spare = ls.spare, l
		ls.spares++
	}
}

// queue has the lanes from which a Send may take, the one that has waited longest first.
type queue struct{ first, last *lane }

func (q *queue) push(l *lane) {
	if q.first == nil {
		q.first = l
	} else {
		q.last.next = l
	}
	q.last = l
}

func (q *queue) pop() *lane {
	l := q.first
	q.first, l.next = l.next, nil
	return l
}

func (ls *lanes) pushReady(l *lane) {
	l.state = ready
	ls.ready.push(l)
}

// sift is for a sink that may be away. It moves away lanes whose first message was tried, until it
// finds one whose first message was not. It reports whether it found one. That message shows as
// much about the sink as any other. If only a few messages hang and the sink is up, it need not
// wait for them.
func (ls *lanes) sift() bool {
	for l := ls.ready.first; l != nil; l = ls.ready.first {
		if !l.head.tried() {
			return true
		}
		if l != &ls.loose {
			ls.doubted.push(ls.ready.pop())
			continue
		}
		alone := ls.newLane()
		alone.state = ready
		alone.pushBack(l.popFront())
		ls.doubted.push(alone)
		if l.head == nil {
			ls.ready.pop().state = idle
		}
	}
	return false
}

// trust undoes sift.
func (ls *lanes) trust() {
	for ls.doubted.first != nil {
		ls.ready.push(ls.doubted.pop())
	}
}

// take moves up to count messages, of about bytes in sum, to r. It takes from the lanes that have
// been in the queue the longest, and holds them. It reports whether there were any.
func (ls *lanes) take(r *run, from *queue, count, bytes int) bool {
	for from.first != nil && count > 0 && bytes > 0 {
		l := from.pop()
		n := count
		if l != &ls.loose && !ls.wholeLanes {
			n = 1
		}
		begin := len(r.entries)
		for ; n > 0 && bytes > 0 && l.head != nil; n-- {
			e := l.popFront()
			if e.tries > 0 {
				r.retries = append(r.retries, retry{len(r.entries), int(e.tries)})
			}
			r.entries = append(r.entries, e)
			bytes -= int(e.size)
			count--
		}
		r.held = append(r.held, hold{lane: l, from: begin, to: len(r.entries)})
		switch {
		case l != &ls.loose:
			l.state = held
		case l.head != nil:
			ls.pushReady(l)
		default:
			l.state = idle
		}
	}
	return len(r.entries) > 0
}

// release gives up the hold on a lane. Its next message may be sent at once.
func (ls *lanes) release(l *lane) {
	switch {
	case l.head != nil && (l != &ls.loose || l.state == idle):
		ls.pushReady(l)
	case l == &ls.loose:
	case len(l.parkPoints) > 0:
		l.state = idle
	default:
		ls.drop(l)
	}
}

// delay sets aside a lane whose first message will be tried again at due.
func (ls *lanes) delay(l *lane, due time.Time) {
	l.state, l.due = waiting, due
	heap.Push(&ls.waiting, l)
}

// delayLoose makes a message without a key wait alone.
func (ls *lanes) delayLoose(e *entry, due time.Time) {
	l := ls.newLane()
	l.pushBack(e)
	ls.delay(l, due)
}

// returnLoose puts back a message without a key, behind the others.
func (ls *lanes) returnLoose(e *entry) {
	ls.loose.pushBack(e)
	if ls.loose.state == idle {
		ls.pushReady(&ls.loose)
	}
}

// wake returns a lane that has waited until now, nil if there is none.
func (ls *lanes) wake(now time.Time) *lane {
	if len(ls.waiting) == 0 || ls.waiting[0].due.After(now) {
		return nil
	}
	return heap.Pop(&ls.waiting).(*lane)
}

// forget drops every message. Lanes that a running Send holds stay held, so
// that messages added later wait for it, and those with park points keep them.
func (ls *lanes) forget() {
	ls.ready, ls.doubted = queue{}, queue{}
	ls.loose = lane{}
	ls.waiting = nil
	for key, l := range ls.byKey {
		l.head, l.tail = nil, nil
		if l.state == held {
			continue
		}
		if len(l.parkPoints) > 0 {
			l.state, l.next = idle, nil
			continue
		}
		delete(ls.byKey, key) // and leave the lane to the garbage collector
	}
}

// dueHeap is a heap of waiting lanes, the soonest first.
type dueHeap []*lane

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)        { *h = append(*h, x.(*lane)) }
func (h *dueHeap) Pop() any {
	old := *h
	l := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return l
}
