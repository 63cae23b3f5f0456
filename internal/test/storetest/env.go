package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/testseed"
)

const (
	// deadline ends a test whose condition never came. It is far longer than
	// any condition takes, so that a slow machine fails nothing.
	deadline = 5 * time.Minute
	// longLease outlives every test; shortLease is one that a test lets expire.
	longLease  = time.Hour
	shortLease = 100 * time.Millisecond
	// outbox is the name that tests use when the name does not matter.
	outbox = "orders"
)

// env is one test: a database, and helpers that fail the test instead of
// returning errors.
type env struct {
	testing.TB
	Instance
	harness  Harness
	features Features
	ctx      context.Context // ends with the test, or at its deadline
	holders  int

	seedShown sync.Once
}

func newEnv(t *testing.T, h Harness, open func(testing.TB) Instance) *env {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline*time.Duration(testseed.Rounds()))
	t.Cleanup(cancel)
	e := &env{TB: t, Instance: open(t), harness: h, features: h.Features, ctx: ctx}
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

func (e *env) must(err error, what string) {
	e.Helper()
	if err != nil {
		e.Fatalf("%s: %v", what, err)
	}
}

// mustBe fails the test unless err is, or wraps, want.
func (e *env) mustBe(err, want error, what string) {
	e.Helper()
	if !errors.Is(err, want) {
		e.Fatalf("%s: got error %v, want one that is %q", what, err, want)
	}
}

// eventually asks cond again and again until it is true.
func (e *env) eventually(what string, cond func() bool) {
	e.Helper()
	for pause := time.Millisecond; !cond(); pause = min(2*pause, 50*time.Millisecond) {
		select {
		case <-e.ctx.Done():
			e.Fatalf("it never came to be that %s", what)
		case <-time.After(pause):
		}
	}
}

// concurrently runs f(0) to f(n-1) at the same time and joins their errors.
func concurrently(n int, f func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (e *env) publish(msgs ...penstock.Message) {
	e.Helper()
	e.must(e.Store.Publish(e.ctx, outbox, msgs...), "Publish")
}

func (e *env) maintain() {
	e.Helper()
	e.must(e.Store.Maintain(e.ctx, outbox), "Maintain")
}

// tx is a Tx that fails the test.
type tx struct {
	e *env
	Tx
}

func (e *env) begin() tx {
	e.Helper()
	t, err := e.Begin(e.ctx)
	e.must(err, "Begin")
	e.Cleanup(func() { _ = t.Rollback(context.WithoutCancel(e.ctx)) })
	return tx{e, t}
}

func (t tx) publish(msgs ...penstock.Message) {
	t.e.Helper()
	t.e.must(t.Tx.Publish(t.e.ctx, outbox, msgs...), "Publish in a transaction")
}

func (t tx) commit() {
	t.e.Helper()
	t.e.must(t.Tx.Commit(t.e.ctx), "Commit")
}

func (t tx) rollback() {
	t.e.Helper()
	t.e.must(t.Tx.Rollback(t.e.ctx), "Rollback")
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

// random returns a generator that PENSTOCK_SEED repeats; part tells several of
// one test apart.
func (e *env) random(part int) *rand.Rand {
	e.Helper()
	e.seedShown.Do(func() { e.Logf("PENSTOCK_SEED=%d", testseed.Seed()) })
	return testseed.New(e.Name(), part)
}
