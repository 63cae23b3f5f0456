package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testseed"
)

var leaseCases = named("Lease", leaseOneHolderAtATime, leaseExpiredLeaseIsRedelivered,
	leaseStaleCloseTakesNothing, leaseClosedSource, leaseClosedStore, leaseFirstSubscribersRace, leaseSettleRacesTakeover,
	leaseContendersNeverBothSettle)

func leaseOneHolderAtATime(e *env) {
	r := e.subscribe(driver.Subscribe{Holder: "first"})
	until := e.subscriptionStatus(r.req).LeaseUntil
	for _, s := range []driver.Store{e.Store, e.Another(e)} {
		_, err := s.Subscribe(e.ctx, e.request(driver.Subscribe{Holder: "second"}))
		var held *penstock.HeldError
		if !errors.As(err, &held) || !errors.Is(err, penstock.ErrHeld) {
			e.Fatalf("Subscribe to a held subscription: got error %v, want a *HeldError", err)
		}
		if held.Subscription != r.req.Subscription || held.Holder != "first" || !held.Until.Equal(until) {
			e.Errorf("HeldError: got %+v, want subscription %q, holder %q and %v, as the status says", *held, r.req.Subscription, "first", until)
		}
	}
	e.publish(messages("m", 2)...)
	e.Eventually("Renew moves the end of the lease", func() bool {
		e.Must(r.Renew(e.ctx), "Renew by the holder")
		return e.subscriptionStatus(r.req).LeaseUntil.After(until)
	})
	r.want("m0", "m1")
	r.close()
	r.close()
	e.subscribeOn(e.Another(e), driver.Subscribe{}).want("m0", "m1") // at once; and Close has settled nothing
}

// The holder is paused for longer than its lease, another takes over, and then
// the first one wakes up.
func leaseExpiredLeaseIsRedelivered(e *env) {
	e.publish(messages("m", 6)...)
	limit := driver.Limit{Messages: 2, Bytes: plenty.Bytes}
	var second driver.Batch
	old := e.mortalReader(func(r *reader) error {
		first, err := r.Fetch(e.ctx, limit)
		if err != nil {
			return err
		}
		if second, err = r.Fetch(e.ctx, limit); err != nil {
			return err
		}
		return r.Settle(e.ctx, delivered(first)...)
	})

	r := e.takeOver(e.Another(e), driver.Subscribe{})
	wantFenced := func() {
		e.MustBe(old.Settle(e.ctx, delivered(second)...), penstock.ErrFenced, "Settle by the old holder")
		deadLettered := []driver.Settled{{Batch: second, Verdicts: []driver.Verdict{dead("x"), dead("x")}}}
		e.MustBe(old.Settle(e.ctx, deadLettered...), penstock.ErrFenced, "Settle by the old holder")
		e.MustBe(old.Renew(e.ctx), penstock.ErrFenced, "Renew by the old holder")
	}
	wantFenced()
	again := r.want(payloads(messages("m", 6))[2:]...)
	wantFenced()
	e.wantDeadLetters(r, 0)
	r = r.again()
	again = r.want(payloads(flatten(again))...)
	wantFenced()
	r.settle(again...)
	r = r.again()
	r.want()
	r.close() // and with no new holder the old one is still fenced
	wantFenced()
	e.publish(message("", "new"))
	e.read().want("new")
}

// An old holder that shuts down must not give away the lease of the new one.
func leaseStaleCloseTakesNothing(e *env) {
	old := e.subscribe(driver.Subscribe{Lease: suite.ShortLease})
	r := e.takeOver(e.Store, driver.Subscribe{})
	_ = old.Close(e.ctx) // whether it says so or not
	_, err := e.Store.Subscribe(e.ctx, e.request(driver.Subscribe{}))
	e.MustBe(err, penstock.ErrHeld, "Subscribe after the old holder's Close")
	e.publish(message("", "m"))
	r.settle(r.want("m")...)
}

func leaseClosedSource(e *env) {
	r := e.read()
	r.close()
	_, err := r.Fetch(e.ctx, plenty)
	e.MustBe(err, penstock.ErrClosed, "Fetch after Close")
	e.Fails(r.Renew(e.ctx), "Renew after Close")
	suite.Get(e.Store.Subscribe(e.ctx, e.request(driver.Subscribe{}))).Must(e, "Subscribe after Renew by a closed source")
}

// A program has closed its store, and a part of it continues.
func leaseClosedStore(e *env) {
	s := e.Another(e)
	_, err := s.Status(e.ctx)
	e.Must(err, "Status")
	if x, ok := s.(interface {
		Names(context.Context, string) ([]string, error)
	}); ok {
		for _, of := range []string{"things", "outboxes where false; --"} {
			found, err := x.Names(e.ctx, of)
			e.Must(err, "Names of what has none")
			if len(found) > 0 {
				e.Errorf("the names of %s are %q", of, found)
			}
		}
	}
	for range 2 {
		e.Must(s.Close(), "Close")
	}
	e.MustBe(suite.Err(s.Subscribe(e.ctx, e.request(driver.Subscribe{}))), penstock.ErrClosed, "Subscribe to a closed store")
	_, err = s.Subscribe(e.ctx, e.request(driver.Subscribe{Ephemeral: true}))
	e.MustBe(err, penstock.ErrClosed, "an ephemeral Subscribe to a closed store")
	_, err = s.Status(e.ctx)
	e.MustBe(err, penstock.ErrClosed, "Status of a closed store")
	e.MustBe(s.Maintain(e.ctx, outbox), penstock.ErrClosed, "Maintain of a closed store")
	e.MustBe(s.Publish(e.ctx, outbox, message("", "m")), penstock.ErrClosed, "Publish to a closed store")
	if x, ok := s.(doctor.Explainer); ok {
		e.MustBe(suite.Err(x.ExplainOutbox(e.ctx, outbox)), penstock.ErrClosed, "ExplainOutbox of a closed store")
		e.MustBe(suite.Err(x.ExplainQueue(e.ctx, "q")), penstock.ErrClosed, "ExplainQueue of a closed store")
	}
	q, ok := s.(driver.QueueStore)
	if !ok {
		return
	}
	e.MustBe(suite.Err(q.DriverQueue("q").Enqueue(e.ctx, penstock.NewJob{})), penstock.ErrClosed, "Enqueue to a closed store")
	_, err = q.DriverQueue("q").Claim(e.ctx, driver.Claim{Jobs: 1, Lease: time.Second})
	e.MustBe(err, penstock.ErrClosed, "Claim of a closed store")
}

func leaseFirstSubscribersRace(e *env) {
	const n = 4
	stores := make([]driver.Store, n)
	reqs := make([]driver.Subscribe, n)
	for i := range n {
		stores[i], reqs[i] = e.Another(e), e.request(driver.Subscribe{})
	}
	var won atomic.Int32
	e.Must(suite.Concurrently(n, func(i int) error {
		_, err := stores[i].Subscribe(e.ctx, reqs[i])
		if err == nil {
			won.Add(1)
		} else if !errors.Is(err, penstock.ErrHeld) {
			return err
		}
		return nil
	}), "Subscribe by several at once")
	suite.MustEqual(e, won.Load(), 1, "subscribers that got the lease")
}

// The old holder wakes up at the very moment when another takes over. If it is
// answered that a batch is settled, the new one must not get that batch; if it is
// answered with ErrFenced, the new one must get it.
func leaseSettleRacesTakeover(e *env) {
	const lease = 10 * time.Millisecond
	rnd := e.Random(0)
	other := e.Another(e)
	one := driver.Limit{Messages: 1, Bytes: plenty.Bytes}
	for round := range testseed.Steps(20) {
		e.publish(messages(fmt.Sprint(round, "-"), 10)...)
		old := e.takeOver(e.Store, driver.Subscribe{Lease: lease})
		req := e.request(driver.Subscribe{})
		var src driver.Source
		var settled []penstock.Message
		fenced := false
		e.Must(suite.Concurrently(2, func(i int) (err error) {
			if i == 0 {
				for src == nil && (err == nil || errors.Is(err, penstock.ErrHeld)) {
					src, err = other.Subscribe(e.ctx, req)
				}
				return err
			}
			for !fenced {
				b, err := old.Fetch(e.ctx, one)
				if errors.Is(err, penstock.ErrFenced) || err == nil && len(b.Messages) == 0 {
					return nil
				} else if err != nil {
					return fmt.Errorf("fetch: %w", err)
				}
				time.Sleep(lease + time.Duration(rnd.IntN(2000)-500)*time.Microsecond)
				err = old.Settle(e.ctx, delivered(b)...)
				if fenced = errors.Is(err, penstock.ErrFenced); fenced {
					return nil
				} else if err != nil {
					return fmt.Errorf("settle: %w", err)
				}
				settled = append(settled, b.Messages...)
			}
			return nil
		}), "racing")
		r := e.reader(other, req, src)
		rest := r.drain(plenty)
		e.wantPayloads(slices.Concat(settled, flatten(rest)), payloads(messages(fmt.Sprint(round, "-"), 10))...)
		r.settle(rest...)
		r.close()
	}
}

// Contenders with short leases read, fall asleep for longer than they may, and
// settle when another has taken over. Whatever they do, no message is settled
// by two, and none is left out.
func leaseContendersNeverBothSettle(e *env) {
	const n = 4
	total := testseed.Steps(120)
	e.publish(messages("", total)...)
	var mu sync.Mutex
	settled := make([]int, total)
	left := total
	unsettled := func() int {
		mu.Lock()
		defer mu.Unlock()
		return left
	}
	stores := make([]driver.Store, n)
	for i := range stores {
		stores[i] = e.Another(e)
	}
	contend := func(i int) error {
		rnd := e.Random(i)
		req := driver.Subscribe{Outbox: outbox, Subscription: "sub", Lease: suite.ShortLease / 2, Holder: fmt.Sprint("contender", i)}
		src, err := stores[i].Subscribe(e.ctx, req)
		if errors.Is(err, penstock.ErrHeld) {
			time.Sleep(time.Millisecond)
			return nil
		} else if err != nil {
			return fmt.Errorf("subscribe: %w", err)
		}
		defer func() { _ = src.Close(e.ctx) }()
		for unsettled() > 0 {
			b, err := src.Fetch(e.ctx, driver.Limit{Messages: 5, Bytes: plenty.Bytes})
			if errors.Is(err, penstock.ErrFenced) {
				return nil
			} else if err != nil {
				return fmt.Errorf("fetch: %w", err)
			}
			if len(b.Messages) == 0 {
				return nil
			}
			if rnd.IntN(4) == 0 {
				time.Sleep(time.Duration(rnd.Int64N(int64(2 * suite.ShortLease))))
			}
			err = src.Settle(e.ctx, b.Number, driver.Settled{Batch: b})
			if errors.Is(err, penstock.ErrFenced) {
				return nil
			} else if err != nil {
				return fmt.Errorf("settle: %w", err)
			}
			mu.Lock()
			for _, m := range b.Messages {
				k, err := strconv.Atoi(string(m.Payload))
				if err != nil {
					return err
				}
				if settled[k]++; settled[k] == 1 {
					left--
				}
			}
			mu.Unlock()
		}
		return nil
	}
	e.Must(suite.Concurrently(n, func(i int) error {
		for unsettled() > 0 {
			if err := contend(i); err != nil {
				return err
			}
			if err := e.ctx.Err(); err != nil {
				return fmt.Errorf("%d messages are still not settled: %w", unsettled(), err)
			}
		}
		return nil
	}), "a contender")
	for k, times := range settled {
		suite.MustEqual(e, times, 1, "how often message %d was settled", k)
	}
	e.takeOver(e.Store, driver.Subscribe{}).want()
}
