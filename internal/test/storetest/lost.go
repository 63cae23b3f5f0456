package storetest

import (
	"slices"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
)

var lostCases = slices.Concat(
	needing(Features{Lose: true}, named("Lost", lostWhatTheReaderHas)),
	[]testCase{
		{Name: "WhatTheReaderHasRetained", Run: func(e *env) {
			e.Must(e.Store.(driver.Operator).SetRetention(e.ctx, outbox, admin.Retention{Age: time.Hour}), "SetRetention")
			lostWhatTheReaderHas(e)
		}, Needs: Features{Lose: true}},
	},
)

// A server is promoted that lacks messages which a reader has. Whatever their verdicts are, they are not counted, their keys wait for
// nothing, and the messages that have their numbers now are delivered, in order.
func lostWhatTheReaderHas(e *env) {
	r := e.read()
	for range 3 {
		e.publish(message("k", "lost"))
		b := r.fetch(plenty)
		e.Lose(e)
		e.Must(r.Settle(e.ctx, driver.Settled{Batch: b, Verdicts: []driver.Verdict{{Outcome: driver.Parked, RetryIn: time.Hour, Failures: []penstock.Failure{{Attempt: 1, Err: "no"}}}}}), "Settle what was refused")
		e.publish(message("k", "lost, too"))
		b = r.fetch(plenty)
		e.Lose(e)
		e.Must(r.Settle(e.ctx, driver.Settled{Batch: b}), "Settle")
	}
	e.publish(message("k", "in flight, and lost"))
	lost := r.fetch(plenty)
	e.Lose(e)
	e.publish(message("k", "there"))
	b := r.fetch(plenty)
	if len(b.Messages) != 1 || string(b.Messages[0].Payload) != "there" || b.Order(0) != driver.InOrder {
		e.Fatalf("got %+v, want one message in order", b)
	}
	e.Must(r.Settle(e.ctx, driver.Settled{Batch: lost}), "Settle what is not there")
	if s := e.subscriptionStatus(r.req); s.Settled != 0 || s.Backlog != 1 {
		e.Errorf("status: %+v, want none settled", s)
	}
	e.Must(r.Settle(e.ctx, driver.Settled{Batch: b}), "Settle what is there")
	if s := e.subscriptionStatus(r.req); s.Settled != 1 || s.Parked != 0 || s.Backlog != 0 {
		e.Errorf("status: %+v, want one settled", s)
	}
}
