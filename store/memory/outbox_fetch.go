package memory

import (
	"context"
	"slices"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// openBatch is what one Fetch returned, until it is settled. Its messages are
// all of one origin: parked, replayed, or read from the log.
type openBatch struct {
	number  uint64
	limit   driver.Limit
	size    int
	msgs    []penstock.Message
	order   []driver.KeyOrder
	origin  origin
	at      []int64     // of each message, where it is in the log, if it is from there,
	replays []*replayed // or what it is to fulfil
	settled []bool
	left    int // not settled
}

type origin uint8

const (
	fromLog origin = iota
	fromPark
	fromReplay
)

// add returns false if the batch is full.
func (b *openBatch) add(m *penstock.Message, order driver.KeyOrder) bool {
	if n := len(b.msgs); n > 0 && (n >= b.limit.Messages || b.size+m.Size() > b.limit.Bytes) {
		return false
	}
	b.size += m.Size()
	b.msgs, b.order = append(b.msgs, clone(*m)), append(b.order, order)
	return true
}

// Fetch implements driver.Source. What is parked, replayed and new takes turns,
// so that none of them starves another.
func (s *source) Fetch(ctx context.Context, limit driver.Limit) (driver.Batch, error) {
	if err := limit.Validate(); err != nil {
		return driver.Batch{}, err
	}
	if err := s.enter(ctx); err != nil {
		return driver.Batch{}, err
	}
	defer s.store.db.Unlock()
	b := &openBatch{limit: limit}
	turns := []func(*openBatch){s.readParked, s.readReplays, s.readLog}
	if s.sub == nil {
		turns = []func(*openBatch){s.readLog}
	}
	for i := 0; i < len(turns) && len(b.msgs) == 0; i++ {
		turns[(int(s.number)+i)%len(turns)](b)
	}
	if len(b.msgs) == 0 {
		return driver.Batch{}, nil
	}
	s.number++
	b.number = s.number
	if s.sub != nil {
		b.settled, b.left = make([]bool, len(b.msgs)), len(b.msgs)
		s.open[b.number] = b
	}
	return driver.Batch{Messages: slices.Clone(b.msgs), KeyOrder: slices.Clone(b.order), Number: b.number, More: s.more()}, nil
}

// readParked adds the parked keys that are due. None of a key comes again before
// what is in flight of it is settled.
func (s *source) readParked(b *openBatch) {
	b.origin = fromPark
	now := s.store.db.now()
	for _, l := range s.sub.byDue() {
		if s.inFlight[l.id] > 0 {
			continue
		}
		for _, p := range l.ready(now) {
			if !b.add(&p.msg, l.order()) {
				return
			}
			s.inFlight[l.id]++
		}
	}
}

func (s *source) readReplays(b *openBatch) {
	b.origin = fromReplay
	for ; s.replayed < len(s.sub.replays); s.replayed++ {
		r := s.sub.replays[s.replayed]
		if r.settled {
			continue
		}
		if !b.add(&r.msg, s.keyOrder(&r.msg)) {
			return
		}
		b.replays = append(b.replays, r)
	}
}

func (s *source) readLog(b *openBatch) {
	b.origin = fromLog
	s.next = max(s.next, s.outbox.base) // only an ephemeral reader can be behind
	for ; s.next < s.outbox.end(); s.next++ {
		m := &s.outbox.log[s.next-s.outbox.base]
		if s.sub != nil && s.sub.ahead[s.next] {
			continue
		}
		if !b.add(m, s.keyOrder(m)) {
			return
		}
		b.at = append(b.at, s.next)
	}
}

// keyOrder tells whether a message has to go behind parked ones of its key.
func (s *source) keyOrder(m *penstock.Message) driver.KeyOrder {
	if s.sub != nil && s.sub.parked[parkedID{key: m.Key}] != nil {
		return driver.BehindParked
	}
	return driver.InOrder
}

// more reports whether another Fetch would return something now.
func (s *source) more() bool {
	if s.next < s.outbox.end() {
		return true
	}
	return s.sub != nil && (s.replayed < len(s.sub.replays) || slices.ContainsFunc(s.sub.byDue(), s.due(s.store.db.now())))
}

func (s *source) due(now time.Time) func(l *parkedKey) bool {
	return func(l *parkedKey) bool { return s.inFlight[l.id] == 0 && len(l.ready(now)) > 0 }
}
