package storetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/suite"
)

// env is one test: a database, and helpers that fail the test instead of
// returning errors.
type env struct {
	*suite.Env
	Instance
	harness  Harness
	features Features
	ctx      context.Context // ends with the test, or at its deadline
	holders  int
}

// outbox is the name that tests use when the name does not matter.
const outbox = "orders"

func newEnv(t *testing.T, h Harness, open func(testing.TB) Instance) *env {
	t.Helper()
	base := suite.NewEnv(t)
	e := &env{Env: base, Instance: open(t), harness: h, features: h.Features, ctx: base.Context()}
	switch {
	case e.Store == nil || e.Begin == nil || e.Another == nil:
		t.Fatal("storetest: Instance needs Store, Begin and Another")
	case h.Features.Snapshots && e.Pin == nil:
		t.Fatal("storetest: the feature Snapshots is declared but Instance.Pin is missing")
	case h.Features.Outage && e.Outage == nil:
		t.Fatal("storetest: the feature Outage is declared but Instance.Outage is missing")
	case h.Features.Copy && e.Copy == nil:
		t.Fatal("storetest: the feature Copy is declared but Instance.Copy is missing")
	case h.Features.Lose && e.Lose == nil:
		t.Fatal("storetest: the feature Lose is declared but Instance.Lose is missing")
	}
	return e
}

func (e *env) publish(msgs ...penstock.Message) {
	e.Must(e.Store.Publish(e.ctx, outbox, msgs...), "Publish")
}

func (e *env) maintain() {
	e.Must(e.Store.Maintain(e.ctx, outbox), "Maintain")
}

// tx is a Tx that fails the test.
type tx struct{ suite.Open[Tx] }

func (e *env) begin() tx {
	return tx{suite.Begin(e.Env, e.Begin)}
}

func (t tx) publish(msgs ...penstock.Message) {
	t.Must(t.Tx.Publish(t.Context(), outbox, msgs...), "Publish in a transaction")
}

// message makes a message that its payload identifies.
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
