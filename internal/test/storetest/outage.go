package storetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

var outageCases = needing(Features{Outage: true}, named("Outage", outageErrorsThenHeals, outageInTheMiddleOfWork))

func outageErrorsThenHeals(e *env) {
	r := e.read()
	e.publish(messages("before", 4)...)
	c := collector{e: e, r: r}
	first := r.fetch(two)
	c.add(first)
	c.add(r.fetch(two))

	down, up := e.Outage(e)
	down()
	// Every call ends with an error, by its own or by its context's end.
	calls := map[string]func(ctx context.Context) error{
		"Fetch":   func(ctx context.Context) error { _, err := r.Fetch(ctx, plenty); return err },
		"Settle":  func(ctx context.Context) error { return c.settle(ctx, first) },
		"Renew":   r.Renew,
		"Publish": func(ctx context.Context) error { return e.Store.Publish(ctx, outbox, message("", "never")) },
		"Status":  func(ctx context.Context) error { _, err := e.Store.Status(ctx); return err },
	}
	for range 2 {
		for what, call := range calls {
			ctx, cancel := context.WithTimeout(e.ctx, 500*time.Millisecond)
			err := call(ctx)
			cancel()
			if err == nil {
				e.Errorf("%s succeeded during an outage", what)
			} else if errors.Is(err, penstock.ErrFenced) || errors.Is(err, penstock.ErrClosed) {
				e.Errorf("%s during an outage: got error %v, which the relay would not try again", what, err)
			}
		}
	}
	up()
	e.Eventually("the store has healed by itself", func() bool {
		b, err := r.Fetch(e.ctx, plenty)
		if err == nil {
			c.add(b)
		}
		return err == nil
	})
	e.Eventually("publishing works again", func() bool {
		return e.Store.Publish(e.ctx, outbox, message("", "after")) == nil
	})
	e.Must(r.Renew(e.ctx), "Renew after the outage")
	c.finish(append(payloads(messages("before", 4)), "after")...)
}

// The connections are cut again and again while a backlog is read and settled.
// Nothing is lost, and no settled message comes again. While nothing gets settled between two cuts
// they come less often, so that a slow machine gets on as well.
func outageInTheMiddleOfWork(e *env) {
	rnd := e.Random(0)
	const total = 300
	e.publish(messages("m", total)...)
	r := e.read()
	down, up := e.Outage(e)
	stop := make(chan struct{})
	stopped := make(chan struct{})
	var settled atomic.Int64 // batches
	go func() {
		defer close(stopped)
		const often = 30 * time.Millisecond
		for most, before := often, int64(0); ; {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(rnd.Int64N(int64(most)))):
				down()
				up()
			}
			if now := settled.Load(); now > before {
				most, before = max(most/2, often), now
			} else {
				most *= 2
			}
		}
	}()
	calm := sync.OnceFunc(func() { close(stop); <-stopped })
	defer calm()
	c := collector{e: e, r: r}
	failures := 0
	for e.ctx.Err() == nil {
		b, err := r.Fetch(e.ctx, driver.Limit{Messages: 7, Bytes: plenty.Bytes})
		if err != nil {
			failures++
			time.Sleep(time.Millisecond)
			continue
		}
		c.add(b)
		if len(c.open) == 0 {
			break
		}
		for _, b := range slices.Clone(c.open) {
			if err := c.settle(e.ctx, b); err != nil {
				failures++
				break // and again after the next Fetch, unless it went back
			}
			settled.Add(1)
		}
	}
	calm()
	e.Logf("%d calls failed", failures)
	e.Eventually("the store has healed by itself", func() bool { return r.Renew(e.ctx) == nil })
	c.finish(payloads(messages("m", total))...)
	if s := e.subscriptionStatus(r.req); s.Settled != total || s.Backlog != 0 {
		e.Errorf("status: settled %d, backlog %d, want %d and 0", s.Settled, s.Backlog, total)
	}
}
