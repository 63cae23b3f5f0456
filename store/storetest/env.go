package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/penstock/penstock"
)

const (
	// deadline ends a test whose condition never came. It is far longer than
	// any condition takes, so that a slow machine fails nothing.
	deadline = 60 * time.Second
	// longLease outlives every test; shortLease is one that a test lets expire.
	longLease  = 10 * time.Minute
	shortLease = 100 * time.Millisecond
	// outbox is the name that tests use when the name does not matter.
	outbox = "orders"
)

// env is one test: a migrated store with one empty outbox, and helpers that
// fail the test instead of returning errors.
type env struct {
	testing.TB
	Instance
	features Features
	ctx      context.Context
	holders  int
}

func newEnv(t *testing.T, h Harness) *env {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	e := &env{TB: t, Instance: h.Open(t), features: h.Features, ctx: ctx}
	switch {
	case e.Store == nil || e.Begin == nil || e.Another == nil:
		t.Fatal("storetest: Instance needs Store, Begin and Another")
	case h.Features.Snapshots && e.Pin == nil:
		t.Fatal("storetest: the feature Snapshots is declared but Instance.Pin is missing")
	case h.Features.Outage && e.Outage == nil:
		t.Fatal("storetest: the feature Outage is declared but Instance.Outage is missing")
	}
	return e
}

// ready migrates and creates the outbox.
func (e *env) ready() {
	e.Helper()
	e.must(e.Store.Migrate(e.ctx), "Migrate")
	e.must(e.Store.CreateOutbox(e.ctx, outbox), "CreateOutbox")
}

func (e *env) must(err error, what string) {
	e.Helper()
	if err != nil {
		e.Fatalf("%s: %v", what, err)
	}
}

func (e *env) publish(msgs ...penstock.Message) {
	e.Helper()
	e.must(e.Store.Publish(e.ctx, outbox, msgs...), "Publish")
}

func (e *env) begin() Tx {
	e.Helper()
	tx, err := e.Begin(e.ctx)
	e.must(err, "Begin")
	e.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(e.ctx)) })
	return tx
}

// message makes a message that is told apart by its payload.
func message(key, payload string) penstock.Message {
	return penstock.Message{Key: key, Topic: "test", Payload: []byte(payload)}
}

// messages makes n messages with the payloads prefix0, prefix1, …
func messages(prefix string, n int) []penstock.Message {
	msgs := make([]penstock.Message, n)
	for i := range msgs {
		msgs[i] = message("", fmt.Sprint(prefix, i))
	}
	return msgs
}
