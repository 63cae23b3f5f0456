package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

var parkedCases = slices.Concat(
	named("Parked", parkedNotBeforeItIsDue, parkedComesBackAsItWas, parkedInFlightLetsFetchesPause,
		parkedHeadIsRefusedAgain, parkedBehindUntilTheLineIsEmpty, parkedBehindAndNotWanted, parkedHandedOutOnce, parkedFailuresAddUp,
		parkedWithoutFailuresNoAttempt, parkedWithoutKeyAlone, parkedDescribedByParkedKeys, parkedRetriedAtOnce, parkedGivenUp),
	[]testCase{
		{Name: "OthersFollowTheHead", Run: func(e *env) { othersFollow(e, driver.Verdict{}) }},
		{Name: "OthersFollowADeadHead", Run: func(e *env) { othersFollow(e, dead("for good")) }},
	},
)

func parkedNotBeforeItIsDue(e *env) {
	r := e.read()
	e.publish(append(keyed("k", 0, 2), message("other", "o"), message("", "u"))...)
	b := r.fetch(plenty)
	r.judge(verdicts{"k0": refused(b.Messages[0], notInThisTest), "k1": behind, "u": refused(b.Messages[3], notInThisTest)}, b)
	r.want()
	e.wantParked(r, 3, 2, 0)
	if s := e.subscriptionStatus(r.req); s.Backlog != 0 || s.DeadLetters != 0 {
		e.Errorf("status: backlog %d, dead letters %d, want none: what is parked is neither", s.Backlog, s.DeadLetters)
	}
	e.maintain()
	r = r.again()
	r.want()
	r.close()
	r = e.subscribeOn(e.Another(e), driver.Subscribe{})
	e.publish(message("other", "o2"), message("", "u2"))
	b = r.fetch(plenty)
	e.wantOrder(b, driver.InOrder, "o2", "u2") // others flow on
	r.settle(b)
	r.want()
	e.wantParked(r, 3, 2, 0)
}

func parkedComesBackAsItWas(e *env) {
	r := e.read()
	m := penstock.Message{ID: "given", Key: "k", Topic: "a.b", Headers: map[string]string{"h": "1", "ü": "\n"}, Payload: []byte("\x00\xff\xfe")}
	e.publish(m)
	b := r.fetch(plenty)
	before := b.Messages[0]
	v := driver.Verdict{Outcome: driver.Parked, Failures: failures(before, 3, "no"), RetryIn: soon}
	r.judge(verdicts{string(m.Payload): v}, b)
	for range 2 { // the second time to another reader, because the first settled nothing
		again := r.await(plenty)
		e.wantOrder(again, driver.InOrder, string(m.Payload))
		e.wantNext(again.Messages[0], before, 4, v.Failures[0].At)
		r = r.again()
	}
	r.settle(r.await(plenty))
	e.wantParked(r, 0, 0, 0)
	r = r.again()
	r.want()
	e.publish(message("k", "next"))
	e.wantOrder(r.fetch(plenty), driver.InOrder, "next")
}

// While the next attempt of a parked message lasts, a Fetch does not say that there is more: a relay would fetch without a pause.
func parkedInFlightLetsFetchesPause(e *env) {
	r := e.read()
	e.publish(keyed("k", 0, 2)...)
	b := r.fetch(plenty)
	r.judge(verdicts{"k0": refused(b.Messages[0], soon), "k1": behind}, b)
	head := r.awaitOnly(driver.InOrder, "k0")
	pauses := 0
	for range 10 {
		if b := r.fetch(plenty); len(b.Messages) == 0 && !b.More {
			pauses++
		}
	}
	if pauses < 8 { // what was read before may be looked at once more
		e.Errorf("of 10 fetches behind a parked message in flight %d found the end", pauses)
	}
	r.settle(head)
	r.settle(r.awaitOnly(driver.InOrder, "k1"))
}

// The head comes alone, and the others when it is settled, whatever RetryIn
// they were given.
func othersFollow(e *env, headsEnd driver.Verdict) {
	r := e.read()
	e.publish(slices.Concat(keyed("k", 0, 5), keyed("o", 0, 2))...)
	b := r.fetch(plenty)
	wait := driver.Verdict{Outcome: driver.Parked, RetryIn: notInThisTest}
	r.judge(verdicts{"k0": refused(b.Messages[0], soon), "k1": wait, "k2": wait, "k3": wait, "k4": wait}, b)
	head := r.awaitOnly(driver.InOrder, "k0")
	r.judge(verdicts{"k0": headsEnd}, head)
	rest := r.await(driver.Limit{Messages: 3, Bytes: plenty.Bytes})
	e.wantOrder(rest, driver.InOrder, "k1", "k2", "k3")
	for i, m := range rest.Messages {
		e.wantNext(m, b.Messages[i+1], 1, m.FailedSince)
		if !m.FailedSince.IsZero() {
			e.Errorf("%s was never refused and came with FailedSince %s", m.Payload, m.FailedSince)
		}
	}
	r.settle(rest)
	r.settle(r.awaitOnly(driver.InOrder, "k4"))
	e.wantParked(r, 0, 0, 0)
	e.wantDeadLetters(r, int(headsEnd.Outcome)) // Delivered is 0, Dead 1
	e.publish(message("k", "k5"))
	e.wantOrder(r.fetch(plenty), driver.InOrder, "k5")
	r.again().want("k5")
}

func parkedHeadIsRefusedAgain(e *env) {
	r := e.read()
	e.publish(keyed("k", 0, 4)...)
	b := r.fetch(plenty)
	r.judge(verdicts{"k0": refused(b.Messages[0], soon), "k1": behind, "k2": behind, "k3": behind}, b)
	for attempt := 2; attempt <= 4; attempt++ {
		head := r.awaitOnly(driver.InOrder, "k0")
		suite.MustEqual(e, head.Messages[0].Attempt, attempt, "attempt")
		r.judge(verdicts{"k0": refused(head.Messages[0], soon)}, head)
	}
	r.settle(r.awaitOnly(driver.InOrder, "k0"))
	// The second becomes the head: the others wait for it in their turn.
	rest := r.awaitOnly(driver.InOrder, "k1", "k2", "k3")
	r.judge(verdicts{"k1": refused(rest.Messages[0], soon), "k2": behind, "k3": behind}, rest)
	r = r.again()
	head := r.awaitOnly(driver.InOrder, "k1")
	suite.Equal(e, head.Messages[0].Attempt, 2, "attempt of k1")
	r.judge(verdicts{"k1": refused(head.Messages[0], notInThisTest)}, head)
	r.want()
	e.wantParked(r, 3, 1, 0)
}

func parkedBehindUntilTheLineIsEmpty(e *env) {
	r := e.read()
	one := driver.Limit{Messages: 1, Bytes: plenty.Bytes}
	e.publish(message("k", "k0"))
	b := r.fetch(plenty)
	r.judge(verdicts{"k0": refused(b.Messages[0], soon)}, b)
	head := r.awaitOnly(driver.InOrder, "k0")
	// The key is in flight and not empty.
	e.publish(message("k", "k1"), message("o", "o1"))
	b = r.fetch(one)
	e.wantOrder(b, driver.BehindParked, "k1")
	o := r.fetch(one)
	e.wantOrder(o, driver.InOrder, "o1")
	r.settle(head)
	r.judge(verdicts{"k1": behind}, b, o)
	next := r.awaitOnly(driver.InOrder, "k1")
	r = r.again() // k1 is unsettled, its parking durable
	e.publish(message("k", "k2"))
	var got []driver.Batch
	for len(got) < 2 { // one is parked, the other new: in any order
		got = append(got, r.await(one))
	}
	slices.SortFunc(got, func(a, b driver.Batch) int { return int(a.Messages[0].Seq - b.Messages[0].Seq) })
	e.wantOrder(got[0], driver.InOrder, string(next.Messages[0].Payload))
	e.wantOrder(got[1], driver.BehindParked, "k2")
	r.judge(verdicts{"k2": behind}, got...)
	r.settle(r.awaitOnly(driver.InOrder, "k2"))
	e.wantParked(r, 0, 0, 0)
	e.publish(message("k", "k3"))
	e.wantOrder(r.fetch(plenty), driver.InOrder, "k3")
}

// A filter may not want a message that is behind: it is settled as delivered.
func parkedBehindAndNotWanted(e *env) {
	r := e.read()
	e.publish(message("k", "k0"))
	b := r.fetch(plenty)
	r.judge(verdicts{"k0": refused(b.Messages[0], notInThisTest)}, b)
	e.publish(message("k", "k1"))
	b = r.fetch(plenty)
	e.wantOrder(b, driver.BehindParked, "k1")
	r.settle(b)
	e.wantParked(r, 1, 1, 0)
	e.publish(message("k", "k2"))
	e.wantOrder(r.again().fetch(plenty), driver.BehindParked, "k2")
}

func parkedHandedOutOnce(e *env) {
	r := e.read()
	e.publish(slices.Concat(keyed("a", 0, 3), keyed("b", 0, 3), messages("u", 3))...)
	b := r.fetch(plenty)
	v := verdicts{}
	for _, m := range b.Messages {
		v[string(m.Payload)] = driver.Verdict{Outcome: driver.Parked, RetryIn: soon}
	}
	r.judge(v, b)
	var got []driver.Batch
	e.Eventually("a message of each key has come", func() bool {
		got = append(got, r.drain(two)...)
		keys := map[string]bool{}
		for _, m := range flatten(got) {
			if m.Key == "" {
				keys[string(m.Payload)] = true
			} else {
				keys[m.Key] = true
			}
		}
		return len(keys) == 5
	})
	for i, m := range flatten(got) {
		if slices.ContainsFunc(flatten(got)[:i], func(o penstock.Message) bool { return o.ID == m.ID }) {
			e.Errorf("%s came twice from one Source", m.Payload)
		}
		suite.Equal(e, m.Attempt, 1, "attempt of %s, of which none was counted", m.Payload)
	}
	c := &carrier{e: e, r: r.again(), limit: two}
	c.until(9) // nothing was settled, everything is there
	c.wantKey("a", "a0", "a1", "a2")
	c.wantKey("b", "b0", "b1", "b2")
	e.wantParked(c.r, 0, 0, 0)
	c.r.again().want()
}

// Every verdict adds its failures; the latest are kept.
func parkedFailuresAddUp(e *env) {
	r := e.read()
	e.publish(message("k", "m"))
	b := r.fetch(plenty)
	var all []penstock.Failure
	for range 4 {
		m := b.Messages[0]
		suite.MustEqual(e, m.Attempt, len(all)+1, "attempt after %d failures", len(all))
		fs := failures(m, 4, "a \"quoted\"\nreason, über")
		all = append(all, fs...)
		v := driver.Verdict{Outcome: driver.Parked, RetryIn: soon, Failures: fs}
		if len(all) == 16 {
			v.Outcome = driver.Dead
		}
		r.judge(verdicts{"m": v}, b)
		if v.Outcome == driver.Parked {
			k := e.parkedKeys(r)
			if len(k) != 1 || k[0].Attempt != len(all) || k[0].Err != fs[3].Err || !k[0].Since.Equal(all[0].At) {
				e.Errorf("ParkedKeys: %+v, want attempt %d since %s with the error %q", k, len(all), all[0].At, fs[3].Err)
			}
			b = r.awaitOnly(driver.InOrder, "m")
			e.wantNext(b.Messages[0], m, len(all)+1, all[0].At)
		}
	}
	deadLetters := e.wantDeadLetters(r, 1)
	e.wantHistory(deadLetters[0], all)
	if l := deadLetters[0].Message; l.Attempt != 16 || !l.FailedSince.Equal(all[0].At) {
		e.Errorf("the dead letter has attempt %d since %s, want 16 since %s", l.Attempt, l.FailedSince, all[0].At)
	}
}

// wantHistory expects the latest of all failures that there were.
func (e *env) wantHistory(l admin.DeadLetter, all []penstock.Failure) {
	want := all[max(0, len(all)-penstock.MaxFailures):]
	if !slices.EqualFunc(l.Failures, want, func(a, b penstock.Failure) bool {
		return a.Attempt == b.Attempt && a.Err == b.Err && a.At.Equal(b.At)
	}) {
		e.Errorf("the dead letter's failures are\n %+v, want\n %+v", l.Failures, want)
	}
}

func parkedWithoutFailuresNoAttempt(e *env) {
	r := e.read()
	e.publish(message("k", "m"))
	b := r.fetch(plenty)
	v := driver.Verdict{Outcome: driver.Parked, RetryIn: soon}
	for range 3 {
		r.judge(verdicts{"m": v}, b)
		next := r.awaitOnly(driver.InOrder, "m")
		e.wantNext(next.Messages[0], b.Messages[0], 1, b.Messages[0].FailedSince)
		b = next
	}
	fs := failures(b.Messages[0], 1, "at last")
	r.judge(verdicts{"m": {Outcome: driver.Parked, RetryIn: soon, Failures: fs}}, b)
	b = r.awaitOnly(driver.InOrder, "m")
	e.wantNext(b.Messages[0], b.Messages[0], 2, fs[0].At)
	r.judge(verdicts{"m": v}, b) // the broker was down, say
	e.wantNext(r.awaitOnly(driver.InOrder, "m").Messages[0], b.Messages[0], 2, fs[0].At)
}

func parkedWithoutKeyAlone(e *env) {
	r := e.read()
	e.publish(messages("u", 4)...)
	b := r.fetch(plenty)
	r.judge(verdicts{"u0": refused(b.Messages[0], notInThisTest), "u1": refused(b.Messages[1], soon), "u2": refused(b.Messages[2], notInThisTest)}, b)
	e.wantParked(r, 3, 3, 0)
	b = r.await(plenty)
	e.wantInOrder(b.Messages, "u1")
	r.judge(verdicts{"u1": refused(b.Messages[0], soon)}, b)
	e.publish(messages("new", 2)...)
	c := &carrier{e: e, r: r, limit: plenty}
	c.until(3)
	e.wantPayloads(c.sent, "u1", "new0", "new1")
	e.wantParked(r, 2, 2, 0)
}

func parkedDescribedByParkedKeys(e *env) {
	r := e.read()
	e.publish(slices.Concat(keyed("late", 0, 2), keyed("soon", 0, 3), keyed("held", 0, 2), messages("u", 1))...)
	b := r.fetch(plenty)
	v := verdicts{
		"late0": refused(b.Messages[0], 2*notInThisTest), "late1": behind,
		"soon0": refused(b.Messages[2], notInThisTest), "soon1": behind, "soon2": behind,
		"held0": holding(b.Messages[5]), "held1": behind,
		"u0": refused(b.Messages[7], 3*notInThisTest),
	}
	r.judge(v, b)
	e.wantParked(r, 7, 4, 1)
	keys := e.parkedKeys(r)
	for i, want := range []struct {
		first    int // index in b
		messages int64
	}{{2, 3}, {0, 2}, {7, 1}, {5, 1}} {
		m, got := b.Messages[want.first], keys[i]
		fs := v[string(m.Payload)].Failures
		held := m.Key == "held"
		if got.Key != m.Key || got.Messages != want.messages || got.FirstSeq != m.Seq || got.Attempt != 1 || got.Err != fs[0].Err ||
			!got.Since.Equal(fs[0].At) || got.Held != held || got.Retry.IsZero() != held {
			e.Errorf("key %d is %+v, want that of %s with %d messages", i, got, m.Payload, want.messages)
		}
	}
	for i := range 4 {
		some := suite.Get(e.Store.ParkedKeys(e.ctx, outbox, r.req.Subscription, i)).Must(e, "ParkedKeys")
		suite.Equal(e, fmt.Sprint(some), fmt.Sprint(keys[:i]), "with a limit of %d", i)
	}
}

// retryParked asks for attempts as another process would.
func (e *env) retryParked(r *reader, parked int, keys ...string) {
	n := suite.Get(e.Another(e).RetryParked(e.ctx, outbox, r.req.Subscription, keys...)).Must(e, "RetryParked")
	suite.MustEqual(e, n, parked, "RetryParked %q", keys)
}

func parkedRetriedAtOnce(e *env) {
	r := e.read()
	e.publish(slices.Concat(keyed("k", 0, 2), keyed("other", 0, 1), keyed("held", 0, 2), messages("u", 1))...)
	b := r.fetch(plenty)
	v := verdicts{
		"k0": refused(b.Messages[0], notInThisTest), "k1": behind, "other0": refused(b.Messages[2], notInThisTest),
		"held0": holding(b.Messages[3]), "held1": behind, "u0": refused(b.Messages[5], notInThisTest),
	}
	r.judge(v, b)
	e.retryParked(r, 0, "no such key", "held", "")
	e.retryParked(r, 1, "k", "no such key", "k")
	head := r.awaitOnly(driver.InOrder, "k0") // those behind it still wait for it
	e.wantNext(head.Messages[0], b.Messages[0], 2, v["k0"].Failures[0].At)
	r.judge(verdicts{"k0": refused(head.Messages[0], notInThisTest)}, head)
	r.want() // it was for one attempt
	e.wantParked(r, 5, 4, 1)

	e.retryParked(r, 3)
	r = r.again() // the next relay
	c := &carrier{e: e, r: r, limit: plenty}
	c.until(4)
	c.wantKey("k", "k0", "k1")
	c.wantKey("other", "other0")
	e.wantParked(r, 1, 1, 1)
	e.retryParked(r, 0)

	e.publish(message("k", "k2"))
	b = r.fetch(plenty)
	r.judge(verdicts{"k2": refused(b.Messages[0], notInThisTest)}, b)
	r.want()
	e.wantParked(r, 2, 2, 1)
}

// giveUp asks for it as another process would.
func (e *env) giveUp(r *reader, seq int64, reason string, n int) {
	got := suite.Get(e.Another(e).GiveUpParked(e.ctx, outbox, r.req.Subscription, seq, reason)).Must(e, "GiveUpParked")
	suite.MustEqual(e, got, n, "GiveUpParked of %d", seq)
}

// A message that is given up comes with the reason, until it has its verdict. The reason does not count as an attempt.
func parkedGivenUp(e *env) {
	r := e.read()
	e.publish(slices.Concat(keyed("k", 0, 2), keyed("held", 0, 2), keyed("untried", 0, 2), messages("u", 1))...)
	b := r.fetch(plenty)
	v := verdicts{
		"k0": refused(b.Messages[0], notInThisTest), "k1": behind, "held0": holding(b.Messages[2]), "held1": {Outcome: driver.Parked, RetryIn: notInThisTest},
		"untried0": {Outcome: driver.Parked, RetryIn: notInThisTest}, "untried1": behind, "u0": refused(b.Messages[6], notInThisTest),
	}
	r.judge(v, b)
	for _, i := range []int{1, 2, 3, 5} { // not the first of a key that waits
		e.giveUp(r, b.Messages[i].Seq, "", 0)
	}
	e.giveUp(r, 1<<40, "", 0)
	_, err := e.Store.GiveUpParked(e.ctx, outbox, r.req.Subscription, b.Messages[0].Seq, strings.Repeat("x", 1001))
	e.BadField("a reason that is too long", err, "reason")
	r.want()

	reasons := map[int]string{0: "wrong \"address\"", 4: "never wanted"}
	for _, i := range []int{0, 4, 6} {
		r = e.givenUp(r, b.Messages[i], v[string(b.Messages[i].Payload)].Failures, reasons[i])
	}
	e.wantParked(r, 1, 1, 1)
	r.want()
}

// givenUp gives up a message that failed like this, has it die, and sends it back: it is an attempt again, and is not given up again.
func (e *env) givenUp(r *reader, m penstock.Message, failures []penstock.Failure, reason string) *reader {
	e.giveUp(r, m.Seq, reason, 1)
	_ = suite.Get(e.Store.RetryParked(e.ctx, outbox, r.req.Subscription, m.Key)).Must(e, "RetryParked") // that changes nothing
	name, since := string(m.Payload), time.Time{}
	if len(failures) > 0 {
		since = failures[0].At
	}
	reason = cmp.Or(reason, "given up by an operator")
	for range 2 { // the second time to another reader, because the first settled nothing
		b := r.await(plenty)
		e.wantNext(b.Messages[0], m, len(failures)+1, since)
		suite.Equal(e, fmt.Sprint(b.GivenUp), fmt.Sprint(map[int]string{0: reason}), "given up with %s", name)
		r = r.again()
	}
	b := r.await(plenty)
	all := append(slices.Clip(failures), penstock.Failure{At: time.Now().UTC().Truncate(time.Microsecond), Err: reason})
	verdicts := verdicts{name: {Outcome: driver.Dead, Failures: all[len(failures):]}}
	for _, follows := range b.Messages[1:] {
		verdicts[string(follows.Payload)] = behind
	}
	r.judge(verdicts, b)
	letters := slices.DeleteFunc(e.deadLetters(r), func(l admin.DeadLetter) bool { return l.Message.Seq != m.Seq })
	if len(letters) != 1 || letters[0].Message.Attempt != len(failures) {
		e.Fatalf("dead letters: %+v, want one with %d attempts", letters, len(failures))
	}
	e.wantHistory(letters[0], all)
	if m.Key != "" {
		r.settle(r.awaitOnly(driver.InOrder, m.Key+"1"))
	}
	e.retry(r, letters[0])
	for range 2 {
		b = r.await(plenty)
		if e.wantInOrder(b.Messages, name); b.GivenUp != nil {
			e.Errorf("%s was sent back, and came with %v given up", name, b.GivenUp)
		}
		verdicts[name] = driver.Verdict{Outcome: driver.Parked, RetryIn: soon}
		r.judge(verdicts, b)
	}
	r.settle(r.await(plenty))
	return r
}
