package storetest

import (
	"slices"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
)

var restoreCases = needing(Features{Copy: true}, named("Restore", restoreNoIDComesAgain, restoreIDsStayWhatTheyWere))

// on is the same test on another database.
func (e *env) on(i Instance) *env {
	return &env{Env: e.Env, Instance: i, harness: e.harness, features: e.features, ctx: e.ctx}
}

// copied are two databases that were one until now: the restored one, and the one that continues.
func (e *env) copied() (restored, goesOn *env) {
	restored = e.on(e.Copy(e))
	on := e.Instance
	on.Store = e.Another(e) // a copy may have cost the other its connections
	return restored, e.on(on)
}

// nextInstant waits until every later write is dated later than m: restored rows are older than
// those written to it.
func (e *env) nextInstant(m penstock.Message) {
	e.Eventually("the clock has moved on", func() bool { return time.Since(m.CreatedAt) >= 2*time.Millisecond })
}

// Positions come again in a restored copy. Consumers and brokers that remember ids would
// drop what has one that was delivered.
func restoreNoIDComesAgain(e *env) {
	e.publish(messages("before", 3)...)
	r := e.read()
	b := r.want("before0", "before1", "before2")
	r.settle(b...)
	r.close()
	restored, goesOn := e.copied()
	carrier := map[string]string{}
	last := b[0].Messages[2]
	for _, history := range []struct {
		e      *env
		prefix string
	}{{goesOn, "a"}, {restored, "b"}} {
		e := history.e
		e.nextInstant(last)
		e.publish(messages(history.prefix, 3)...)
		tx := e.begin()
		tx.publish(messages(history.prefix+"tx", 3)...)
		tx.Commit()
		for _, m := range flatten(e.read().drain(plenty)) {
			if other := carrier[m.ID]; other != "" {
				e.Errorf("%s and %s have the id %s", other, m.Payload, m.ID)
			}
			carrier[m.ID] = string(m.Payload)
			last = m
		}
	}
	if len(carrier) < 12 {
		e.Errorf("%d ids of 12 messages", len(carrier))
	}
}

// A message written before the copy has the same id in both, whatever has become of it, and keeps
// it.
func restoreIDsStayWhatTheyWere(e *env) {
	e.Must(e.Store.SetRetention(e.ctx, outbox, admin.Retention{Age: notInThisTest}), "SetRetention")
	sent := messages("", 6)
	for i, name := range []string{"settled", "parked", "behind", "dead", "sent back", "new"} {
		sent[i].Payload, sent[i].Key = []byte(name), map[bool]string{true: "key"}[name == "parked" || name == "behind"]
	}
	e.publish(sent[:5]...)
	r := e.read()
	b := r.fetch(plenty)
	r.judge(verdicts{"parked": refused(b.Messages[1], soon), "behind": behind, "dead": dead("no"), "sent back": dead("no")}, b)
	ids := map[string]string{}
	for _, m := range b.Messages {
		ids[string(m.Payload)] = m.ID
	}
	r.close()
	e.publish(sent[5])
	restored, goesOn := e.copied()
	for _, e := range []*env{goesOn, restored} {
		r := e.read()
		same := func(m penstock.Message, what string) {
			if was, known := ids[string(m.Payload)]; known && m.ID != was {
				e.Errorf("%s: %s has the id %s, which was %s", what, m.Payload, m.ID, was)
			}
			ids[string(m.Payload)] = m.ID
		}
		deadLetters := e.deadLetters(r)
		for _, l := range deadLetters {
			same(l.Message, "as a dead letter")
			q := query(r.req)
			q.IDs = []string{l.Message.ID}
			e.ask(q, deadLetters)
		}
		q := query(r.req)
		q.IDs = []string{ids["sent back"]}
		e.retryDead(q, 1)
		c := &carrier{e: e, r: r, limit: plenty}
		c.until(4)
		e.wantPayloads(c.sent, "parked", "behind", "sent back", "new")
		for _, m := range c.sent {
			same(m, "delivered")
		}
		e.replay(r, admin.Replay{ToSeq: b.Messages[0].Seq}, 1)
		c.until(5)
		same(c.sent[4], "replayed")
		if !slices.ContainsFunc(c.sent, func(m penstock.Message) bool { return string(m.Payload) == "settled" }) {
			e.Error("what was settled is not replayed")
		}
	}
}
