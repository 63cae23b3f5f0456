package queuetest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/forward"
	"github.com/penstock/penstock/internal/test/suite"
)

var forwardCases = slices.Concat(
	needing(Features{Forward: true}, named("Forward", forwardOneJobOfEachMessage, forwardRefusedOptions, forwardEndsBeforeItBegins, forwardRefuses)),
	needing(Features{Forward: true, Barriers: true}, named("Forward", forwardBarriers)),
)

// outboxes is a store that also has them.
type outboxes interface {
	driver.Store
	driver.Forwarder
}

const outbox = "mails"

var forwarded = driver.Subscribe{Outbox: outbox, Subscription: "sub", Holder: "test", Lease: time.Minute}

func (e *env) outboxes() outboxes {
	s := e.Store.(outboxes)
	e.Must(s.CreateOutbox(e.ctx, outbox), "CreateOutbox")
	return s
}

// forward makes jobs of messages until end is called.
func (e *env) forward() (end func()) {
	ctx, cancel := context.WithCancel(e.ctx)
	done := make(chan error, 1)
	go func() { done <- e.Forwarder(e).Forward(ctx, forwarded, queue) }()
	return func() {
		cancel()
		e.Must(<-done, "Forward")
	}
}

// Every message becomes one job, in order, though the forwarding fails again and again, and one follows another.
func forwardOneJobOfEachMessage(e *env) {
	s := e.outboxes()
	const rounds, each = 4, 50
	for round := range rounds {
		end := e.forward()
		var calm func()
		for i := range each {
			n := round*each + i
			e.Must(s.Publish(e.ctx, outbox, penstock.Message{ID: fmt.Sprint("m", n), Key: "k", Topic: "t", Payload: fmt.Append(nil, n), Headers: map[string]string{"a": "b", penstock.HeaderKind: "c"}}), "Publish")
			if i == 0 { // it does not begin again
				e.Eventually("it has begun", func() bool { return e.waiting() > round*each })
				calm = e.Disturb(e)
			}
		}
		calm()
		e.Eventually("every message is a job", func() bool { return e.waiting() >= (round+1)*each })
		end()
	}
	suite.Equal(e, e.waiting(), rounds*each, "jobs")
	for n := range rounds * each {
		j := e.want(fmt.Sprint(n))[0]
		if j.Key != "k" || j.Headers["a"] != "b" || j.Kind() != "c" || j.Headers[forward.HeaderMessageID] != fmt.Sprint("m", n) || j.Headers[forward.HeaderTopic] != "t" {
			e.Fatalf("job %d is %+v", n, j)
		}
		e.ack(j)
	}
}

// A message whose headers no job can have as options becomes a job without them, and stops none behind it.
func forwardRefusedOptions(e *env) {
	s := e.outboxes()
	bad := []map[string]string{
		{penstock.HeaderMaxAttempts: "many", penstock.HeaderKind: "k"}, {penstock.HeaderMaxAttempts: "+5"}, {penstock.HeaderTimeout: "1m"}, {penstock.HeaderDeadline: "tomorrow"},
		{penstock.HeaderDeadline: "2026-02-30T00:00:00Z"}, {penstock.HeaderOnConflict: "replace"}, {penstock.HeaderUniqueKey: "other than the key"}, {penstock.HeaderKind: "no\nkind"},
	}
	for i, headers := range bad {
		e.Must(s.Publish(e.ctx, outbox, penstock.Message{Key: "k", Topic: "t", Payload: fmt.Append(nil, i), Headers: headers}), "Publish")
	}
	e.Must(s.Publish(e.ctx, outbox, penstock.Message{Key: "k", Topic: "t", Payload: []byte("good"), Headers: map[string]string{penstock.HeaderMaxAttempts: "3"}}), "Publish")
	end := e.forward()
	e.Eventually("every message is a job", func() bool { return e.waiting() > len(bad) })
	end()
	for i, headers := range bad {
		j := e.want(fmt.Sprint(i))[0]
		if j.Headers[forward.HeaderRefused] == "" || j.MaxAttempts() != 0 || j.Timeout() != 0 || !j.Deadline().IsZero() || j.Headers[penstock.HeaderUniqueKey] != "" || i == 0 && j.Kind() != "k" {
			e.Errorf("of %v the job has %v", headers, j.Headers)
		}
		e.ack(j)
	}
	if j := e.want("good")[0]; j.Headers[forward.HeaderRefused] != "" || j.MaxAttempts() != 3 {
		e.Errorf("a good one has %v", j.Headers)
	}
}

// The job of a message holds the barrier that a header names, or waits for it. If that is open, or not one of the queue, the job
// is without it, and stops none behind it.
func forwardBarriers(e *env) {
	s := e.outboxes()
	b, open := e.barrier(), e.barrier()
	e.seal(open)
	messages := []struct {
		payload, header string
		barrier         int64
		refused         bool
	}{
		{"holds", penstock.HeaderHolds, b, false}, {"holds an open one", penstock.HeaderHolds, open, true}, {"waits for none", penstock.HeaderWaitsFor, 1 << 40, true},
		{"holds too", penstock.HeaderHolds, b, false}, {"waits", penstock.HeaderWaitsFor, b, false},
	}
	for _, m := range messages {
		e.Must(s.Publish(e.ctx, outbox, penstock.Message{Topic: "t", Payload: []byte(m.payload), Headers: map[string]string{m.header: fmt.Sprint(m.barrier)}}), "Publish")
	}
	end := e.forward()
	e.Eventually("every message is a job", func() bool { return e.waiting() == len(messages) })
	end()
	e.seal(b)
	for i, j := range e.want("holds", "holds an open one", "waits for none", "holds too") {
		if refused := j.Headers[forward.HeaderRefused] != ""; refused != messages[i].refused {
			e.Errorf("the job that %s has the headers %v", j.Payload, j.Headers)
		}
		e.want()
		e.ack(j)
	}
	e.want("waits")
}

// waiting is how many jobs there are.
func (e *env) waiting() int {
	s := e.status()
	return int(s.Ready + s.Waiting)
}

func forwardEndsBeforeItBegins(e *env) {
	s := e.outboxes()
	e.Must(s.Forward(cancelled(e.ctx), forwarded, queue), "Forward that is ended before it has begun")
}

func forwardRefuses(e *env) {
	s := e.outboxes()
	e.MustBe(s.Forward(e.ctx, forwarded, "none"), penstock.ErrNoQueue, "Forward into a queue that is missing")
	none := forwarded
	none.Outbox = "none"
	e.MustBe(s.Forward(e.ctx, none, queue), penstock.ErrNoOutbox, "Forward from an outbox that is missing")
	e.BadField("Forward of what is read along", s.Forward(e.ctx, driver.Subscribe{Outbox: outbox, Ephemeral: true}, queue), "")
	held := forwarded
	held.Lease = suite.LongLease
	src := suite.Get(s.Subscribe(e.ctx, held)).Must(e, "Subscribe")
	e.MustBe(s.Forward(e.ctx, forwarded, queue), penstock.ErrHeld, "Forward of what another one has")
	e.Must(src.Close(e.ctx), "Close")
}
