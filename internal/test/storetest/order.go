package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testseed"
)

var orderCases = slices.Concat(
	named("Order", orderWithinOneTransaction),
	needing(Features{ConcurrentWriters: true}, named("Order", orderEarlyIdentifierCommitsLast)),
	[]testCase{
		{Name: "RowLockedWriters/page=1", Run: func(e *env) { rowLockedWriters(e, 1) }},
		{Name: "RowLockedWriters/page=5", Run: func(e *env) { rowLockedWriters(e, 5) }},
		{Name: "RowLockedWriters/page=50", Run: func(e *env) { rowLockedWriters(e, 50) }},
	},
)

func orderWithinOneTransaction(e *env) {
	tx := e.begin()
	var want []string
	for i := range 20 {
		tx.publish(message("k", fmt.Sprint(2*i)), message("k", fmt.Sprint(2*i+1)))
		want = append(want, fmt.Sprint(2*i), fmt.Sprint(2*i+1))
	}
	tx.Commit()
	got := payloads(flatten(e.read().drain(driver.Limit{Messages: 7, Bytes: plenty.Bytes})))
	suite.MustEqual(e, got, want, "messages of one key")
}

// The transaction that was first to become a writer is the last to lock the
// row: its id is the lowest and its message must be the last.
func orderEarlyIdentifierCommitsLast(e *env) {
	first := e.begin()
	suite.Get(first.Tx.Count(e.ctx, "something else")).Must(e, "Count")
	for want := range int64(3) {
		t := e.begin()
		publishCounted(e, t, "k", want+1)
		t.Commit()
	}
	publishCounted(e, first, "k", 4)
	first.Commit()
	got := payloads(e.read().fetch(plenty).Messages)
	suite.MustEqual(e, got, []string{"1", "2", "3", "4"}, "messages")
}

func publishCounted(e *env, t tx, key string, want int64) {
	n := suite.Get(t.Tx.Count(e.ctx, key)).Must(e, "Count")
	suite.MustEqual(e, n, want, "storetest: the harness's Count")
	t.publish(message(key, strconv.FormatInt(n, 10)))
}

// Writers of a key take turns by locking its counter, as business transactions
// do, and publish what they counted: an order that a consumer can check.
// Transactions draw their ids early or late, are short or long, and some roll
// back. While they write, one Source reads in pages of one size and settles in
// disorder, and housekeeping runs. Every committed message must come exactly
// once, and every key's counter in steps of one.
func rowLockedWriters(e *env, page int) {
	const writers, keys = 8, 5
	transactions := testseed.Steps(24)
	r := e.read()
	rnd := e.Random(writers)
	var running atomic.Int32
	running.Store(writers)
	var failed error
	finished := make(chan struct{})
	e.Cleanup(func() { <-finished }) // before the database goes
	go func() {
		defer close(finished)
		failed = suite.Concurrently(writers, func(i int) error {
			defer running.Add(-1)
			rnd := e.Random(i)
			for range transactions {
				if err := countedTransaction(e, rnd, i, keys); err != nil {
					return err
				}
			}
			return nil
		})
	}()

	last := map[string]int64{}
	var open []driver.Batch
	for done := false; !done; {
		done = running.Load() == 0 // read before the Fetch that finds nothing
		b := r.fetch(driver.Limit{Messages: page, Bytes: plenty.Bytes})
		for _, m := range b.Messages {
			n, err := strconv.ParseInt(string(m.Payload), 10, 64)
			if err != nil || n != last[m.Key]+1 {
				e.Fatalf("key %q: %q came after %d, want steps of one", m.Key, m.Payload, last[m.Key])
			}
			last[m.Key] = n
		}
		if len(b.Messages) > 0 {
			open, done = append(open, b), false
		}
		if n := len(open); n > 4 || done {
			rnd.Shuffle(n, func(i, j int) { open[i], open[j] = open[j], open[i] })
			for _, b := range open {
				r.settle(b)
			}
			open = nil
			e.maintain()
		}
		if len(b.Messages) == 0 {
			time.Sleep(time.Millisecond) // leave the writers the processor
		}
	}
	<-finished
	e.Must(failed, "a writer")
	for i := range keys {
		key := fmt.Sprint("key", i)
		t := e.begin()
		n, err := t.Tx.Count(e.ctx, key)
		e.Must(err, "Count")
		t.Rollback()
		suite.Equal(e, last[key], n-1, "last message of %s", key)
	}
	r.again().want()
}

// countedTransaction is one business transaction of rowLockedWriters.
func countedTransaction(e *env, rnd *rand.Rand, writer, keys int) (err error) {
	ctx := e.ctx
	tx, err := e.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { err = errors.Join(err, finish(ctx, tx, rnd.IntN(5) > 0 && err == nil)) }()
	if rnd.IntN(2) == 0 {
		if _, err := tx.Count(ctx, fmt.Sprint("writer", writer)); err != nil {
			return fmt.Errorf("count: %w", err)
		}
		pauseAtRandom(rnd)
	}
	// Keys in ascending order, so that writers cannot deadlock.
	for key := rnd.IntN(keys); key < keys; key += 1 + rnd.IntN(keys) {
		name := fmt.Sprint("key", key)
		n, err := tx.Count(ctx, name)
		if err != nil {
			return fmt.Errorf("count: %w", err)
		}
		if err := tx.Publish(ctx, outbox, message(name, strconv.FormatInt(n, 10))); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
		if rnd.IntN(4) == 0 {
			pauseAtRandom(rnd)
		}
	}
	return nil
}

func finish(ctx context.Context, tx Tx, commit bool) error {
	if commit {
		return tx.Commit(ctx)
	}
	return tx.Rollback(ctx)
}

// pauseAtRandom makes some transactions long. Nothing depends on how long.
func pauseAtRandom(rnd *rand.Rand) {
	if rnd.IntN(3) == 0 {
		time.Sleep(time.Duration(rnd.IntN(5000)) * time.Microsecond)
	}
}
