package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testseed"
)

var replayCases = named("Replay", replayBySeq, replayByTime, replayOnlyWhatIsSettled, replayNothingToReplay,
	replayNeitherParkedNorDead, replayBetweenNewOnes, replaySurvivesACrash, replayOneAfterAnother, replayOfWhatIsUnderWay,
	replayBehindOneThatHasNothingLeft, replayOfOneSubscription, replayBehindAParkedKey, replayRefusedAndParked, replayKeepsItsRange,
	replayOfABacklogLargerThanABatch)

// replay asks for a replay to r's subscription, of n messages.
func (e *env) replay(r *reader, what admin.Replay, n int) {
	what.Outbox, what.Subscription = r.req.Outbox, r.req.Subscription
	got := suite.Get(e.Store.Replay(e.ctx, what)).Must(e, "Replay")
	suite.MustEqual(e, got, int64(n), "Replay of %+v", what)
}

// wantReplaying compares the status.
func (e *env) wantReplaying(r *reader, want bool) {
	suite.Equal(e, e.subscriptionStatus(r.req).Replaying, want, "status: a replay is under way")
}

// settledOnes is a subscription that has settled messages of three keys, which
// the outbox retains.
func (e *env) settledOnes(n int) (*reader, []penstock.Message) {
	e.Must(e.Store.SetRetention(e.ctx, outbox, admin.Retention{Age: notInThisTest}), "SetRetention")
	r := e.read()
	var sent []penstock.Message
	for i := range n {
		m := message(fmt.Sprint("key", i%3), fmt.Sprint("m", i))
		m.Headers = map[string]string{"n": fmt.Sprint(i)}
		e.publish(m)
		b := r.fetch(plenty)
		sent = append(sent, b.Messages...)
		r.settle(b)
		if i%4 == 3 {
			e.maintain()
		}
	}
	return r, sent
}

// wantReplay reads and settles everything there is, and expects these messages
// in order, as at first.
func (e *env) wantReplay(r *reader, limit driver.Limit, want ...penstock.Message) {
	c := &carrier{e: e, r: r, limit: limit}
	c.until(len(want))
	for c.step() {
	}
	e.wantInOrder(c.sent, payloads(want)...)
	for i, m := range c.sent {
		e.sameMessage(m, want[i])
		if m.Attempt != 1 || !m.FailedSince.IsZero() {
			e.Errorf("%s was replayed with attempt %d and failed since %s, want 1 and never", m.Payload, m.Attempt, m.FailedSince)
		}
	}
	e.wantReplaying(r, false)
}

func replayBySeq(e *env) {
	r, sent := e.settledOnes(10)
	e.maintain()
	for _, c := range [][2]int{{0, 9}, {3, 5}, {4, 4}, {9, 9}} {
		from, to := c[0], c[1]
		e.replay(r, admin.Replay{FromSeq: sent[from].Seq, ToSeq: sent[to].Seq}, to-from+1)
		e.wantReplaying(r, true)
		e.wantReplay(r, plenty, sent[from:to+1]...)
	}
	e.replay(r, admin.Replay{FromSeq: sent[7].Seq}, 3)
	e.wantReplay(r, plenty, sent[7:]...)
	e.replay(r, admin.Replay{ToSeq: sent[2].Seq}, 3)
	e.wantReplay(r, plenty, sent[:3]...)
	e.replay(r, admin.Replay{}, 10)
	e.wantReplay(r, two, sent...)
	r.again().want()
}

// From is part of the range, To is not.
func replayByTime(e *env) {
	r, sent := e.settledOnes(10)
	for _, c := range []struct{ from, to time.Time }{
		{sent[3].CreatedAt, time.Time{}},
		{time.Time{}, sent[6].CreatedAt},
		{sent[2].CreatedAt, sent[8].CreatedAt},
		{sent[0].CreatedAt.Add(-time.Hour), sent[9].CreatedAt.Add(time.Hour)},
		{sent[9].CreatedAt.Add(time.Hour), time.Time{}},
	} {
		var want []penstock.Message
		for _, m := range sent {
			if !m.CreatedAt.Before(c.from) && (c.to.IsZero() || m.CreatedAt.Before(c.to)) {
				want = append(want, m)
			}
		}
		e.replay(r, admin.Replay{From: c.from, To: c.to}, len(want))
		e.wantReplay(r, plenty, want...)
	}
	e.replay(r, admin.Replay{From: sent[0].CreatedAt, FromSeq: sent[8].Seq, To: sent[9].CreatedAt.Add(time.Hour)}, 2)
	e.wantReplay(r, plenty, sent[8:]...)
}

// A message in flight, or not fetched yet, comes in its turn and once.
func replayOnlyWhatIsSettled(e *env) {
	r, sent := e.settledOnes(4)
	e.publish(keyed("new", 0, 6)...)
	first, open := r.fetch(two), r.fetch(two)
	r.settle(first)
	e.replay(r, admin.Replay{}, 6)
	rest := r.drain(two)
	e.wantPayloads(flatten(rest), append(payloads(sent), "new0", "new1", "new4", "new5")...)
	r.settle(append(rest, open)...)
	r.again().want()

	e.publish(message("k", "uncommitted or not fetched"))
	e.replay(r, admin.Replay{FromSeq: open.Messages[1].Seq + 1}, 2)
}

func replayNothingToReplay(e *env) {
	r := e.read()
	e.replay(r, admin.Replay{}, 0)
	e.publish(messages("m", 2)...)
	e.replay(r, admin.Replay{}, 0)
	b := r.want("m0", "m1")
	e.replay(r, admin.Replay{}, 0)
	r.settle(b...)
	seq := b[0].Messages[1].Seq
	e.replay(r, admin.Replay{FromSeq: seq + 1}, 0)
	e.replay(r, admin.Replay{FromSeq: seq, ToSeq: seq - 1}, 0)
	e.replay(r, admin.Replay{To: b[0].Messages[0].CreatedAt}, 0)
	e.wantReplaying(r, false)
	r.want()
}

// Parked messages come anyway, and an operator retries a dead letter: a replay would deliver both
// twice, and a held key out of order.
func replayNeitherParkedNorDead(e *env) {
	e.Must(e.Store.SetRetention(e.ctx, outbox, admin.Retention{Age: notInThisTest}), "SetRetention")
	r := e.read()
	e.publish(message("", "first"), message("held", "held0"), message("held", "held1"), message("held", "held2"), message("parked", "parked0"), message("parked", "parked1"),
		message("dead", "dead"), message("", "sent back"), message("", "alone"), message("", "delivered"))
	b := r.fetch(plenty)
	r.judge(verdicts{"held0": holding(b.Messages[1]), "held1": behind, "held2": behind, "parked0": refused(b.Messages[4], notInThisTest), "parked1": behind,
		"dead": dead("no"), "sent back": dead("no"), "alone": refused(b.Messages[8], notInThisTest)}, b)
	q := query(r.req)
	q.Seqs = []int64{b.Messages[7].Seq}
	e.retryDead(q, 1)
	e.replay(r, admin.Replay{}, 2)
	c := &carrier{e: e, r: r, limit: plenty}
	c.until(3)
	e.wantPayloads(c.sent, "first", "delivered", "sent back")
	e.discard(r, 2)
	c.until(5)
	c.wantKey("held", "held1", "held2")
	e.wantParked(r, 3, 2, 0)

	// A message that was given up and is settled now is replayed like any other.
	e.replay(r, admin.Replay{FromSeq: b.Messages[6].Seq}, 3)
	c.until(8)
	e.wantPayloads(c.sent[5:], "dead", "delivered", "sent back")
}

func replayBetweenNewOnes(e *env) {
	r, sent := e.settledOnes(12)
	e.replay(r, admin.Replay{}, 12)
	c := &carrier{e: e, r: r, limit: two}
	var fresh []string
	for i := range 6 {
		m := message("new", fmt.Sprint("new", i))
		fresh = append(fresh, string(m.Payload))
		e.publish(m)
		c.step()
	}
	c.until(18)
	c.wantKey("new", fresh...)
	e.wantInOrder(slices.DeleteFunc(c.sent, func(m penstock.Message) bool { return m.Key == "new" }), payloads(sent)...)
	r.again().want()
}

func replaySurvivesACrash(e *env) {
	r, sent := e.settledOnes(10)
	e.replay(r, admin.Replay{FromSeq: sent[1].Seq}, 9)
	r = r.again()
	first, _ := r.fetch(two), r.fetch(two)
	r.settle(first)
	e.maintain()
	r.close()
	c := &carrier{e: e, r: e.subscribeOn(e.Another(e), driver.Subscribe{}), limit: two}
	for c.step() {
	}
	// Settled messages may come twice, in their place.
	rest := payloads(sent[1:])
	got := payloads(c.sent)
	if twice := len(got) - len(rest[2:]); twice < 0 || twice > 2 || !slices.Equal(got, rest[2-twice:]) {
		e.Errorf("after the crash there came %s, want %s", brief(got), brief(rest[2:]))
	}
	e.wantReplaying(r, false)
	c.r.again().want()
}

func replayOneAfterAnother(e *env) {
	r, sent := e.settledOnes(9)
	e.replay(r, admin.Replay{FromSeq: sent[6].Seq}, 3)
	e.replay(r, admin.Replay{ToSeq: sent[2].Seq}, 3)
	c := &carrier{e: e, r: r, limit: two}
	c.until(6)
	e.wantPayloads(c.sent, append(payloads(sent[:3]), payloads(sent[6:])...)...)
	for c.step() {
	}
	if len(c.sent) > 6 {
		e.Errorf("two replays of three delivered %d", len(c.sent))
	}
	r.again().want()
}

// Of two replays of a range what is in both comes once: they are merged, or the second is refused. Afterwards the range may be replayed again.
func replayOfWhatIsUnderWay(e *env) {
	r, sent := e.settledOnes(9)
	e.replay(r, admin.Replay{FromSeq: sent[2].Seq}, 7)
	_, err := e.Store.Replay(e.ctx, admin.Replay{Outbox: r.req.Outbox, Subscription: r.req.Subscription, ToSeq: sent[4].Seq})
	want := sent[2:]
	if err == nil {
		want = sent
	} else {
		e.MustBe(err, penstock.ErrReplaying, "Replay of what is under way")
	}
	c := &carrier{e: e, r: r, limit: two}
	c.until(len(want))
	for c.step() {
	}
	suite.Equal(e, slices.Sorted(slices.Values(payloads(c.sent))), slices.Sorted(slices.Values(payloads(want))), "delivered by two replays of a range")
	e.replay(r, admin.Replay{ToSeq: sent[4].Seq}, 5)
	r.again().want("m0", "m1", "m2", "m3", "m4")
}

// A replay whose last page was a full one is known to have nothing left only when it
// is read again. The one behind it comes with that Fetch: a relay waits when it gets nothing.
func replayBehindOneThatHasNothingLeft(e *env) {
	r, sent := e.settledOnes(4)
	e.replay(r, admin.Replay{FromSeq: sent[0].Seq, ToSeq: sent[1].Seq}, 2)
	b := r.fetch(two)
	e.wantPayloads(b.Messages, payloads(sent[:2])...)
	r.settle(b)
	e.replay(r, admin.Replay{FromSeq: sent[2].Seq, ToSeq: sent[3].Seq}, 2)
	r = r.again()
	b = r.fetch(two)
	e.wantPayloads(b.Messages, payloads(sent[2:])...)
	r.settle(b)
	r.again().want()
}

func replayOfOneSubscription(e *env) {
	other := e.subscribe(driver.Subscribe{Subscription: "other"})
	tail := e.subscribe(driver.Subscribe{Ephemeral: true, Start: driver.FromNow})
	r, sent := e.settledOnes(4)
	other.settle(other.drain(plenty)...)
	tail.drain(plenty)
	e.replay(r, admin.Replay{}, 4)
	other.want()
	tail.want()
	e.wantReplaying(other, false)
	e.wantReplay(r, plenty, sent...)
}

// Parked messages are not settled; replayed messages of their key are parked, where Seq decides.
func replayBehindAParkedKey(e *env) {
	r, sent := e.settledOnes(3)
	e.publish(message("key0", "head"))
	b := r.fetch(plenty)
	r.judge(verdicts{"head": holding(b.Messages[0])}, b)
	e.replay(r, admin.Replay{ToSeq: sent[2].Seq}, 3)
	got := r.drain(plenty)
	e.wantInOrder(flatten(got), "m0", "m1", "m2")
	for _, b := range got {
		for i, m := range b.Messages {
			if want := map[bool]driver.KeyOrder{true: driver.BehindParked}[m.Key == "key0"]; b.Order(i) != want {
				e.Errorf("%s came with order %d, want %d", m.Payload, b.Order(i), want)
			}
		}
	}
	r.judge(verdicts{"m0": behind}, got...)
	e.wantParked(r, 1, 1, 1)
	r = r.again()
	r.want()
	e.discard(r, 1)
	c := &carrier{e: e, r: r, limit: plenty}
	c.until(1)
	c.wantKey("key0", "m0")
	e.wantParked(r, 0, 0, 0)
	r.again().want()
}

// A replayed message is parked like any other, and those of its key behind it.
func replayRefusedAndParked(e *env) {
	r, _ := e.settledOnes(6)
	e.replay(r, admin.Replay{}, 6)
	refusals := 2
	c := &carrier{e: e, r: r, limit: two}
	c.decide = func(m penstock.Message) driver.Verdict {
		if m.Key == "key1" && refusals > 0 {
			refusals--
			return refused(m, soon)
		}
		return driver.Verdict{}
	}
	c.until(6)
	c.wantKey("key0", "m0", "m3")
	c.wantKey("key1", "m1", "m4")
	c.wantKey("key2", "m2", "m5")
	e.wantParked(r, 0, 0, 0)
	r.again().want()
}

// A replay is not reclaimed under way, though nothing retains it any longer.
func replayKeepsItsRange(e *env) {
	e.Must(e.Store.SetRetention(e.ctx, outbox, admin.Retention{Age: notInThisTest}), "SetRetention")
	r := e.read()
	rnd := e.Random(0)
	var sent []penstock.Message
	for i := range 32 {
		e.publish(message("k", fmt.Sprintf("%d:%s", i, testseed.Bytes(rnd, 64<<10))))
		for _, b := range r.drain(plenty) {
			sent = append(sent, b.Messages...)
			r.settle(b)
		}
		e.maintain()
	}
	e.replay(r, admin.Replay{FromSeq: sent[8].Seq}, 24)
	e.Must(e.Store.SetRetention(e.ctx, outbox, admin.Retention{}), "SetRetention")
	c := &carrier{e: e, r: r, limit: driver.Limit{Messages: 5, Bytes: plenty.Bytes}}
	for range 3 {
		e.maintain()
		c.step()
		e.maintain()
	}
	c.r = r.again()
	for range 5 {
		e.maintain()
	}
	for c.step() {
		e.maintain()
	}
	e.wantInOrder(c.sent, payloads(sent[8:])...)
	c.r.again().want()
}

func replayOfABacklogLargerThanABatch(e *env) {
	e.Must(e.Store.SetRetention(e.ctx, outbox, admin.Retention{Age: notInThisTest}), "SetRetention")
	r := e.read()
	const total = 1500
	msgs := keyed("k", 0, total)
	for part := range slices.Chunk(msgs, 300) {
		e.publish(part...)
	}
	limit := driver.Limit{Messages: 100, Bytes: plenty.Bytes}
	r.settle(r.drain(limit)...)
	e.replay(r, admin.Replay{}, total)
	c := &carrier{e: e, r: r, limit: limit}
	for i := 0; c.step(); i++ {
		if i%5 == 4 {
			c.r = c.r.again()
		}
	}
	c.wantKey("k", payloads(msgs)...)
}
