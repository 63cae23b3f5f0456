package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testseed"
)

var deadLetterQueryCases = named("DeadLetterQuery", deadLetterQueryEachFieldNarrows, deadLetterQueryRetryByQuery, deadLetterQueryDiscardByQuery)

// someDeadLetters are dead letters that differ in whatever a query asks for.
func (e *env) someDeadLetters() (*reader, []admin.DeadLetter) {
	r := e.read()
	for i, reason := range []string{"timeout", "Timeout", "100% full", "100 full", `back\slash_`, "back/slashX", "über", "two\nlines", "'quoted'", ""} {
		m := message([]string{"a", "b", "", "A"}[i%4], fmt.Sprint("m", i))
		m.ID, m.Topic = fmt.Sprint("id", i), []string{"t.x", "t.y", "t"}[i%3]
		e.publish(m, message("delivered", "d"))
		b := r.fetch(plenty)
		v := dead("an earlier reason: later")
		if reason != "" {
			v.Failures = append(v.Failures, dead(reason).Failures...)
		} else {
			v.Failures = nil
		}
		r.judge(verdicts{string(m.Payload): v}, b)
	}
	return r, e.wantDeadLetters(r, 10)
}

// describes is the promise of a query.
func describes(q admin.DeadLetterQuery, l admin.DeadLetter) bool {
	m := l.Message
	return (len(q.Seqs) == 0 || slices.Contains(q.Seqs, m.Seq)) &&
		(len(q.IDs) == 0 || slices.Contains(q.IDs, m.ID)) &&
		(q.Key == "" || q.Key == m.Key) &&
		(q.Topic == "" || q.Topic == m.Topic) &&
		strings.Contains(l.Err(), q.Error) &&
		(q.DiedBefore.IsZero() || l.At.Before(q.DiedBefore)) &&
		(q.DiedAfter.IsZero() || l.At.After(q.DiedAfter)) &&
		m.Seq > q.AfterSeq
}

// ask compares an answer with those of all that q describes.
func (e *env) ask(q admin.DeadLetterQuery, all []admin.DeadLetter) {
	var want []string
	for _, l := range all {
		if describes(q, l) && (q.Limit == 0 || len(want) < q.Limit) {
			want = append(want, l.Message.ID)
		}
	}
	got := suite.Get(e.Store.DeadLetters(e.ctx, q)).Must(e, "DeadLetters")
	var ids []string
	for _, l := range got {
		ids = append(ids, l.Message.ID)
	}
	suite.Equal(e, ids, want, "dead letters of %+v", q)
}

// narrowings each set one field.
func narrowings(all []admin.DeadLetter) []func(q *admin.DeadLetterQuery) {
	var fs []func(q *admin.DeadLetterQuery)
	add := func(f func(q *admin.DeadLetterQuery)) { fs = append(fs, f) }
	for _, k := range []string{"a", "A", "b", "c", "%", "_"} {
		add(func(q *admin.DeadLetterQuery) { q.Key = k })
	}
	for _, t := range []string{"t", "t.x", "t.", "T", "t%", "*", "t._"} {
		add(func(q *admin.DeadLetterQuery) { q.Topic = t })
	}
	for _, s := range []string{"timeout", "Time", "full", "100% ", "%", "_", `\`, "ü", "\n", "'", "earlier", "out", "X", "x"} {
		add(func(q *admin.DeadLetterQuery) { q.Error = s })
	}
	for i, l := range all {
		next := all[(i+1)%len(all)].Message
		add(func(q *admin.DeadLetterQuery) { q.Seqs = []int64{next.Seq, 1 << 40, l.Message.Seq} })
		add(func(q *admin.DeadLetterQuery) { q.IDs = []string{"missing", l.Message.ID, next.ID, ""} })
		add(func(q *admin.DeadLetterQuery) { q.AfterSeq = l.Message.Seq })
		add(func(q *admin.DeadLetterQuery) { q.DiedBefore = l.At })
		add(func(q *admin.DeadLetterQuery) { q.DiedAfter = l.At })
		add(func(q *admin.DeadLetterQuery) { q.DiedBefore = l.At.Add(time.Hour) })
		add(func(q *admin.DeadLetterQuery) { q.DiedAfter = l.At.Add(-time.Hour) })
		add(func(q *admin.DeadLetterQuery) { q.Limit = i + 1 })
	}
	return fs
}

func deadLetterQueryEachFieldNarrows(e *env) {
	rnd := e.Random(0)
	r, all := e.someDeadLetters()
	e.ask(query(r.req), all)
	for _, narrow := range narrowings(all) {
		q := query(r.req)
		narrow(&q)
		e.ask(q, all)
	}
	for range testseed.Steps(100) {
		e.ask(randomQuery(rnd, r, all), all)
	}
	other := e.subscribe(driver.Subscribe{Subscription: "other"})
	e.ask(query(other.req), nil)
}

func randomQuery(rnd *rand.Rand, r *reader, all []admin.DeadLetter) admin.DeadLetterQuery {
	q := query(r.req)
	fs := narrowings(all)
	for range 1 + rnd.IntN(3) {
		fs[rnd.IntN(len(fs))](&q)
	}
	return q
}

// retry and discard act on the list of the same query, and on nothing else.
func deadLetterQueryRetryByQuery(e *env) {
	rnd := e.Random(0)
	r, all := e.someDeadLetters()
	for len(all) > 0 {
		q := randomQuery(rnd, r, all)
		if rnd.IntN(4) == 0 {
			q = query(r.req)
			q.Limit = 2
		}
		chosen := suite.Get(e.Store.DeadLetters(e.ctx, q)).Must(e, "DeadLetters")
		e.retryDead(q, len(chosen))
		all = e.without(r, all, chosen)
		c := &carrier{e: e, r: r, limit: plenty}
		c.until(len(chosen))
		e.wantPayloads(c.sent, payloads(deadMessages(chosen))...)
	}
	r.again().want()
}

func deadLetterQueryDiscardByQuery(e *env) {
	rnd := e.Random(0)
	r, all := e.someDeadLetters()
	for len(all) > 0 {
		q := randomQuery(rnd, r, all)
		chosen := suite.Get(e.Store.DeadLetters(e.ctx, q)).Must(e, "DeadLetters")
		e.discardDead(q, len(chosen))
		all = e.without(r, all, chosen)
		suite.Equal(e, e.subscriptionStatus(r.req).DeadLetters, int64(len(all)), "dead letters of the status")
		n := suite.Get(e.Store.DiscardDeadLetters(e.ctx, q)).Must(e, "DiscardDeadLetters again")
		if q.Limit == 0 && n != 0 {
			e.Errorf("a second DiscardDeadLetters of %+v deleted %d", q, n)
		}
		all = e.deadLetters(r)
		if rnd.IntN(3) == 0 && len(all) > 0 {
			q := query(r.req)
			q.Limit = 1
			e.discardDead(q, 1)
			all = e.without(r, all, all[:1])
		}
	}
	r.again().want() // nothing of it comes back
}

// without expects that all but the chosen ones are left, and returns them.
func (e *env) without(r *reader, all, chosen []admin.DeadLetter) []admin.DeadLetter {
	var left []admin.DeadLetter
	for _, l := range all {
		if !slices.ContainsFunc(chosen, func(c admin.DeadLetter) bool { return c.Message.ID == l.Message.ID }) {
			left = append(left, l)
		}
	}
	e.wantInOrder(deadMessages(e.deadLetters(r)), payloads(deadMessages(left))...)
	return left
}
