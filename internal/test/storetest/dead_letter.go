package storetest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testseed"
)

var deadLetterCases = named("DeadLetter", deadLetterListed, deadLetterRetryAndDieAgain,
	deadLetterRetrySurvivesACrash, deadLetterRetryWithoutAReader, deadLetterPassOverOthers, deadLetterSurviveReclaim,
	deadLetterOnTheirWayBack, deadLetterComeBackOutOfOrder, deadLetterPassParkedOnesOfTheirKey, deadLetterHistoryGoesOn)

// deadLetters lists those of r's subscription.
func (e *env) deadLetters(r *reader) []admin.DeadLetter {
	return suite.Get(e.Store.DeadLetters(e.ctx, query(r.req))).Must(e, "DeadLetters")
}

// wantDeadLetters lists n of them.
func (e *env) wantDeadLetters(r *reader, n int) []admin.DeadLetter {
	deadLetters := e.deadLetters(r)
	suite.MustEqual(e, len(deadLetters), n, "dead letters")
	return deadLetters
}

// onlyDead is the one dead letter that there is, which holds its key or does not.
func (e *env) onlyDead(r *reader, held bool) admin.DeadLetter {
	l := e.wantDeadLetters(r, 1)[0]
	suite.Equal(e, l.Held, held, "the dead letter %s holds its key", l.Message.Payload)
	return l
}

// retryDead sends back n dead letters of those that q asks for, discardDead deletes n.
func (e *env) retryDead(q admin.DeadLetterQuery, n int) {
	got := suite.Get(e.Store.RetryDeadLetters(e.ctx, q)).Must(e, "RetryDeadLetters")
	suite.MustEqual(e, got, n, "RetryDeadLetters of %+v", q)
}

func (e *env) discardDead(q admin.DeadLetterQuery, n int) {
	got := suite.Get(e.Store.DiscardDeadLetters(e.ctx, q)).Must(e, "DiscardDeadLetters")
	suite.MustEqual(e, got, n, "DiscardDeadLetters of %+v", q)
}

// retry sends dead letters back, and expects that all of them were some.
func (e *env) retry(r *reader, deadLetters ...admin.DeadLetter) {
	q := query(r.req)
	for _, l := range deadLetters {
		q.Seqs = append(q.Seqs, l.Message.Seq)
	}
	e.retryDead(q, len(deadLetters))
}

// query asks for all dead letters of a subscription.
func query(req driver.Subscribe) admin.DeadLetterQuery {
	return admin.DeadLetterQuery{Outbox: req.Outbox, Subscription: req.Subscription}
}

// deadLetter settles batches with every message dead.
func (r *reader) deadLetter(reason string, batches ...driver.Batch) {
	settled := delivered(batches...)
	for i, b := range batches {
		settled[i].Verdicts = slices.Repeat([]driver.Verdict{dead(reason)}, len(b.Messages))
	}
	r.e.Must(r.Settle(r.e.ctx, settled...), "Settle with everything dead")
}

func deadMessages(deadLetters []admin.DeadLetter) []penstock.Message {
	msgs := make([]penstock.Message, len(deadLetters))
	for i, l := range deadLetters {
		msgs[i] = l.Message
	}
	return msgs
}

func deadLetterListed(e *env) {
	r := e.read()
	var sent []penstock.Message
	for i := range 3 {
		m := message(fmt.Sprint("key", i), fmt.Sprint("m", i))
		m.Headers = map[string]string{"trace": fmt.Sprint(i)}
		e.publish(m)
		b := r.fetch(plenty)
		sent = append(sent, b.Messages...)
		r.deadLetter(fmt.Sprintf("reason %d: \"quoted\", über\nnext line", i), b)
	}
	deadLetters := e.wantDeadLetters(r, 3)
	for i, l := range deadLetters {
		e.sameMessage(l.Message, sent[i])
		suite.Equal(e, l.Err(), fmt.Sprintf("reason %d: \"quoted\", über\nnext line", i), "error of dead letter %d", i)
		if age := time.Since(l.At); age < -time.Hour || age > time.Hour {
			e.Errorf("dead letter %d is from %s", i, l.At)
		}
	}
	q := query(r.req)
	q.Limit = 2
	some := suite.Get(e.Store.DeadLetters(e.ctx, q)).Must(e, "DeadLetters")
	if len(some) != 2 || some[0].Message.ID != deadLetters[0].Message.ID || some[1].Message.ID != deadLetters[1].Message.ID {
		e.Errorf("with a limit of 2 there are %d, want the two oldest", len(some))
	}
}

func deadLetterRetryAndDieAgain(e *env) {
	r := e.read()
	m := message("key", "m")
	m.Headers = map[string]string{"a": "b"}
	e.publish(m)
	var first penstock.Message
	for attempt := 1; attempt <= 4; attempt++ {
		b := r.fetch(plenty)
		suite.MustEqual(e, len(b.Messages), 1, "messages in attempt %d", attempt)
		if m := b.Messages[0]; attempt == 1 {
			first = m
		} else {
			first.Attempt, first.Seq = attempt, m.Seq
			e.sameMessage(m, first)
		}
		r.want() // once for each source
		r.deadLetter(fmt.Sprint("attempt ", attempt), b)
		deadLetters := e.deadLetters(r)
		if len(deadLetters) != 1 || deadLetters[0].Message.Attempt != attempt || deadLetters[0].Err() != fmt.Sprint("attempt ", attempt) {
			e.Fatalf("the dead letters are %+v, want one of attempt %d", deadLetters, attempt)
		}
		e.retry(r, deadLetters...)
		if attempt == 2 {
			r = r.again()
		}
	}
	r.settle(r.want("m")...)
	r = r.again()
	r.want()
	e.wantDeadLetters(r, 0)
}

func deadLetterRetrySurvivesACrash(e *env) {
	r := e.read()
	e.publish(messages("dead", 2)...)
	r.deadLetter("no", r.drain(plenty)...)
	e.publish(messages("live", 2)...)
	e.retry(r, e.deadLetters(r)...)
	for range 2 {
		r.want("dead0", "dead1", "live0", "live1")
		r = r.again() // nothing was settled
		e.maintain()
	}
	for _, b := range r.drain(driver.Limit{Messages: 1, Bytes: plenty.Bytes}) {
		want := 1
		if string(b.Messages[0].Payload[:4]) == "dead" {
			want = 2
		}
		suite.Equal(e, b.Messages[0].Attempt, want, "Attempt of %s", b.Messages[0].Payload)
		r.settle(b)
	}
	r.again().want()
}

func deadLetterRetryWithoutAReader(e *env) {
	r := e.read()
	e.publish(messages("dead", 3)...)
	r.deadLetter("no", r.drain(plenty)...)
	r.close()
	deadLetters := e.deadLetters(r)
	e.retry(r, deadLetters[1])
	r = e.subscribeOn(e.Another(e), driver.Subscribe{})
	r.settle(r.want(string(deadLetters[1].Message.Payload))...)
	e.wantPayloads(deadMessages(e.deadLetters(r)), string(deadLetters[0].Message.Payload), string(deadLetters[2].Message.Payload))
}

// A message that was delivered, or sent back before, is neither sent back nor discarded.
func deadLetterPassOverOthers(e *env) {
	r := e.read()
	e.publish(messages("m", 4)...)
	b := r.fetch(plenty)
	r.judge(verdicts{"m0": dead("no"), "m1": dead("no"), "m3": dead("no")}, b)
	q := query(r.req)
	q.Seqs = []int64{b.Messages[2].Seq, b.Messages[0].Seq, 1 << 40, b.Messages[0].Seq}
	e.retryDead(q, 1)
	r.settle(r.want("m0")...)
	q.Seqs = append(q.Seqs, b.Messages[1].Seq)
	e.discardDead(q, 1)
	e.discardDead(q, 0)
	e.retryDead(q, 0)
	e.wantPayloads(deadMessages(e.deadLetters(r)), "m3")
	r.want()
	r.again().want()
}

func deadLetterSurviveReclaim(e *env) {
	rnd := e.Random(0)
	r := e.read()
	want := map[string]bool{}
	for range 4 {
		var msgs []penstock.Message
		for range 8 {
			msgs = append(msgs, message("", string(testseed.Bytes(rnd, 64<<10))))
		}
		e.publish(msgs...)
		for i, b := range r.drain(two) {
			if i > 0 {
				r.settle(b)
				continue
			}
			for _, m := range b.Messages {
				want[string(m.Payload)] = true
			}
			r.deadLetter("no", b)
		}
		e.maintain()
		e.maintain()
	}
	deadLetters := e.deadLetters(r)
	e.wantPayloads(deadMessages(deadLetters), slices.Collect(maps.Keys(want))...)
	e.retry(r, deadLetters...)
	for range 3 {
		e.maintain()
	}
	r = r.again()
	r.settle(r.want(slices.Collect(maps.Keys(want))...)...)
	r.again().want()
}

// A dead letter that was sent back and is not settled is neither listed nor discarded, nor sent
// back twice.
func deadLetterOnTheirWayBack(e *env) {
	r := e.read()
	e.publish(messages("m", 2)...)
	r.deadLetter("no", r.fetch(plenty))
	e.retry(r, e.deadLetters(r)[0])
	check := func() {
		e.wantPayloads(deadMessages(e.deadLetters(r)), "m1")
		suite.Equal(e, e.subscriptionStatus(r.req).DeadLetters, 1, "dead letters of the status")
	}
	check()
	b := r.await(plenty)
	e.wantInOrder(b.Messages, "m0")
	check()
	q := query(r.req)
	q.IDs = []string{b.Messages[0].ID}
	e.discardDead(q, 0)
	e.retryDead(q, 0)
	r = r.again()
	check()
	b = r.await(plenty)
	e.wantInOrder(b.Messages, "m0")
	r.settle(b)
	r.want()
}

// Nothing waits for a dead letter that was sent back, nor does it wait.
func deadLetterComeBackOutOfOrder(e *env) {
	r := e.read()
	e.publish(keyed("k", 0, 3)...)
	b := r.fetch(plenty)
	r.judge(verdicts{"k0": dead("no")}, b)
	since := e.deadLetters(r)[0].Failures[0].At
	e.retry(r, e.deadLetters(r)...)
	for attempt := 2; attempt <= 4; attempt++ {
		back := r.awaitOnly(driver.OutOfOrder, "k0")
		if m := back.Messages[0]; m.Attempt != attempt || m.FailedSince.Sub(since).Truncate(time.Millisecond) != 0 {
			e.Errorf("k0 came with attempt %d and failed since %s, want %d and %s", m.Attempt, m.FailedSince, attempt, since)
		}
		e.publish(keyed("k", attempt, attempt+1)...)
		fresh := r.fetch(plenty)
		e.wantOrder(fresh, driver.InOrder, fmt.Sprint("k", attempt))
		if attempt == 4 {
			r.settle(back, fresh)
			break
		}
		r.judge(verdicts{"k0": refused(back.Messages[0], soon)}, back, fresh)
		if attempt == 2 {
			r = r.again() // and neither does it after a crash
		}
	}
	e.wantParked(r, 0, 0, 0)
	e.publish(keyed("k", 5, 6)...)
	e.wantOrder(r.again().fetch(plenty), driver.InOrder, "k5")
}

func deadLetterPassParkedOnesOfTheirKey(e *env) {
	r := e.read()
	e.publish(keyed("k", 0, 3)...)
	b := r.fetch(plenty)
	r.judge(verdicts{"k0": dead("no"), "k1": refused(b.Messages[1], notInThisTest), "k2": behind}, b)
	e.retry(r, e.deadLetters(r)...)
	b = r.awaitOnly(driver.OutOfOrder, "k0")
	r.judge(verdicts{"k0": refused(b.Messages[0], soon)}, b)
	e.publish(keyed("k", 3, 4)...)
	c := &carrier{e: e, r: r, limit: plenty}
	c.until(1)
	c.wantKey("k", "k0")
	e.wantParked(r, 3, 1, 0)
	r.again().want()
}

// A dead letter that dies again is one dead letter, with all that it went through.
func deadLetterHistoryGoesOn(e *env) {
	r := e.read()
	e.publish(message("k", "m"))
	b := r.fetch(plenty)
	var all []penstock.Failure
	for round := range 4 {
		fs := failures(b.Messages[0], 2, "parked")
		r.judge(verdicts{"m": {Outcome: driver.Parked, RetryIn: soon, Failures: fs}}, b)
		b = r.await(plenty)
		more := failures(b.Messages[0], 2, "dead")
		r.judge(verdicts{"m": {Outcome: driver.Dead, Failures: more}}, b)
		all = slices.Concat(all, fs, more)
		deadLetters := e.wantDeadLetters(r, 1)
		e.wantHistory(deadLetters[0], all)
		if m := deadLetters[0].Message; m.Attempt != len(all) || !m.FailedSince.Equal(all[0].At) {
			e.Errorf("the dead letter has attempt %d since %s, want %d since %s", m.Attempt, m.FailedSince, len(all), all[0].At)
		}
		if round == 1 {
			r = r.again()
		}
		e.retry(r, deadLetters...)
		b = r.awaitOnly(driver.OutOfOrder, "m")
		e.wantNext(b.Messages[0], b.Messages[0], len(all)+1, all[0].At)
	}
}
