package inflight_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// TestModel runs random histories of one subscription: batches of any origin and verdicts. Calls of Settle fail, take effect without an answer, or
// come late, and sources go back. The model is a store that remembers each message's verdict and checks each call. The test fails if a verdict is
// missing or reported twice, or if a message without a verdict is reported. It fails if a verdict comes before that of an earlier message of its
// key. It also fails if a repeated call differs, or if the cursor would pass a message without a verdict.
func TestModel(t *testing.T) {
	from, to := uint64(0), uint64(300)
	if s := os.Getenv("PENSTOCK_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		from, to = seed, seed+1
	}
	for seed := from; seed < to && !t.Failed(); seed++ {
		m := &model{T: t, rnd: rand.New(rand.NewPCG(seed, 0)), sent: map[int64]driver.Verdict{}, settled: map[int64]driver.Verdict{}}
		m.l.MaxMessages, m.l.MaxBytes = 40, 4000
		for range 200 {
			m.step()
		}
		m.finish()
		if t.Failed() {
			t.Logf("PENSTOCK_SEED=%d: %d messages, %d calls, of which %d were repeated, %d rewinds", seed, m.published, m.attempt, m.repeated, m.rewinds)
		}
	}
}

// model is the reader, and the store that it reads.
type model struct {
	*testing.T
	rnd *rand.Rand
	l   ledger

	// The reader:
	sent map[int64]driver.Verdict // messages in the ledger that have one

	// The store. A message's number is its Seq.
	published int64
	waiting   []penstock.Message        // not in flight, in order
	open      []driver.Batch            // in flight, oldest first
	settled   map[int64]driver.Verdict  // durable
	passed    uint64                    // the cursor
	number    uint64                    // of the last batch
	attempt   uint64                    // the last one that took effect
	news      []driver.Settled          // its contents
	counted   [driver.Undecided + 1]int // by the ledger, as settled
	effect    [driver.Undecided + 1]int // in the store
	repeated  int
	rewinds   int
}

func (m *model) step() {
	switch m.rnd.IntN(10) {
	case 0, 1:
		for range m.rnd.IntN(8) {
			m.published++
			m.waiting = append(m.waiting, penstock.Message{Seq: m.published, Key: []string{"", "a", "b", "c"}[m.rnd.IntN(4)]})
		}
		m.fetch()
	case 2, 3, 4, 5, 6:
		m.decide(3)
	case 7, 8:
		m.settle(m.rnd.IntN(2) == 0)
	case 9:
		if m.rnd.IntN(10) == 0 {
			m.rewind()
		}
	}
}

// fetch puts a batch into the ledger.
func (m *model) fetch() {
	if _, room := m.l.Room(); !room {
		return
	}
	n := m.rnd.IntN(min(6, len(m.waiting)) + 1)
	if n == 0 {
		return
	}
	m.number++
	b := driver.Batch{Messages: slices.Clone(m.waiting[:n]), Number: m.number}
	if m.rnd.IntN(3) == 0 {
		b.KeyOrder = make([]driver.KeyOrder, n)
		for i := range b.KeyOrder {
			b.KeyOrder[i] = []driver.KeyOrder{driver.InOrder, driver.OutOfOrder}[m.rnd.IntN(2)]
		}
	}
	m.waiting = m.waiting[n:]
	m.open = append(m.open, b)
	in := m.l.Batch(b)
	in.Bytes = 100 * n
	m.l.Add(in)
}

// decide gives verdicts to some of the messages without one. If a message of a key stays, its later messages stay as well.
func (m *model) decide(one int) {
	for _, b := range m.l.Batches() {
		stays := map[string]bool{}
		for i, msg := range b.Messages {
			inOrder := msg.Key != "" && b.Order(i) != driver.OutOfOrder
			if _, has := m.sent[msg.Seq]; has || !(inOrder && stays[msg.Key]) && m.rnd.IntN(one) > 0 {
				continue
			}
			v := driver.Verdict{Failures: []penstock.Failure{{Err: fmt.Sprint(msg.Seq)}}}
			if b.Note(uint32(i), v); !reflect.DeepEqual(b.Noted(uint32(i)), v) {
				m.Errorf("of message %d %+v was noted, not %+v", msg.Seq, b.Noted(uint32(i)), v)
			}
			switch m.rnd.IntN(4) {
			case 0:
				v.Outcome = driver.Dead
			case 1:
				v.Outcome = driver.Parked
			default:
				v = driver.Verdict{}
			}
			if m.sent[msg.Seq] = v; v.Outcome == driver.Delivered {
				b.Deliver(uint32(i))
			} else {
				b.Decide(uint32(i), v)
			}
			stays[msg.Key] = inOrder && v.Outcome == driver.Parked
		}
	}
	m.l.Advance()
	m.sizes()
}

// sizes compares the size of the ledger with the batches that are in flight.
func (m *model) sizes() {
	messages, done, leads := 0, 0, true
	for _, b := range m.l.Batches() {
		messages += len(b.Messages)
		for _, msg := range b.Messages {
			_, has := m.sent[msg.Seq]
			leads = leads && has
		}
		if leads {
			done += len(b.Messages)
		}
	}
	quarter := m.l.MaxMessages / 4
	_, room := m.l.Room()
	if m.l.Messages() != messages || m.l.Ready() != (done > 0) || m.l.Pressing() != (2*done >= m.l.MaxMessages) || room != (m.l.MaxMessages-messages >= quarter) {
		m.Errorf("of %d messages that are in flight and %d that lead it says: %d, ready %t, pressing %t, room %t", messages, done, m.l.Messages(), m.l.Ready(), m.l.Pressing(), room)
	}
}

// settle makes a call, which may fail before or after it takes effect. It reports whether there was one.
func (m *model) settle(parts bool) bool {
	but := m.rnd.IntN(3)
	c, isNew := m.l.Settle(parts, but)
	if isNew || len(c.News) == 0 {
		m.complete(parts, but, c.News)
	}
	if len(c.News) == 0 {
		return false
	}
	if !isNew {
		m.repeated++
	}
	fate := m.rnd.IntN(4)
	if fate > 0 {
		m.take(c.Attempt, c.News)
	}
	if fate > 1 {
		t := m.l.Settled()
		m.counted[driver.Parked] += t.Parked
		m.counted[driver.Dead] += t.Dead
		m.counted[driver.Delivered] += t.Messages - t.Parked - t.Dead
	}
	if fate == 1 && m.rnd.IntN(3) == 0 { // the connection is cut: the answer is lost, and the source's place
		m.rewind()
	}
	return true
}

// complete looks at a new call: it says all that it can. It has the leading batches that have all their verdicts. With parts
// it has all verdicts that are not durable and wait for none of their key, except those of the last batches.
func (m *model) complete(parts bool, but int, news []driver.Settled) {
	waits, leads := map[string]bool{}, true
	for at, b := range m.open {
		var said []driver.Verdict
		i := slices.IndexFunc(news, func(s driver.Settled) bool { return s.Batch.Number == b.Number })
		if i >= 0 {
			if said = news[i].Verdicts; said == nil {
				said = make([]driver.Verdict, len(b.Messages))
			}
		}
		whole := !slices.ContainsFunc(b.Messages, func(msg penstock.Message) bool { _, has := m.sent[msg.Seq]; return !has })
		leads = leads && whole
		if in := i >= 0; leads && (!in || news[i].Open) || in && !leads && (!news[i].Open || !parts || at >= len(m.open)-but) {
			m.Errorf("batch %d of %d: leads %t, in the call %t, parts %t, but the last %d", at+1, len(m.open), leads, in, parts, but)
		}
		for i, msg := range b.Messages {
			_, has := m.sent[msg.Seq]
			_, settled := m.settled[msg.Seq]
			inOrder := msg.Key != "" && b.Order(i) != driver.OutOfOrder
			waits[msg.Key] = waits[msg.Key] || inOrder && !has
			can := has && !settled && !(inOrder && waits[msg.Key]) && (leads || parts && at < len(m.open)-but)
			if does := said != nil && said[i].Outcome != driver.Undecided; can != does {
				m.Errorf("message %d: in the call %t, want %t", msg.Seq, does, can)
			}
		}
	}
}

// take is the store's side of a call.
func (m *model) take(attempt uint64, news []driver.Settled) {
	if attempt == m.attempt {
		if !reflect.DeepEqual(news, m.news) {
			m.Errorf("attempt %d says now %+v, and said %+v", attempt, news, m.news)
		}
		return
	}
	if attempt < m.attempt {
		m.Fatalf("attempt %d comes after %d", attempt, m.attempt)
	}
	m.attempt, m.news = attempt, slices.Clone(news)
	last := uint64(0)
	for _, s := range news {
		number := s.Batch.Number
		if number <= last {
			m.Errorf("batch %d comes after %d", number, last)
		}
		last = number
		for i, msg := range s.Batch.Messages {
			v := driver.Verdict{}
			if s.Verdicts != nil {
				v = s.Verdicts[i]
			}
			if v.Outcome != driver.Undecided {
				m.one(msg.Seq, v)
			}
		}
		if !s.Open {
			m.passed = number
		}
	}
	m.check()
}

func (m *model) one(seq int64, v driver.Verdict) {
	if _, twice := m.settled[seq]; twice {
		m.Errorf("message %d is settled twice", seq)
	}
	if sent, has := m.sent[seq]; !has || !reflect.DeepEqual(sent, v) {
		m.Errorf("message %d is settled as %+v, and its verdict is %+v, %t", seq, v, sent, has)
	}
	m.settled[seq] = v
	m.effect[v.Outcome]++
}

// check checks a call's effect: messages that the cursor has passed are settled, and in each key all messages before a settled one
// are settled.
func (m *model) check() {
	waits := map[string]int64{}
	for _, b := range m.open {
		for i, msg := range b.Messages {
			_, settled := m.settled[msg.Seq]
			inOrder := msg.Key != "" && b.Order(i) != driver.OutOfOrder
			switch before := waits[msg.Key]; {
			case !settled && b.Number <= m.passed:
				m.Errorf("the cursor passed batch %d, whose message %d is not settled", b.Number, msg.Seq)
			case !settled && inOrder && before == 0:
				waits[msg.Key] = msg.Seq
			case settled && inOrder && before != 0 && !m.before(msg.Seq):
				m.Errorf("message %d of key %s is settled, and %d before it is not", msg.Seq, msg.Key, before)
			}
		}
	}
	m.open = slices.DeleteFunc(m.open, func(b driver.Batch) bool { return b.Number <= m.passed })
}

// before: an earlier call settled it.
func (m *model) before(seq int64) bool {
	for _, s := range m.news {
		for i, msg := range s.Batch.Messages {
			if msg.Seq == seq && (s.Verdicts == nil || s.Verdicts[i].Outcome != driver.Undecided) {
				return false
			}
		}
	}
	return true
}

// rewind makes unsettled messages come again. A call without an answer is over.
func (m *model) rewind() {
	m.rewinds++
	var back []penstock.Message
	for _, b := range m.open {
		for _, msg := range b.Messages {
			if _, settled := m.settled[msg.Seq]; !settled {
				back = append(back, msg)
			}
			delete(m.sent, msg.Seq)
		}
	}
	m.waiting = append(back, m.waiting...)
	m.open, m.passed = nil, m.number
	m.counted = m.effect // the news of a lost answer is counted for no call
	m.l.Forget()
}

// finish settles everything.
func (m *model) finish() {
	for len(m.waiting) > 0 || len(m.l.Batches()) > 0 {
		m.fetch()
		m.decide(1)
		for range 100 {
			if !m.settle(true) || m.Failed() {
				break
			}
		}
		if m.Failed() {
			return
		}
	}
	if len(m.settled) != int(m.published) || m.counted != m.effect || m.l.Messages() != 0 || m.passed != m.number {
		m.Errorf("%d of %d messages are settled, counted %v of %v; %d are in flight, the cursor is at batch %d of %d", len(m.settled), m.published, m.counted, m.effect, m.l.Messages(), m.passed, m.number)
	}
}
