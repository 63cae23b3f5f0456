package queuetest

import (
	"slices"
	"strings"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

var messageCases = needing(Features{WaitingMessages: true}, named("Barrier", barrierMessageOpensOnce, barrierMessageAfterOpen, barrierMessageSeveral,
	barrierMessageDeadCancels, barrierMessageDeadRuns, barrierMessageCancelled, barrierMessageRefused, barrierMessageOutboxDropped))

// reads makes the suite's outbox. Its result returns the messages that were published since the last call, with their payloads.
func (e *env) reads() func() ([]penstock.Message, []string) {
	s := e.Store.(driver.Store)
	e.Must(s.CreateOutbox(e.ctx, outbox), "CreateOutbox")
	src := suite.Get(s.Subscribe(e.ctx, forwarded)).Must(e, "Subscribe")
	e.Cleanup(func() { _ = src.Close(e.ctx) })
	return func() (messages []penstock.Message, payloads []string) {
		e.Helper()
		messages = suite.Get(src.Fetch(e.ctx, driver.Limit{Messages: 100, Bytes: 1 << 20})).Must(e, "Fetch").Messages
		for _, m := range messages {
			payloads = append(payloads, string(m.Payload))
		}
		return messages, payloads
	}
}

// published is reads, and its result compares the payloads, in order.
func (e *env) published() func(want ...string) []penstock.Message {
	read := e.reads()
	return func(want ...string) []penstock.Message {
		e.Helper()
		messages, got := read()
		if !slices.Equal(got, want) {
			e.Fatalf("published %q, want %q", got, want)
		}
		return messages
	}
}

// announce has a message wait, and returns its id.
func (e *env) announce(payload string, d penstock.OnDead, barriers ...int64) int64 {
	e.Helper()
	return suite.Get(e.q.(driver.WaitingPublisher).PublishAfter(e.ctx, announcement(payload, d, barriers...))).Must(e, "PublishAfter")
}

func announcement(payload string, d penstock.OnDead, barriers ...int64) penstock.WaitingMessage {
	return penstock.WaitingMessage{Message: penstock.Message{Payload: []byte(payload), Topic: "t"}, Outbox: outbox, WaitsFor: barriers, OnDead: d}
}

// The messages that wait are published, once and in order, when the last job has ended. Before that the queue counts and lists them. They keep all
// fields of a message, also headers that are options of a job.
func barrierMessageOpensOnce(e *env) {
	published := e.published()
	b := e.barrier()
	e.enqueue(holder(b, "a"), holder(b, "b"))
	m := announcement("done\xff", "", b)
	m.ID, m.Key, m.Headers = "id 1", "k", map[string]string{"h": "1", penstock.HeaderHolds: "77", penstock.HeaderUniqueKey: "u", penstock.HeaderKind: "k"}
	first := suite.Get(e.q.(driver.WaitingPublisher).PublishAfter(e.ctx, m)).Must(e, "PublishAfter")
	second := e.announce("", "", b)
	e.enqueue(waiter("job", b), keyed("k", "of the key"))
	e.seal(b)
	jobs := e.want("a", "b", "of the key")
	e.wantCounts(counts{running: 3, waiting: 3}) // two messages and a job wait
	if listed := e.wantListed(admin.JobQuery{State: "waiting", Kind: "publish to " + outbox}, first, second); len(listed) == 2 && (listed[0].Message.Key != "k" || listed[0].Where[0].State != "waiting for barriers") {
		e.Errorf("listed as %+v", listed[0])
	}
	e.ack(jobs[0], jobs[2])
	published()
	e.ack(jobs[1])
	got := published("done\xff", "")
	if g := got[0]; g.ID != "id 1" || g.Key != "k" || g.Topic != "t" || len(g.Headers) != 4 || g.Headers[penstock.HeaderHolds] != "77" || g.Headers["h"] != "1" || g.Headers[penstock.HeaderKind] != "k" {
		e.Errorf("the message is %+v", g)
	}
	if g := got[1]; g.ID == "" || g.Key != "" || g.Headers != nil {
		e.Errorf("the other message is %+v", g)
	}
	e.ack(e.want("job")...)
	e.seal(b)
	published()
	e.wantCounts(counts{})
}

func barrierMessageAfterOpen(e *env) {
	published := e.published()
	b := e.barrier()
	e.announce("no job", "", b)
	published()
	e.seal(b)
	published("no job")
	e.announce("late", "", b)
	published("late")
}

// A message waits for all of its barriers.
func barrierMessageSeveral(e *env) {
	published := e.published()
	a, b := e.barrier(), e.barrier()
	e.enqueue(holder(a, "a"), holder(b, "b"))
	e.announce("both", "", b, a)
	e.announce("one", "", a)
	e.seal(a)
	e.seal(b)
	jobs := e.want("a", "b")
	e.ack(jobs[0])
	published("one")
	e.ack(jobs[1])
	published("both")
}

// With OnDeadCancel a message becomes a dead letter, and is published when that is retried, once. Others wait until the dead job has ended.
func barrierMessageDeadCancels(e *env) {
	published := e.published()
	b := e.barrier()
	e.enqueue(holder(b, "a"))
	e.announce("waits", "", b)
	var ids []int64
	for _, payload := range []string{"first", "second", "discarded"} {
		ids = append(ids, e.announce(payload, penstock.OnDeadCancel, b))
	}
	e.seal(b)
	e.deaden(e.want("a")...)
	published()
	dead := e.deadJobs(admin.DeadJobQuery{Kind: "publish to " + outbox})
	if len(dead) != 3 || string(dead[0].Job.Payload) != "first" || !strings.Contains(dead[0].Failures[0].Err, "cancelled") {
		e.Fatalf("the dead letters are %+v", dead)
	}
	e.discardDead(1, admin.DeadJobQuery{IDs: ids[2:]})
	e.retryDead(2, admin.DeadJobQuery{IDs: ids})
	published("first", "second")
	e.retryDead(0, admin.DeadJobQuery{IDs: ids})
	e.retryDead(1, admin.DeadJobQuery{})
	e.ack(e.want("a")...)
	published("waits")
}

func barrierMessageDeadRuns(e *env) {
	published := e.published()
	b := e.barrier()
	e.enqueue(holder(b, "a"), holder(b, "b"))
	e.announce("waits", penstock.OnDeadWait, b)
	e.announce("runs", penstock.OnDeadRun, b)
	e.seal(b)
	jobs := e.want("a", "b")
	e.deaden(jobs[0])
	published()
	e.ack(jobs[1])
	published("runs")
	e.discardDead(1, admin.DeadJobQuery{})
	published("waits")
}

func barrierMessageCancelled(e *env) {
	published := e.published()
	b := e.barrier()
	e.enqueue(holder(b, "a"))
	ids := []int64{e.announce("gone", "", b), e.announce("stays", "", b)}
	e.cancel(1, ids[0])
	e.seal(b)
	e.ack(e.want("a")...)
	published("stays")
	e.cancel(0, ids...)
}

func barrierMessageRefused(e *env) {
	published := e.published()
	e.Must(e.Store.CreateQueue(e.ctx, "other", penstock.FIFO), "CreateQueue")
	b, other := e.barrier(), suite.Get(e.Store.DriverQueue("other").(driver.BarrierQueue).Barrier(e.ctx)).Must(e, "Barrier")
	refused := func(change func(m *penstock.WaitingMessage)) error {
		m := announcement("x", "", b)
		change(&m)
		return suite.Err(e.q.(driver.WaitingPublisher).PublishAfter(e.ctx, m))
	}
	e.BadField("PublishAfter without a barrier", refused(func(m *penstock.WaitingMessage) { m.WaitsFor = nil }), "waits for")
	e.BadField("PublishAfter on an unknown fate", refused(func(m *penstock.WaitingMessage) { m.OnDead = "die" }), "on dead")
	e.BadField("PublishAfter of a long key", refused(func(m *penstock.WaitingMessage) { m.Key = strings.Repeat("k", penstock.MaxKeyBytes+1) }), "key")
	e.Fails(refused(func(m *penstock.WaitingMessage) { m.WaitsFor = []int64{b, other} }), "to wait for another queue's barrier")
	e.MustBe(refused(func(m *penstock.WaitingMessage) { m.Outbox = "none" }), penstock.ErrNoOutbox, "PublishAfter to an outbox that is missing")
	e.MustBe(refused(func(m *penstock.WaitingMessage) { m.Outbox = queue }), penstock.ErrNoOutbox, "PublishAfter to a queue")
	e.MustBe(suite.Err(e.Store.DriverQueue("none").(driver.WaitingPublisher).PublishAfter(e.ctx, announcement("x", "", b))), penstock.ErrNoQueue, "PublishAfter of a queue that is missing")
	e.seal(b)
	published()
}

// An outbox that was dropped meanwhile lets the last job end. The message is a dead letter with the reason, which can be retried.
func barrierMessageOutboxDropped(e *env) {
	s := e.Store.(driver.Store)
	e.Must(s.CreateOutbox(e.ctx, outbox), "CreateOutbox")
	b := e.barrier()
	e.enqueue(holder(b, "a"), waiter("done", b))
	e.announce("first", "", b)
	e.announce("second", "", b)
	e.seal(b)
	e.Must(s.DropOutbox(e.ctx, outbox), "DropOutbox")
	e.ack(e.want("a")...)
	e.ack(e.want("done")...)
	dead := e.deadJobs(admin.DeadJobQuery{})
	if len(dead) != 2 || string(dead[0].Job.Payload) != "first" || !strings.Contains(dead[1].Failures[0].Err, outbox) {
		e.Fatalf("the dead letters are %+v", dead)
	}
	e.Fails(suite.Err(e.Store.RetryDeadJobs(e.ctx, admin.DeadJobQuery{Queue: queue})), "to retry without the outbox")
	published := e.published()
	e.retryDead(2, admin.DeadJobQuery{})
	published("first", "second")
}
