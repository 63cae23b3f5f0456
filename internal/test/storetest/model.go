package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/testseed"
)

var modelCases = []testCase{
	{Name: "RandomWalk/1", Run: func(e *env) { randomWalk(e, 1) }},
	{Name: "RandomWalk/2", Run: func(e *env) { randomWalk(e, 2) }},
	{Name: "RandomWalk/3", Run: func(e *env) { randomWalk(e, 3) }, Long: true},
	{Name: "RandomWalk/4", Run: func(e *env) { randomWalk(e, 4) }, Long: true},
}

// fate is the durable state of a message and the one subscription.
type fate uint8

const (
	unsettled    fate = iota // it must come, from the outbox or as a dead letter sent back
	waiting                  // parked
	done                     // delivered
	deadLettered             // a dead letter
	discarded
)

// tracked is one message in the model.
type tracked struct {
	name       string
	key        string
	seq        int64 // 0 until it came
	written    int   // step of the publishing statement
	committed  int   // step of the commit, 0 before
	fate       fate
	attempt    int
	failed     int       // failures that the store knows
	since      time.Time // the first one
	held       bool      // a dead letter, maybe on its way back, that holds its key
	outOfOrder bool      // a dead letter that was sent back
	once       bool      // it was delivered, whatever a replay made of it since
	seen       bool      // by the present Source, and not settled
	replay     bool      // it has to come once more
	replaying  bool      // and has, to the present Source
	life       []string  // for a reader who has to find the fault
}

// note adds to the message's life.
func (w *walk) note(t *tracked, format string, args ...any) {
	t.life = append(t.life, fmt.Sprintf("step %d: ", w.step)+fmt.Sprintf(format, args...))
}

// wrong ends the walk and prints the lives of the messages.
func (w *walk) wrong(what string, ts ...*tracked) {
	for _, t := range ts {
		if t == nil {
			continue
		}
		w.Logf("%s, key %q, seq %d, written in step %d, committed in step %d\n\t%s", t.name, t.key, t.seq, t.written, t.committed, strings.Join(t.life, "\n\t"))
	}
	w.Fatalf("step %d: %s", w.step, what)
}

// walk is a random sequence of operations on one outbox with one subscription,
// and the model that says what must come of each. It plays a relay that sends at
// once what it fetches, in order, and settles later.
type walk struct {
	*env
	rnd      *rand.Rand
	stores   []driver.Store
	step     int
	all      []*tracked // every message ever published
	byName   map[string]*tracked
	txs      []*walkTx
	r        *reader
	mortal   bool         // the present reader has a short lease
	open     []*walkBatch // of the present reader, in order
	past     []*walkBatch // settled by it
	retired  []retired    // crashed readers, which may still speak up
	released map[string]bool
	retains  bool
	calm     bool // everything is delivered
	counts   map[string]int
}

type walkTx struct {
	tx
	msgs []*tracked
}

type walkBatch struct {
	driver.Batch
	came            []came
	verdicts        []driver.Verdict
	chosen, settled []bool
}

// came is where a message of a batch came from.
type came uint8

const (
	fresh      came = iota // the outbox, or a dead letter sent back
	fromParked             // parked
	replayed
)

// retired is a reader that crashed, and a batch that it had not settled.
type retired struct {
	*reader
	batch *walkBatch
}

type operation struct {
	weight int
	name   string
	do     func()
	writes bool // in a separate transaction
}

func randomWalk(e *env, part int) {
	w := &walk{env: e, rnd: e.Random(part), byName: map[string]*tracked{}, counts: map[string]int{}, released: map[string]bool{}}
	w.stores = []driver.Store{e.Store, e.Another(e)}
	if w.retains = part%2 == 0; w.retains {
		e.retain(admin.Retention{Age: notInThisTest})
	}
	ops := []operation{
		{6, "begin", w.beginTx, true},
		{10, "publish in tx", w.publishTx, false},
		{5, "commit", func() { w.endTx(true) }, false},
		{2, "rollback", func() { w.endTx(false) }, false},
		{12, "publish", w.publishAlone, true},
		{25, "fetch", w.fetchSome, false},
		{12, "settle", w.settleSome, true},
		{3, "drain", w.drainAll, false},
		{3, "restart", w.restart, true},
		{2, "crash", w.crash, true},
		{2, "stale settle", w.staleSettle, true},
		{6, "maintain", w.maintainSome, true},
		{3, "retry dead letters", w.retrySome, true},
		{1, "discard dead letters", w.discardSome, true},
		{2, "replay", w.replaySome, true},
		{1, "check", w.checkDurable, false},
	}
	total := 0
	for _, op := range ops {
		total += op.weight
	}
	w.enter(false)
	steps := testseed.Steps(1000)
	for w.step = 1; w.step <= steps && !e.Failed(); w.step++ {
		n := w.rnd.IntN(total)
		i := slices.IndexFunc(ops, func(op operation) bool {
			n -= op.weight
			return n < 0
		})
		if ops[i].writes && len(w.txs) > 0 && !e.features.ConcurrentWriters {
			continue // it would wait for our own transaction
		}
		w.counts[ops[i].name]++
		ops[i].do()
	}
	w.finish()
	e.Logf("%d messages; %v", len(w.all), w.counts)
}

// apply makes the choice of a batch durable.
func (w *walk) apply(b *walkBatch) {
	for i, m := range b.Messages {
		if b.settled[i] || !b.chosen[i] {
			continue
		}
		b.settled[i] = true
		t, v := w.byName[m.ID], b.verdicts[i]
		t.seen = false
		w.note(t, "batch %d took effect: outcome %d with %d failures, hold %t", b.Number, v.Outcome, len(v.Failures), v.Hold)
		if b.came[i] == replayed {
			t.replay, t.replaying = false, false
			t.attempt, t.failed, t.since = 1, 0, time.Time{}
		}
		if t.failed == 0 && len(v.Failures) > 0 {
			t.since = v.Failures[0].At
		}
		t.failed += len(v.Failures)
		switch v.Outcome {
		case driver.Delivered:
			if t.held {
				t.held, w.released[t.key] = false, true
			}
			t.fate, t.once, t.outOfOrder = done, true, false
			w.counts["delivered"]++
		case driver.Dead:
			t.fate = deadLettered
			t.attempt += len(v.Failures) - 1
			t.held = t.held || v.Hold && b.Batch.Order(i) == driver.InOrder && t.key != ""
			w.counts["dead"]++
		case driver.Parked:
			t.fate = waiting
			t.attempt += len(v.Failures)
			w.counts["parked"]++
		}
	}
}

// waits reports whether the key is parked or held.
func (w *walk) waits(key string) bool {
	return key != "" && slices.ContainsFunc(w.all, func(t *tracked) bool {
		return t.key == key && (t.fate == waiting && !t.outOfOrder || t.held)
	})
}

// leave forgets the messages that the present reader had in hand.
func (w *walk) leave() {
	for _, t := range w.all {
		t.seen, t.replaying = false, false
	}
	for _, b := range w.open {
		for i, m := range b.Messages {
			if !b.settled[i] {
				w.note(w.byName[m.ID], "batch %d is forgotten with its reader", b.Number)
			}
		}
	}
	w.open, w.past, w.r = nil, nil, nil
}
