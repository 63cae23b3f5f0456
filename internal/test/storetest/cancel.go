package storetest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

var cancelCases = named("Cancel", cancelBeforeTheCall, cancelInTheMiddleOfFetch, cancelInTheMiddleOfSettle,
	cancelWaitingForTheWriter)

func cancelBeforeTheCall(e *env) {
	r := e.read()
	e.publish(messages("m", 2)...)
	b := r.fetch(driver.Limit{Messages: 1, Bytes: plenty.Bytes})
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	for what, err := range map[string]error{
		"Fetch":            suite.Err(r.Fetch(ctx, plenty)),
		"Subscribe":        suite.Err(e.Store.Subscribe(ctx, e.request(driver.Subscribe{Subscription: "other"}))),
		"Status":           suite.Err(e.Store.Status(ctx)),
		"DeadLetters":      suite.Err(e.Store.DeadLetters(ctx, query(r.req))),
		"RetryDeadLetters": suite.Err(e.Store.RetryDeadLetters(ctx, query(r.req))),
		"Settle":           r.Settle(ctx, delivered(b)...),
		"Renew":            r.Renew(ctx),
		"Publish":          e.Store.Publish(ctx, outbox, message("", "never")),
		"Maintain":         e.Store.Maintain(ctx, outbox),
		"CreateOutbox":     e.Store.CreateOutbox(ctx, "never"),
		"DropOutbox":       e.Store.DropOutbox(ctx, outbox),
		"Migrate":          e.Store.Migrate(ctx),
	} {
		if err == nil {
			e.Errorf("%s with a context that has ended succeeded", what)
		} else if errors.Is(err, penstock.ErrFenced) || errors.Is(err, penstock.ErrClosed) {
			e.Errorf("%s with a context that has ended: got error %v, which says something else", what, err)
		}
	}
	r.again().want("m0", "m1")
}

// Contexts end at any moment of a Fetch. None of its messages is lost: those that Fetch has taken
// and not returned come with a later one.
func cancelInTheMiddleOfFetch(e *env) {
	rnd := e.Random(0)
	r := e.read()
	var want []string
	for range 10 {
		msgs := messages("m"+strings.Repeat("x", len(want)), 10)
		want = append(want, payloads(msgs)...)
		e.publish(msgs...)
	}
	c := collector{e: e, r: r}
	cancelled := 0
	patience := int64(500 * time.Microsecond)
	for len(flatten(c.open)) < len(want) {
		ctx, cancel := context.WithTimeout(e.ctx, time.Duration(rnd.Int64N(patience)))
		b, err := r.Fetch(ctx, driver.Limit{Messages: 5, Bytes: plenty.Bytes})
		cancel()
		if err != nil {
			if cancelled++; cancelled%20 == 0 {
				patience *= 2 // it is a slow machine
			}
			e.Must(e.ctx.Err(), "a Fetch that is never cancelled")
			continue
		}
		c.add(b)
	}
	c.finish(want...)
}

// A Settle whose context ends has happened or has not; asking again is safe.
func cancelInTheMiddleOfSettle(e *env) {
	rnd := e.Random(0)
	e.publish(messages("m", 100)...)
	r := e.read()
	patience := int64(500 * time.Microsecond)
	c := collector{e: e, r: r}
	for {
		b, err := r.Fetch(e.ctx, driver.Limit{Messages: 5, Bytes: plenty.Bytes})
		e.Must(err, "Fetch after a cancelled Settle")
		if len(b.Messages) == 0 {
			break
		}
		c.add(b)
		ctx, cancel := context.WithTimeout(e.ctx, time.Duration(rnd.Int64N(patience)))
		if c.settle(ctx, b) != nil {
			patience += patience / 4
		}
		cancel()
	}
	c.finish(payloads(messages("m", 100))...)
}

// If the database has one writer at a time, others wait. A context that ends also ends the
// waiting.
func cancelWaitingForTheWriter(e *env) {
	if e.features.ConcurrentWriters {
		e.Skip("the store declares the feature ConcurrentWriters: no call waits")
	}
	r := e.read()
	e.publish(message("", "m"))
	b := r.fetch(plenty)
	writer := e.begin()
	writer.publish(message("", "writer"))
	for what, f := range map[string]func(ctx context.Context) error{
		"Publish":  func(ctx context.Context) error { return e.Store.Publish(ctx, outbox, message("", "never")) },
		"Settle":   func(ctx context.Context) error { return r.Settle(ctx, delivered(b)...) },
		"Begin":    func(ctx context.Context) error { _, err := e.Begin(ctx); return err },
		"Maintain": func(ctx context.Context) error { _ = e.Store.Maintain(ctx, outbox); return context.DeadlineExceeded },
	} {
		ctx, cancel := context.WithTimeout(e.ctx, 20*time.Millisecond)
		err := f(ctx)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) { // and not that the database gave up waiting
			e.Errorf("%s while a writer is open: got error %v, want that its context has ended", what, err)
		}
	}
	writer.Commit()
	r.settle(b)
	r.again().want("writer")
}
