package memory

import (
	"cmp"
	"slices"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// parked is a message that waits for another attempt, or behind one that does. A
// dead letter that was sent back is one too, out of order.
type parked struct {
	msg      penstock.Message // as it comes next: Attempt is one more than it has had
	failures []penstock.Failure
	holds    bool // it is a dead letter that was sent back and holds its key
}

type deadLetter struct {
	msg      penstock.Message
	failures []penstock.Failure
	at       time.Time
	holds    bool
}

// refused reports whether the message has had an attempt of its own.
func (p *parked) refused() bool { return !p.msg.FailedSince.IsZero() }

// parkedKey is messages that wait for one another. It exists while there are some,
// or while a dead letter holds the key.
type parkedKey struct {
	id    parkedID
	msgs  []*parked // in order of Seq
	due   time.Time // of the first one
	holds []int64   // Seqs of the dead letters that hold the key
}

// parkedID is a key, or the Seq of a message that is parked by itself.
type parkedID struct {
	key string
	seq int64
}

func parkedIDOf(m *penstock.Message, order driver.KeyOrder) parkedID {
	if m.Key == "" || order == driver.OutOfOrder {
		return parkedID{seq: m.Seq}
	}
	return parkedID{key: m.Key}
}

// order is how the messages are ordered among those of their key.
func (l *parkedKey) order() driver.KeyOrder {
	if l.id.key == "" {
		return driver.OutOfOrder
	}
	return driver.InOrder
}

// ready returns what can be sent of the key at this time: a message that was
// refused before comes by itself, so that nothing is behind it should it be
// refused again.
func (l *parkedKey) ready(now time.Time) []*parked {
	if len(l.msgs) == 0 || len(l.holds) > 0 || now.Before(l.due) {
		return nil
	}
	if l.msgs[0].refused() {
		return l.msgs[:1]
	}
	if n := slices.IndexFunc(l.msgs, (*parked).refused); n > 0 {
		return l.msgs[:n] // that one was overtaken by a transaction that committed late
	}
	return l.msgs
}

// byDue lists the parked keys, those due soonest first and held ones last.
func (sub *subscription) byDue() []*parkedKey {
	var keys []*parkedKey
	for _, l := range sub.parked {
		keys = append(keys, l)
	}
	slices.SortFunc(keys, func(a, b *parkedKey) int {
		if held := cmp.Compare(min(len(a.holds), 1), min(len(b.holds), 1)); held != 0 {
			return held
		}
		if due := a.due.Compare(b.due); due != 0 {
			return due
		}
		return cmp.Compare(a.first(), b.first())
	})
	return keys
}

// first is the Seq of the message that the others wait for.
func (l *parkedKey) first() int64 {
	if len(l.holds) > 0 {
		return l.holds[0]
	}
	return l.msgs[0].msg.Seq
}

func (sub *subscription) parkedKey(id parkedID) *parkedKey {
	if sub.parked[id] == nil {
		sub.parked[id] = &parkedKey{id: id}
	}
	return sub.parked[id]
}

// park puts p into a parked key. Being the first it decides when that is due.
func (sub *subscription) park(id parkedID, p *parked, due time.Time) {
	l := sub.parkedKey(id)
	i, found := slices.BinarySearchFunc(l.msgs, p.msg.Seq, bySeq)
	if found {
		return // a replay brought it once more
	}
	l.msgs = slices.Insert(l.msgs, i, p)
	if i == 0 {
		l.due = due
	}
}

// unpark takes a message out of its parked key. If it was the first the others are due
// at once.
func (sub *subscription) unpark(id parkedID, seq int64, now time.Time) *parked {
	l := sub.parked[id]
	i, _ := slices.BinarySearchFunc(l.msgs, seq, bySeq)
	p := l.msgs[i]
	l.msgs = slices.Delete(l.msgs, i, i+1)
	if i == 0 {
		l.due = now
	}
	return p
}

func bySeq(p *parked, seq int64) int { return cmp.Compare(p.msg.Seq, seq) }

// deadLetter makes a dead letter, or adds to the one that there is of this message.
func (sub *subscription) deadLetter(p *parked, now time.Time, hold bool) {
	seq := p.msg.Seq
	d := &deadLetter{msg: p.msg, failures: p.failures, at: now, holds: p.holds || hold}
	if before := sub.deadLetters[seq]; before != nil { // a replay brought it once more
		d.failures, d.holds = latest(before.failures, d.failures), before.holds || d.holds
	}
	sub.deadLetters[seq] = d
	if d.holds {
		if l := sub.parkedKey(parkedID{key: p.msg.Key}); !slices.Contains(l.holds, seq) {
			l.holds = append(l.holds, seq)
			slices.Sort(l.holds)
		}
	}
}

// release ends a dead letter's hold on its key; what waits is due at once.
func (sub *subscription) release(key string, seq int64, now time.Time) {
	l := sub.parked[parkedID{key: key}]
	l.holds = slices.DeleteFunc(l.holds, func(s int64) bool { return s == seq })
	l.due = now
	sub.dropEmpty()
}

// dropEmpty drops keys that nothing is parked in or holds.
func (sub *subscription) dropEmpty() {
	for id, l := range sub.parked {
		if len(l.msgs) == 0 && len(l.holds) == 0 {
			delete(sub.parked, id)
		}
	}
}

// latest joins failures and keeps as many as a store keeps.
func latest(before, after []penstock.Failure) []penstock.Failure {
	all := slices.Concat(before, after)
	return all[max(0, len(all)-penstock.MaxFailures):]
}
