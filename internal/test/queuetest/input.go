package queuetest

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

var inputCases = named("Input", inputBadJobs, inputBadClaims, inputSettingsUpToTheLimits, inputNamesUpToTheLimit,
	inputNoSuchQueue)

// Nothing of a call with one bad job is written, and the transaction that the
// call was made in is as good as before.
func inputBadJobs(e *env) {
	header := func(name, value string) penstock.NewJob {
		return penstock.NewJob{Headers: map[string]string{"good": "1", name: value}}
	}
	tx := e.begin()
	tx.enqueue(job("in the transaction"))
	for _, b := range []struct {
		field string
		job   penstock.NewJob
	}{
		{"payload", penstock.NewJob{Payload: make([]byte, penstock.MaxPayloadBytes+1)}},
		{"key", penstock.NewJob{Key: "a\x00b"}},
		{"key", penstock.NewJob{Key: "\xff"}},
		{"key", penstock.NewJob{Key: strings.Repeat("k", penstock.MaxKeyBytes+1)}},
		{"group", penstock.NewJob{Group: strings.Repeat("g", penstock.MaxGroupBytes+1)}},
		{"group", penstock.NewJob{Group: "a\x00"}},
		{"dedup key", penstock.NewJob{DedupKey: strings.Repeat("d", penstock.MaxDedupBytes+1)}},
		{"dedup key", penstock.NewJob{DedupKey: "\xc3"}},
		{"priority", penstock.NewJob{Priority: penstock.MaxPriority + 1}},
		{"priority", penstock.NewJob{Priority: penstock.MinPriority - 1}},
		{"not before", penstock.NewJob{NotBefore: time.Date(300000, 1, 1, 0, 0, 0, 0, time.UTC)}},
		{"not before", penstock.NewJob{NotBefore: time.Date(-5000, 1, 1, 0, 0, 0, 0, time.UTC)}},
		{"kind", penstock.NewJob{Kind: strings.Repeat("k", penstock.MaxKindBytes+1)}},
		{"kind", penstock.NewJob{Kind: "a\nb"}},
		{"kind", penstock.NewJob{Kind: "a", Headers: map[string]string{penstock.HeaderKind: "b"}}},
		{"kind", header(penstock.HeaderKind, "a\x7f")},
		{"headers", header("", "v")},
		{"headers", header("n", "a\x00")},
		{"headers", header("n", strings.Repeat("v", penstock.MaxHeaderBytes))},
	} {
		_, err := tx.Tx.Enqueue(e.ctx, queue, job("with a bad one"), b.job)
		e.BadField("Enqueue in a transaction with a bad "+b.field, err, b.field)
		if e.features.ConcurrentWriters {
			e.BadField("Enqueue with a bad "+b.field, suite.Err(e.q.Enqueue(e.ctx, job("with a bad one"), b.job)), b.field)
		}
	}
	tx.enqueue(job("still good"))
	tx.Commit()
	e.want("in the transaction", "still good")
}

func inputBadClaims(e *env) {
	e.enqueue(job("a"))
	for _, c := range []driver.Claim{
		{Jobs: 0, Lease: time.Second}, {Jobs: -1, Lease: time.Second}, {Jobs: driver.MaxClaim + 1, Lease: time.Second},
		{Jobs: 1}, {Jobs: 1, Lease: -time.Second},
		{Jobs: 1, Lease: time.Second, Group: "\x00"}, {Jobs: 1, Lease: time.Second, Worker: "\xff"},
	} {
		e.BadField(fmt.Sprintf("Claim %+v", c), suite.Err(e.q.Claim(e.ctx, c)), "")
	}
	claimed := e.want("a")
	suite.Equal(e, claimed[0].Attempt, 1, "attempt after bad claims")
	for _, lease := range []time.Duration{0, -time.Second} {
		e.BadField(fmt.Sprint("Extend by ", lease), suite.Err(e.q.Extend(e.ctx, lease, claimed[0].Lease)), "lease")
	}
	e.ack(claimed...)
	e.same(e.claimAs(driver.Claim{Jobs: driver.MaxClaim}))
}

func inputSettingsUpToTheLimits(e *env) {
	for _, n := range []int{-1, 0, math.MaxInt32 + 1} {
		e.BadField(fmt.Sprint(n, " attempts"), e.Store.SetQueue(e.ctx, queue, penstock.QueueSettings{MaxAttempts: &n}), "max attempts")
	}
	for _, n := range []int{-1, math.MaxInt32 + 1} {
		e.BadField(fmt.Sprint(n, " running"), e.Store.SetQueue(e.ctx, queue, penstock.QueueSettings{MaxRunning: &n}), "max running")
	}
	for _, d := range []time.Duration{-time.Second, 0, time.Microsecond - 1} {
		e.BadField(fmt.Sprint("a window of ", d), e.Store.SetQueue(e.ctx, queue, penstock.QueueSettings{DedupWindow: &d}), "dedup window")
	}
	if s := e.status(); *s.MaxAttempts != 25 || *s.MaxRunning != 0 || *s.DedupWindow != time.Hour || *s.Paused || s.OldestAge != 0 {
		e.Errorf("bad input changed the settings of a new queue: %+v", s)
	}
	all := (math.MaxInt64 * time.Nanosecond).Truncate(time.Microsecond)
	for _, good := range []struct {
		attempts, running int
		window            time.Duration
	}{{1, 0, time.Microsecond}, {math.MaxInt32, 1, time.Hour}, {25, math.MaxInt32, all}} {
		e.set(penstock.QueueSettings{MaxAttempts: &good.attempts, MaxRunning: &good.running, DedupWindow: &good.window})
		if s := e.status(); *s.MaxAttempts != good.attempts || *s.MaxRunning != good.running || *s.DedupWindow != good.window {
			e.Errorf("the settings are %+v, want %+v", s.QueueSettings, good)
		}
	}
	e.enqueue(once("d", "a"))
	e.enqueue(once("d", "b"))
	e.ack(e.want("a")...)
}

func inputNamesUpToTheLimit(e *env) {
	for _, name := range []string{"", "_own", strings.Repeat("q", penstock.MaxNameBytes+1), "a\x00", "\xff"} {
		e.BadField(fmt.Sprintf("CreateQueue %q", name), e.Store.CreateQueue(e.ctx, name, penstock.FIFO), "queue")
	}
	e.BadField("CreateQueue in no order", e.Store.CreateQueue(e.ctx, "good", "sideways"), "order")
	for _, name := range []string{`a "quoted" name; drop table x --`, "Grüße", "select", "a.b", "UPPER", "q", "two\nlines\r'", `$fn$ %s {id} \\`, "{queue}", "{sign}new.seq", "jobs_ids", "scheduled_of_jobs", "Jobs", strings.Repeat("q", penstock.MaxNameBytes)} {
		e.Must(e.Store.CreateQueue(e.ctx, name, ""), "CreateQueue "+name)
		suite.Equal(e, e.statusOf(name).Order, penstock.FIFO, "order of a queue made without one")
		q := e.Store.DriverQueue(name)
		suite.Get(q.Enqueue(e.ctx, job("in "+name))).Must(e, "Enqueue")
		claimed, err := q.Claim(e.ctx, driver.Claim{Jobs: 2, Lease: suite.LongLease})
		e.Must(err, "Claim")
		e.same(claimed, "in "+name)
		e.Must(q.DeadLetter(e.ctx, claimed[0].Lease, "no"), "DeadLetter")
		if n, err := e.Store.RetryDeadJobs(e.ctx, admin.DeadJobQuery{Queue: name}); n != 1 || err != nil {
			e.Errorf("RetryDeadJobs of %q: %d, %v", name, n, err)
		}
		claimed = suite.Get(q.Claim(e.ctx, driver.Claim{Jobs: 2, Lease: suite.LongLease})).Must(e, "Claim")
		e.same(claimed, "in "+name)
		suite.Get(q.Ack(e.ctx, claimed[0].Lease)).Must(e, "Ack")
		e.Must(q.Maintain(e.ctx), "Maintain")
		e.Must(e.Store.DropQueue(e.ctx, name), "DropQueue")
	}
}

func inputNoSuchQueue(e *env) {
	const name = "missing"
	q := e.Store.DriverQueue(name)
	dead := admin.DeadJobQuery{Queue: name}
	for what, err := range map[string]error{
		"Enqueue":         suite.Err(q.Enqueue(e.ctx, job("a"))),
		"Claim":           suite.Err(q.Claim(e.ctx, driver.Claim{Jobs: 1, Lease: suite.LongLease})),
		"Ack":             suite.Err(q.Ack(e.ctx, 1)),
		"Extend":          suite.Err(q.Extend(e.ctx, suite.LongLease, 1)),
		"Retry":           suite.Err(q.Retry(e.ctx, 1, 0, "")),
		"CancelJobs":      suite.Err(e.Store.CancelJobs(e.ctx, name, 1)),
		"DeadJobs":        suite.Err(e.Store.DeadJobs(e.ctx, dead)),
		"RetryDeadJobs":   suite.Err(e.Store.RetryDeadJobs(e.ctx, dead)),
		"DiscardDeadJobs": suite.Err(e.Store.DiscardDeadJobs(e.ctx, dead)),
		"Schedules":       suite.Err(e.Store.Schedules(e.ctx, name)),
		"DeadLetter":      q.DeadLetter(e.ctx, 1, ""),
		"Maintain":        q.Maintain(e.ctx),
		"SetQueue":        e.Store.SetQueue(e.ctx, name, penstock.QueueSettings{}),
		"DropQueue":       e.Store.DropQueue(e.ctx, name),
	} {
		e.MustBe(err, penstock.ErrNoQueue, what+" of a queue that is missing")
	}
}
