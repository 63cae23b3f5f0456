package storetest

import (
	"math/rand/v2"
	"slices"

	"github.com/penstock/penstock"
)

var modelCases = []testCase{
	{name: "RandomWalk/1", run: func(e *env) { randomWalk(e, 1) }},
	{name: "RandomWalk/2", run: func(e *env) { randomWalk(e, 2) }},
	{name: "RandomWalk/3", run: func(e *env) { randomWalk(e, 3) }},
}

// fate is what the model knows of a message and the one subscription.
type fate uint8

const (
	unsettled fate = iota
	done           // delivered, and the cursor is past it
	buried         // a dead letter, and the cursor is past it
	// maybe: settled behind a batch that was not, by a reader that is gone. It
	// may come again or not; if it was to be a dead letter it may be one.
	maybe
)

// tracked is one message in the model.
type tracked struct {
	name      string
	key       string
	written   int // step of the publishing statement
	committed int // step of the commit, 0 before
	fate      fate
	attempt   int
	seen      bool // by the present Source, since it was last sent back
	doubt     bool // it may be a dead letter because of a verdict while maybe
}

// walk is a random sequence of operations on one outbox with one subscription,
// and the model that says what must come of each.
type walk struct {
	*env
	rnd     *rand.Rand
	stores  []penstock.Store
	step    int
	all     []*tracked // every message ever published
	byName  map[string]*tracked
	txs     []*walkTx
	r       *reader
	mortal  bool         // the present reader has a short lease
	open    []*walkBatch // of the present reader, in order
	retired []retired    // crashed readers, which may still speak up
	counts  map[string]int
}

type walkTx struct {
	tx
	msgs []*tracked
}

type walkBatch struct {
	penstock.Batch
	settled  bool
	verdicts []penstock.Verdict
}

// retired is a reader that crashed, and a batch that it had not settled.
type retired struct {
	*reader
	batch penstock.Batch
}

type operation struct {
	weight int
	name   string
	do     func()
	writes bool // in a transaction of its own
}

func randomWalk(e *env, part int) {
	w := &walk{env: e, rnd: e.random(part), byName: map[string]*tracked{}, counts: map[string]int{}}
	w.stores = []penstock.Store{e.Store, e.Another(e)}
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
		{1, "check dead letters", w.checkDead, false},
	}
	total := 0
	for _, op := range ops {
		total += op.weight
	}
	w.enter(false)
	for w.step = 1; w.step <= 500*rounds() && !e.Failed(); w.step++ {
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

// take compares a batch with the model.
func (w *walk) take(b penstock.Batch, limit penstock.Limit) {
	w.Helper()
	if b.Rewound {
		w.Fatal("the batch is Rewound, but nothing failed")
	}
	w.r.check(b, limit)
	for _, m := range b.Messages {
		t := w.byName[m.ID]
		switch {
		case t == nil || t.committed == 0:
			w.Fatalf("step %d: %s came, which is not committed", w.step, m.ID)
		case t.seen:
			w.Fatalf("step %d: %s came twice from one Source", w.step, t.name)
		case t.fate == done || t.fate == buried:
			w.Fatalf("step %d: %s came again after it was settled", w.step, t.name)
		case m.Attempt != t.attempt:
			w.Fatalf("step %d: %s has Attempt %d, want %d", w.step, t.name, m.Attempt, t.attempt)
		}
		for _, before := range w.all {
			if before.key == t.key && t.key != "" && before.committed > 0 && before.committed < t.written &&
				before.attempt == 1 && t.attempt == 1 && before.fate == unsettled && !before.seen {
				w.Fatalf("step %d: %s came before %s, which has the same key and was committed before it was written", w.step, t.name, before.name)
			}
		}
		t.seen, t.fate = true, unsettled
	}
	if len(b.Messages) > 0 {
		w.open = append(w.open, &walkBatch{Batch: b})
		return
	}
	for _, t := range w.all {
		if t.committed > 0 && t.fate == unsettled && !t.seen {
			w.Fatalf("step %d: Fetch found nothing, but %s was committed in step %d and never came", w.step, t.name, t.committed)
		}
	}
}

func (w *walk) settle(chosen []*walkBatch) bool {
	settled := make([]penstock.Settled, len(chosen))
	for i, b := range chosen {
		settled[i].Batch = b.Batch
		if w.rnd.IntN(2) == 0 {
			settled[i].Verdicts = make([]penstock.Verdict, len(b.Messages))
			for k := range b.Messages {
				if w.rnd.IntN(4) == 0 {
					settled[i].Verdicts[k] = dead("refused " + b.Messages[k].ID)
				}
			}
		}
	}
	err := w.r.Settle(w.ctx, settled...)
	if w.lost(err) {
		return false
	}
	w.must(err, "Settle")
	for i, b := range chosen {
		b.settled, b.verdicts = true, settled[i].Verdicts
	}
	for len(w.open) > 0 && w.open[0].settled {
		w.open[0].each(w.byName, func(t *tracked, isDead bool) {
			t.fate = done
			if isDead {
				t.fate = buried
			}
		})
		w.open = w.open[1:]
	}
	return true
}

func (b *walkBatch) each(byName map[string]*tracked, f func(t *tracked, isDead bool)) {
	for i, m := range b.Messages {
		f(byName[m.ID], b.verdicts != nil && b.verdicts[i].Outcome == penstock.Dead)
	}
}

// leave forgets what the present reader had in hand.
func (w *walk) leave() {
	for _, b := range w.open {
		if b.settled { // behind one that is not
			b.each(w.byName, func(t *tracked, isDead bool) {
				t.fate, t.doubt = maybe, t.doubt || isDead
			})
		}
	}
	for _, t := range w.all {
		t.seen = false
	}
	w.open, w.r = nil, nil
}

// checkDead compares the dead letters with the model.
func (w *walk) checkDead() {
	letters, err := w.store().DeadLetters(w.ctx, query(w.r.req))
	w.must(err, "DeadLetters")
	listed := map[string]bool{}
	for _, l := range letters {
		t := w.byName[l.Message.ID]
		if t == nil || listed[t.name] || t.fate != buried && !t.doubt {
			w.Fatalf("step %d: the dead letter %s is listed and should not be, or not again", w.step, l.Message.ID)
		}
		if t.fate == buried && l.Message.Attempt != t.attempt {
			w.Fatalf("step %d: the dead letter %s has Attempt %d, want %d", w.step, t.name, l.Message.Attempt, t.attempt)
		}
		listed[t.name] = true
	}
	for _, t := range w.all {
		if t.fate == buried && !listed[t.name] {
			w.Fatalf("step %d: %s was given up and is not among the dead letters", w.step, t.name)
		}
	}
}

// finish ends what is open, settles what is left and compares the end.
func (w *walk) finish() {
	for len(w.txs) > 0 {
		w.endTx(w.rnd.IntN(2) == 0)
	}
	for range 2 { // the second reader finds nothing new
		w.restart()
		w.drainAll()
		for len(w.open) > 0 {
			w.settleSome()
		}
		w.maintainSome()
	}
	w.restart()
	w.drainAll()
	for _, b := range w.open {
		w.Errorf("after everything was settled there came %s", brief(payloads(b.Messages)))
	}
	for _, t := range w.all {
		if t.committed > 0 && t.fate == unsettled {
			w.Errorf("%s is lost", t.name)
		}
	}
	w.checkDead()
	if s := w.subscriptionStatus(w.r.req); s.Backlog != 0 {
		w.Errorf("status: the backlog is %d, want 0", s.Backlog)
	}
}
