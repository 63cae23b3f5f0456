package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testseed"
)

var reclaimCases = slices.Concat(
	named("Reclaim", reclaimKeepsWhatHasNoSubscription, reclaimLosesNothing,
		reclaimLosesNothingParkedOrDead, reclaimByTwoProcessesAtOnce),
	needing(Features{Reclaim: true}, named("Reclaim", reclaimWaitsForEverySubscription)),
	needing(Features{ConcurrentWriters: true}, named("Reclaim", reclaimLosesNoOpenTransaction)),
	[]testCase{
		{Name: "ReturnsToTheFloor", Run: func(e *env) { returnsToFloor(e) }, Needs: Features{Reclaim: true}},
		{Name: "ReturnsToTheFloorUnderAPinnedSnapshot", Run: func(e *env) { e.Pin(e); returnsToFloor(e) }, Needs: Features{Reclaim: true, Snapshots: true}},
	},
)

// bulk publishes about n MiB in messages of 32 KiB.
func (e *env) bulk(part, n int) {
	rnd := e.Random(part)
	for range n * 4 {
		msgs := make([]penstock.Message, 8)
		for i := range msgs {
			msgs[i] = penstock.Message{Key: fmt.Sprint("key", i), Payload: testseed.Bytes(rnd, 32<<10)}
		}
		e.publish(msgs...)
	}
}

// shrinks maintains until the outbox takes no more than floor and a little:
// what an empty one may take differs by a few pages.
func (e *env) shrinks(floor int64) {
	const little = 512 << 10
	e.Eventually(fmt.Sprintf("the outbox fell back to about %d bytes", floor), func() bool {
		e.maintain()
		return e.outboxStatus(outbox).Bytes <= floor+little
	})
}

// grows waits for a status that shows 3 MiB more than floor. It may come late:
// what a store had to measure for long holds for a while.
func (e *env) grows(floor int64) {
	e.Eventually(fmt.Sprintf("the messages take 3 MiB beside %d bytes", floor), func() bool {
		return e.outboxStatus(outbox).Bytes >= floor+3<<20
	})
}

func returnsToFloor(e *env) {
	r := e.read()
	floor := e.outboxStatus(outbox).Bytes
	for round := range 3 {
		e.bulk(round, 4)
		e.grows(floor)
		for {
			b := r.fetch(driver.Limit{Messages: 20, Bytes: 1 << 20})
			if len(b.Messages) == 0 {
				break
			}
			r.settle(b)
		}
		e.shrinks(floor)
	}
	r = r.again()
	r.want()
	e.publish(message("", "after"))
	r.want("after")
}

func reclaimWaitsForEverySubscription(e *env) {
	fast := e.subscribe(driver.Subscribe{Subscription: "fast"})
	slow := e.subscribe(driver.Subscribe{Subscription: "slow"})
	floor := e.outboxStatus(outbox).Bytes
	e.bulk(0, 2)
	fast.settle(fast.drain(plenty)...)
	page := driver.Limit{Messages: 10, Bytes: plenty.Bytes}
	slow.settle(slow.fetch(page))
	slow.close() // a stopped subscription holds its messages too, be it in the middle of a backlog
	for range 5 {
		e.maintain()
	}
	slow = e.subscribe(slow.req)
	batches := slow.drain(page)
	suite.MustEqual(e, len(flatten(batches)), 54, "messages that the slow subscription had not settled")
	slow.settle(batches...)
	e.shrinks(floor)
}

// Messages wait for the first subscription.
func reclaimKeepsWhatHasNoSubscription(e *env) {
	for part := range 2 {
		e.bulk(part, 1)
		for range 3 {
			e.maintain()
		}
	}
	got := flatten(e.read().drain(driver.Limit{Messages: 10, Bytes: plenty.Bytes}))
	suite.Equal(e, len(got), 64, "messages of the first subscription that were published before")
}

// Housekeeping runs at every point of a subscription's life.
func reclaimLosesNothing(e *env) {
	rnd := e.Random(0)
	a := e.subscribe(driver.Subscribe{Subscription: "a"})
	b := e.subscribe(driver.Subscribe{Subscription: "b"})
	var want []string
	var gotA, gotB []penstock.Message
	var open []driver.Batch
	for i := range 24 { // three rounds of b
		m := message(fmt.Sprint("key", i%3), fmt.Sprintf("%d:%s", i, testseed.Bytes(rnd, 64<<10)))
		want = append(want, string(m.Payload))
		e.publish(m)
		e.maintain()
		batch := a.fetch(two)
		e.maintain()
		gotA = append(gotA, batch.Messages...)
		a.settle(batch)
		e.maintain()
		if i%4 == 0 {
			a = a.again()
		}
		// b keeps some in flight, and now and then begins again without having
		// settled them.
		open = append(open, b.drain(two)...)
		switch i % 8 {
		case 3:
			b, open = b.again(), nil
		case 7:
			e.maintain()
			b.settle(open...)
			gotB, open = append(gotB, flatten(open)...), nil
		}
	}
	e.wantPayloads(gotA, want...)
	e.wantPayloads(gotB, want...)
	a.again().want()
	b.again().want()
}

// One subscription has settled what another one has parked, or as a dead letter.
func reclaimLosesNothingParkedOrDead(e *env) {
	first, other := e.subscribe(driver.Subscribe{Subscription: "first"}), e.subscribe(driver.Subscribe{Subscription: "other"})
	e.publish(message("p", "parked"), message("d", "dead"), message("x", "delivered"))
	b := other.fetch(plenty)
	other.judge(verdicts{"parked": refused(b.Messages[0], soon), "dead": dead("no")}, b)
	first.settle(first.drain(plenty)...)
	for range 3 {
		e.maintain()
	}
	other.settle(other.awaitOnly(driver.InOrder, "parked"))
	e.maintain()
	e.retry(other, e.wantDeadLetters(other, 1)...)
	other.settle(other.awaitOnly(driver.OutOfOrder, "dead"))
}

// Rows that a transaction has written and not committed cannot be read yet, but they are there:
// housekeeping must neither take them nor wait for them.
func reclaimLosesNoOpenTransaction(e *env) {
	rnd := e.Random(0)
	r := e.read()
	var want []string
	var got []penstock.Message
	drain := func() {
		batches := r.drain(plenty)
		got = append(got, flatten(batches)...)
		r.settle(batches...)
	}
	for i := range 5 {
		late := e.begin()
		late.publish(message("", fmt.Sprint("late", i)))
		for range 3 {
			m := message("", string(testseed.Bytes(rnd, 128<<10)))
			want = append(want, string(m.Payload))
			e.publish(m)
			drain()
			e.maintain()
			if rnd.IntN(3) == 0 {
				r = r.again()
			}
		}
		late.publish(message("", fmt.Sprint("later", i)))
		want = append(want, fmt.Sprint("late", i), fmt.Sprint("later", i))
		if i%2 == 0 {
			late.Commit()
			e.maintain()
			drain()
		} else {
			r.close()
			late.Commit() // while no relay reads
			e.maintain()
			r = e.read()
		}
		e.maintain()
	}
	drain()
	e.wantPayloads(got, want...)
	r.again().want()
}

func reclaimByTwoProcessesAtOnce(e *env) {
	other := e.Another(e)
	stop := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			case <-time.After(time.Millisecond):
			}
			if err := other.Maintain(e.ctx, outbox); err != nil {
				done <- err
				return
			}
		}
	}()
	r := e.read()
	rnd := e.Random(0)
	var got []penstock.Message
	var want []string
	for i := range 20 {
		m := message("", fmt.Sprintf("%d:%s", i, testseed.Bytes(rnd, 32<<10)))
		want = append(want, string(m.Payload))
		e.publish(m)
		batches := r.drain(two)
		got = append(got, flatten(batches)...)
		r.settle(batches...)
		e.maintain()
	}
	close(stop)
	e.Must(<-done, "Maintain by another process")
	e.wantPayloads(got, want...)
	r.again().want()
}
