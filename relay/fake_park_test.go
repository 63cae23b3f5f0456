package relay

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// fakePark holds what the fake database keeps parked, in the simplest way.
type fakePark struct {
	parked []*fakeParkedKey
	keys   map[string]*fakeParkedKey // those of them that are in order
	dead   map[int64]*fakeDead
	died   map[int64]bool // was a dead letter at some time

	parkings map[int64]int  // how often a message was parked
	filtered map[int64]bool // what a test's filter does not choose
}

// fakeParkedKey is the parked messages of one key, or one out of order.
type fakeParkedKey struct {
	key        string
	outOfOrder bool
	stay       []*fakeParked // in order of Seq
	due        time.Time
	holds      int64 // Seq of the dead letter that the key waits for
	out        int   // messages in flight
	givenUp    string
}

type fakeParked struct {
	m        penstock.Message
	failures []penstock.Failure
}

// fakeDead is a dead letter. It stays one until it is delivered or discarded.
type fakeDead struct {
	fakeParked
	away bool // retried, or parked after that
}

// fakeBatch is where a batch came from: the stream, or parked keys, one per message.
type fakeBatch struct {
	parked  []*fakeParkedKey
	settled map[int]bool // messages
}

func (l *outbox) addParked(n *fakeParkedKey) *fakeParkedKey {
	l.parked = append(l.parked, n)
	if !n.outOfOrder {
		if l.keys == nil {
			l.keys = map[string]*fakeParkedKey{}
		}
		l.keys[n.key] = n
	}
	return n
}

// sweep removes keys that have nothing parked.
func (l *outbox) sweep() {
	l.parked = slices.DeleteFunc(l.parked, func(n *fakeParkedKey) bool {
		over := len(n.stay) == 0 && n.holds == 0
		if over && !n.outOfOrder {
			delete(l.keys, n.key)
		}
		return over
	})
}

// handBack takes back the messages in flight.
func (l *outbox) handBack() {
	for _, n := range l.parked {
		n.out = 0
	}
}

// fetchParked returns keys that are due, the longest overdue first.
func (l *outbox) fetchParked(b *driver.Batch, limit driver.Limit) (fakeBatch, bool) {
	var due []*fakeParkedKey
	for _, n := range l.parked {
		if n.out == 0 && n.holds == 0 && len(n.stay) > 0 && !n.due.After(time.Now()) {
			due = append(due, n)
		}
	}
	slices.SortStableFunc(due, func(a, b *fakeParkedKey) int { return a.due.Compare(b.due) })
	from := fakeBatch{}
	for _, pk := range due {
		if len(b.Messages) >= limit.Messages {
			break
		}
		for i, p := range pk.stay {
			if i > 0 && (len(p.failures) > 0 || len(pk.stay[0].failures) > 0) || len(b.Messages) == limit.Messages {
				break
			}
			m := p.m
			m.Attempt = len(p.failures) + 1
			if len(p.failures) > 0 {
				m.FailedSince = p.failures[0].At
			}
			b.Messages = append(b.Messages, m)
			if i == 0 && pk.givenUp != "" {
				b.GivenUp = map[int]string{len(b.Messages) - 1: pk.givenUp}
			}
			order := driver.InOrder
			if pk.outOfOrder {
				order = driver.OutOfOrder
			}
			b.KeyOrder = append(b.KeyOrder, order)
			from.parked = append(from.parked, pk)
			pk.out++
		}
	}
	if b.GivenUp != nil && !slices.ContainsFunc(b.KeyOrder, func(o driver.KeyOrder) bool { return o != driver.InOrder }) {
		b.KeyOrder = nil
	}
	return from, len(due) > 0
}

// settle makes the verdicts on one batch durable.
func (l *outbox) settle(t driver.Settled, from *fakeBatch) error {
	if t.Verdicts != nil && len(t.Verdicts) != len(t.Batch.Messages) {
		return fmt.Errorf("%d verdicts on %d messages", len(t.Verdicts), len(t.Batch.Messages))
	}
	if from.settled == nil {
		from.settled = map[int]bool{}
	}
	for i, m := range t.Batch.Messages {
		v := driver.Verdict{}
		if t.Verdicts != nil {
			v = t.Verdicts[i]
		}
		if v.Outcome == driver.Undecided {
			continue
		}
		if from.settled[i] {
			return fmt.Errorf("message %d is settled twice", m.Seq)
		}
		from.settled[i] = true
		order := driver.InOrder
		if t.Batch.KeyOrder != nil {
			order = t.Batch.KeyOrder[i]
		}
		var of *fakeParkedKey
		if from.parked != nil {
			of = from.parked[i]
			of.out--
		} else {
			l.pass(m.Seq)
		}
		if err := l.settleOne(m, order, v, of); err != nil {
			return err
		}
	}
	if t.Verdicts != nil || from.parked != nil {
		l.sweep()
	}
	return nil
}

// pass notes that a message of the stream is settled. It moves the cursor as far as possible.
func (l *outbox) pass(seq int64) {
	if l.ahead == nil {
		l.ahead = map[int64]bool{}
	}
	for l.ahead[seq] = true; l.settled < len(l.messages) && l.ahead[l.messages[l.settled].Seq]; l.settled++ {
		delete(l.ahead, l.messages[l.settled].Seq)
	}
}

func (l *outbox) settleOne(m penstock.Message, order driver.KeyOrder, v driver.Verdict, pk *fakeParkedKey) error {
	givenUp := pk != nil && pk.givenUp != ""
	for i, f := range v.Failures {
		if !givenUp && f.Attempt != m.Attempt+i || givenUp && (f.Attempt != 0 || f.Err != pk.givenUp || v.Outcome != driver.Dead) {
			return fmt.Errorf("message %d of attempt %d has failures %v", m.Seq, m.Attempt, v.Failures)
		}
	}
	if givenUp {
		pk.givenUp = ""
	}
	outOfOrder := order == driver.OutOfOrder || m.Key == ""
	p := &fakeParked{m: m}
	if pk == nil && v.Outcome == driver.Parked {
		if pk = l.keys[m.Key]; outOfOrder || pk == nil {
			pk = l.addParked(&fakeParkedKey{key: m.Key, outOfOrder: outOfOrder})
		}
	}
	if pk != nil {
		if i := slices.IndexFunc(pk.stay, func(p *fakeParked) bool { return p.m.Seq == m.Seq }); i >= 0 {
			p = pk.stay[i]
			pk.stay = slices.Delete(pk.stay, i, i+1)
		}
	}
	p.failures = append(p.failures, v.Failures...)
	switch v.Outcome {
	case driver.Parked:
		if l.parkings == nil {
			l.parkings = map[int64]int{}
		}
		l.parkings[m.Seq]++
		pk.stay = append(pk.stay, p)
		slices.SortFunc(pk.stay, func(a, b *fakeParked) int { return cmp.Compare(a.m.Seq, b.m.Seq) })
		if pk.stay[0] == p {
			pk.due = time.Now().Add(v.RetryIn)
		}
		return nil
	case driver.Dead:
		if len(p.failures) == 0 {
			return fmt.Errorf("message %d is dead without a reason", m.Seq)
		}
		if l.dead == nil {
			l.dead, l.died = map[int64]*fakeDead{}, map[int64]bool{}
		}
		l.dead[m.Seq], l.died[m.Seq] = &fakeDead{fakeParked: *p}, true
		if v.Hold {
			if outOfOrder {
				return fmt.Errorf("message %d is out of order and is to hold its key", m.Seq)
			}
			if pk = l.keys[m.Key]; pk == nil {
				pk = l.addParked(&fakeParkedKey{key: m.Key})
			}
			pk.holds = m.Seq
		}
	case driver.Delivered:
		if l.sink != nil && !l.sink.confirmedOnce(m.Seq) && !l.filtered[m.Seq] {
			return fmt.Errorf("message %d was settled as delivered and is not confirmed", m.Seq)
		}
		if l.dead[m.Seq] != nil {
			l.removeDead(m.Seq)
		}
	}
	if pk != nil && pk.holds == 0 {
		pk.due = time.Now()
	}
	return nil
}

// removeDead removes a dead letter and releases a key that waits for it.
func (l *outbox) removeDead(seq int64) {
	delete(l.dead, seq)
	for _, n := range l.parked {
		if n.holds == seq {
			n.holds, n.due = 0, time.Now()
		}
	}
}

// retryDead retries a dead letter; discardDead drops it.
func (l *outbox) retryDead(seq int64) {
	d := l.dead[seq]
	d.away = true
	l.addParked(&fakeParkedKey{key: d.m.Key, outOfOrder: true, stay: []*fakeParked{{m: d.m, failures: d.failures}}})
}

func (l *outbox) discardDead(seq int64) {
	l.removeDead(seq)
	l.sweep()
}

// outOfBand returns the messages that are parked, those that are or were dead
// letters, and those that the filter passed over.
func (l *outbox) outOfBand() map[int64]bool {
	seqs := map[int64]bool{}
	for _, n := range l.parked {
		for _, p := range n.stay {
			seqs[p.m.Seq] = true
		}
	}
	maps.Copy(seqs, l.died)
	maps.Copy(seqs, l.filtered)
	return seqs
}

// parkedMessages counts the messages that are parked now, and their failures.
func (l *outbox) parkedMessages() (messages, failures int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.parked {
		messages += len(n.stay)
		for _, p := range n.stay {
			failures += len(p.failures)
		}
	}
	return messages, failures
}

// parkedTimes returns how often each message was parked.
func (l *outbox) parkedTimes() map[int64]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.parkings)
}

func (l *outbox) deadSeqs() []int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var seqs []int64
	for seq, d := range l.dead {
		if !d.away {
			seqs = append(seqs, seq)
		}
	}
	slices.Sort(seqs)
	return seqs
}

// checkTurn fails the test if the database says that one of msgs has to wait. It has to if an earlier
// message of its key is parked and not confirmed since, or if a dead letter holds the key. Messages
// out of order do not wait.
func (l *outbox) checkTurn(k *sink, msgs []penstock.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, m := range msgs {
		pk := l.keys[m.Key]
		if pk == nil || m.Key == "" || l.dead[m.Seq] != nil {
			continue
		}
		if pk.holds != 0 && pk.holds < m.Seq {
			k.t.Errorf("message %d of key %q is sent, though the dead letter %d holds the key", m.Seq, m.Key, pk.holds)
		}
		for _, p := range pk.stay {
			before := slices.ContainsFunc(msgs[:i], func(m penstock.Message) bool { return m.Seq == p.m.Seq })
			if p.m.Seq < m.Seq && !before && !l.filtered[p.m.Seq] && !k.through(p.m.Seq) {
				k.t.Errorf("message %d of key %q is sent, though %d is parked", m.Seq, m.Key, p.m.Seq)
			}
		}
	}
}
