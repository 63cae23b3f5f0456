package storetest

import (
	"fmt"
	"slices"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

// A sink that is slow: verdicts are settled before their batch has all of them.
var partCases = slices.Concat(
	named("Part", partTheRestComesBack, partWithEveryVerdict, partOfSeveralBatches, partThenTheWhole,
		partSettlesWhatIsFresh, partOfAKey, partOfLinesOfOne, partOfRetriedDeadLetters, partOfAReplay, partIsReplayed, partFenced),
	needing(Features{Reclaim: true}, named("Part", partReclaimKeepsTheRest)),
	needing(Features{ConcurrentWriters: true}, named("Part", partLateCommit)),
)

// part settles what is named, by payload; the rest of the batches stays undecided.
func (r *reader) part(v verdicts, batches ...driver.Batch) {
	r.e.Must(r.Settle(r.e.ctx, parts(v, batches...)...), "Settle of parts")
}

func parts(v verdicts, batches ...driver.Batch) []driver.Settled {
	settled := judged(v, batches...)
	for i, b := range batches {
		for k, m := range b.Messages {
			if _, named := v[string(m.Payload)]; !named {
				settled[i].Verdicts[k].Outcome = driver.Undecided
			}
		}
	}
	return settled
}

// sent are verdicts on messages that were delivered.
func sent(payloads ...string) verdicts {
	v := verdicts{}
	for _, p := range payloads {
		v[p] = driver.Verdict{}
	}
	return v
}

// wantSettled compares the outbox's status.
func (e *env) wantSettled(r *reader, settled, backlog int64) {
	if s := e.subscriptionStatus(r.req); s.Settled != settled || s.Backlog != backlog || backlog == 0 != (s.OldestAge == 0) {
		e.Fatalf("status: %d settled and a backlog of %d, since %s; want %d and %d", s.Settled, s.Backlog, s.OldestAge, settled, backlog)
	}
}

func partTheRestComesBack(e *env) {
	e.publish(messages("m", 6)...)
	r := e.read()
	b := r.fetch(plenty)
	r.part(sent("m1", "m4"), b)
	e.wantSettled(r, 2, 4)
	r.want()
	r = r.again()
	b = r.fetch(plenty)
	e.wantInOrder(b.Messages, "m0", "m2", "m3", "m5")
	e.Must(r.Renew(e.ctx), "Renew")
	r = r.again() // what this one did not settle comes again, and not what the first one did
	b = r.fetch(plenty)
	e.wantInOrder(b.Messages, "m0", "m2", "m3", "m5")
	r.part(sent("m0", "m5"), b)
	e.wantSettled(r, 4, 2)
	r = r.again()
	e.publish(message("", "new"))
	batches := r.drain(plenty)
	e.wantInOrder(flatten(batches), "m2", "m3", "new")
	r.settle(batches...)
	e.wantSettled(r, 7, 0)
	r.again().want()
}

func partWithEveryVerdict(e *env) {
	r := e.read()
	e.publish(slices.Concat(keyed("a", 0, 3), keyed("b", 0, 3), keyed("c", 0, 2))...)
	b := r.fetch(plenty)
	r.part(verdicts{"a0": {}, "b0": refused(b.Messages[3], notInThisTest), "b1": behind, "b2": behind, "c0": dead("for good")}, b)
	e.wantPayloads(deadMessages(e.deadLetters(r)), "c0")
	e.wantParked(r, 3, 1, 0)
	e.wantSettled(r, 2, 3)
	e.publish(append(keyed("b", 3, 4), keyed("a", 3, 4)...)...)
	later := r.fetch(plenty)
	if later.Order(0) != driver.BehindParked || later.Order(1) != driver.InOrder {
		e.Fatalf("b3 came with order %d, a3 with %d", later.Order(0), later.Order(1))
	}
	r = r.again()
	rest := flatten(r.drain(plenty))
	e.wantInOrder(rest, "a1", "a2", "c1", "b3", "a3")
}

func partOfSeveralBatches(e *env) {
	r := e.read()
	e.publish(messages("m", 8)...)
	batches := r.drain(two)
	r.part(sent("m0", "m1", "m3", "m4", "m5", "m6"), batches...)
	e.wantSettled(r, 6, 2)
	r.part(sent("m2"), batches[1])
	e.wantSettled(r, 7, 1)
	r = r.again()
	r.settle(r.want("m7")...)
	e.wantSettled(r, 8, 0)
}

// Settled messages are passed over when the batch is settled whole, whatever its verdicts say.
func partThenTheWhole(e *env) {
	r := e.read()
	e.publish(messages("m", 4)...)
	b := r.fetch(plenty)
	died := dead("for good")
	r.part(verdicts{"m2": died, "m3": {}}, b)
	r.part(verdicts{"m2": died, "m3": {}}, b)
	r.judge(verdicts{"m1": dead("too"), "m2": died}, b)
	r.judge(verdicts{"m1": dead("too"), "m2": died}, b)
	e.wantSettled(r, 4, 0)
	for _, l := range e.deadLetters(r) {
		suite.Equal(e, len(l.Failures), 1, "failures of %s", l.Message.Payload)
	}
	e.publish(messages("n", 2)...)
	b = r.fetch(plenty)
	r.part(sent("n0"), b)
	r.settle(b)
	r = r.again()
	r.want()
	e.wantSettled(r, 6, 0)
}

// Every other message of many, of which some were rolled back, settled in turns.
func partSettlesWhatIsFresh(e *env) {
	r := e.read()
	want := map[string]bool{}
	for i := range 30 {
		e.publish(messages(fmt.Sprint(i, "-"), 20)...)
		t := e.begin()
		t.publish(message("", "no"))
		t.Rollback()
		for j := range 20 {
			want[fmt.Sprint(i, "-", j)] = true
		}
	}
	for round := 0; len(want) > 0; round++ {
		batches := r.drain(driver.Limit{Messages: 100, Bytes: plenty.Bytes})
		v := verdicts{}
		for i, m := range flatten(batches) {
			if !want[string(m.Payload)] {
				e.Fatalf("round %d: %s came again after it was settled", round, m.Payload)
			}
			if (i+round)%2 == 0 || len(want) < 10 {
				v[string(m.Payload)] = driver.Verdict{}
				delete(want, string(m.Payload))
			}
		}
		r.part(v, batches...)
		e.wantSettled(r, int64(600-len(want)), int64(len(want)))
		r = r.again()
	}
	r.want()
}

func partOfAKey(e *env) {
	r := e.read()
	e.publish(append(keyed("k", 0, 6), keyed("o", 0, 1)...)...)
	v := verdicts{"o0": {}}
	for i := range 6 {
		v[fmt.Sprint("k", i)] = behind
	}
	r.judge(v, r.fetch(plenty))
	b := r.awaitOnly(driver.InOrder, "k0", "k1", "k2", "k3", "k4", "k5")
	r.part(sent("k0", "k1"), b)
	e.wantParked(r, 4, 1, 0)
	r.want() // the others are still in this reader's hands
	r.part(sent("k0", "k1", "k2"), b)
	r.want()
	r = r.again()
	b = r.awaitOnly(driver.InOrder, "k3", "k4", "k5")
	r.part(sent("k3"), b)
	r.judge(verdicts{"k4": refused(b.Messages[1], soon), "k5": behind}, b)
	b = r.awaitOnly(driver.InOrder, "k4") // alone, as it was refused
	r.settle(b)
	b = r.awaitOnly(driver.InOrder, "k5")
	r.settle(b)
	e.wantParked(r, 0, 0, 0)
	e.wantSettled(r, 7, 0)
	r.again().want()
}

func partOfLinesOfOne(e *env) {
	r := e.read()
	e.publish(append(messages("m", 4), message("k", "k0"))...)
	b := r.fetch(plenty)
	v := verdicts{"k0": refused(b.Messages[4], 0)}
	for i := range 4 {
		v[fmt.Sprint("m", i)] = refused(b.Messages[i], 0)
	}
	r.judge(v, b)
	batches := r.drain(plenty)
	e.wantPayloads(flatten(batches), "m0", "m1", "m2", "m3", "k0")
	r.part(verdicts{"m0": {}, "m1": dead("for good"), "m2": {Outcome: driver.Parked, RetryIn: notInThisTest}}, batches...)
	r.want()
	e.wantParked(r, 3, 3, 0)
	r = r.again()
	batches = r.drain(plenty)
	e.wantPayloads(flatten(batches), "m3", "k0")
	for _, m := range flatten(batches) {
		suite.Equal(e, m.Attempt, 2, "attempt of %s", m.Payload)
	}
	r.settle(batches...)
	e.wantParked(r, 1, 1, 0)
}

func partOfRetriedDeadLetters(e *env) {
	r := e.read()
	e.publish(messages("m", 4)...)
	b := r.fetch(plenty)
	r.judge(verdicts{"m0": dead("0"), "m1": dead("1"), "m2": dead("2"), "m3": dead("3")}, b)
	e.retry(r, e.deadLetters(r)...)
	batches := r.drain(plenty)
	e.wantPayloads(flatten(batches), "m0", "m1", "m2", "m3")
	again := dead("again")
	again.Failures[0].Attempt = 2
	r.part(verdicts{"m0": {}, "m2": again}, batches...)
	r.want()
	e.wantPayloads(deadMessages(e.deadLetters(r)), "m2")
	r = r.again()
	batches = r.drain(plenty)
	e.wantPayloads(flatten(batches), "m1", "m3")
	r.settle(batches...)
	suite.Equal(e, len(e.onlyDead(r, false).Failures), 2, "failures of m2")
}

func partOfAReplay(e *env) {
	r, _ := e.settledOnes(8)
	e.replay(r, admin.Replay{}, 8)
	batches := r.drain(driver.Limit{Messages: 5, Bytes: plenty.Bytes})
	all := payloads(flatten(batches))
	r.part(sent(all[0], all[2], all[3], all[6]), batches...)
	r = r.again()
	b := r.await(plenty)
	e.wantInOrder(b.Messages, all[1], all[4], all[5], all[7])
	r.part(sent(all[1], all[7]), b)
	r = r.again()
	b = r.await(plenty)
	e.wantInOrder(b.Messages, all[4], all[5])
	r.part(sent(all[5]), b)
	r.part(sent(all[4]), b)
	e.wantReplaying(r, false)
	r.again().want()
	e.replay(r, admin.Replay{}, 8) // and from the beginning once more
}

// Messages settled ahead of the cursor are as settled as those behind it.
func partIsReplayed(e *env) {
	e.retain(admin.Retention{Age: notInThisTest}) // else a store may let go of it at once
	r := e.read()
	e.publish(messages("m", 6)...)
	batches := r.drain(driver.Limit{Messages: 3, Bytes: plenty.Bytes})
	r.part(sent("m0", "m2", "m4"), batches...)
	e.replay(r, admin.Replay{}, 3)
	r.settle(batches...) // the others are delivered for the first time
	e.wantPayloads(flatten(r.drain(plenty)), "m0", "m2", "m4")
	r = r.again()
	batches = r.drain(plenty)
	e.wantPayloads(flatten(batches), "m0", "m2", "m4")
	r.settle(batches...)
	r.again().want()
}

func partReclaimKeepsTheRest(e *env) {
	r := e.read()
	floor := e.outboxStatus(outbox).Bytes
	e.bulk(0, 3)
	var batches []driver.Batch
	v, held := verdicts{}, 0
	for _, b := range r.drain(plenty) {
		for i, m := range b.Messages {
			if v[string(m.Payload)] = (driver.Verdict{}); i%10 == 3 {
				delete(v, string(m.Payload))
				held++
			}
		}
		batches = append(batches, b)
	}
	r.part(v, batches...)
	e.maintain()
	r = r.again()
	e.maintain()
	batches = r.drain(plenty)
	suite.MustEqual(e, len(flatten(batches)), held, "messages that were not settled")
	e.maintain()
	r.settle(batches...)
	e.shrinks(floor)
}

// A transaction that commits behind messages settled ahead is not among them.
func partLateCommit(e *env) {
	r := e.read()
	t := e.begin()
	t.publish(messages("late", 2)...)
	e.publish(messages("m", 4)...)
	b := r.fetch(plenty)
	e.wantInOrder(b.Messages, "m0", "m1", "m2", "m3")
	r.part(sent("m1", "m2"), b)
	t.Commit()
	late := r.fetch(plenty)
	e.wantInOrder(late.Messages, "late0", "late1")
	r.part(sent("late1"), late)
	e.wantSettled(r, 3, 3)
	r = r.again()
	batches := r.drain(plenty)
	e.wantPayloads(flatten(batches), "m0", "m3", "late0")
	r.settle(batches...)
	e.wantSettled(r, 6, 0)
	r.again().want()
}

func partFenced(e *env) {
	e.publish(messages("m", 4)...)
	var b driver.Batch
	old := e.mortalReader(func(r *reader) (err error) { b, err = r.Fetch(e.ctx, plenty); return err })
	r := e.takeOver(e.Store, driver.Subscribe{})
	e.MustBe(old.Settle(e.ctx, parts(verdicts{"m1": {}, "m2": dead("for good")}, b)...), penstock.ErrFenced, "Settle of a part")
	r.want("m0", "m1", "m2", "m3")
	e.wantDeadLetters(r, 0)
	e.wantSettled(r, 0, 4)
}
