package queuetest

import (
	"errors"
	"fmt"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

var queueCases = named("Queue", queueExists, queueDropForgetsEverything, queueMadeAnewElsewhere, queueQueuesAreApart, queueFirstMakersRace)

func queueExists(e *env) {
	err := e.Store.CreateQueue(e.ctx, queue, penstock.FIFO)
	e.MustBe(err, penstock.ErrQueueExists, "a second CreateQueue")
	suite.Equal(e, err.Error(), fmt.Sprintf("queue %q: the queue exists already", queue), "error of a second CreateQueue")
	e.MustBe(e.Another(e).CreateQueue(e.ctx, queue, penstock.LIFO), penstock.ErrQueueExists, "CreateQueue by another process")
	if store, ok := e.Store.(driver.Store); ok {
		e.Must(store.CreateOutbox(e.ctx, "outbox"), "CreateOutbox")
		// One name space: a caller that continues after "exists already" has the queue it asked for.
		for what, is := range map[string]struct{ err, want, not error }{
			`queue "outbox": an outbox has this name: the outbox exists already`:      {e.Store.CreateQueue(e.ctx, "outbox", penstock.FIFO), penstock.ErrOutboxExists, penstock.ErrQueueExists},
			`outbox "` + queue + `": a queue has this name: the queue exists already`: {store.CreateOutbox(e.ctx, queue), penstock.ErrQueueExists, penstock.ErrOutboxExists},
		} {
			if !errors.Is(is.err, is.want) || errors.Is(is.err, is.not) || is.err.Error() != what+" (outboxes and queues share their names: choose another)" {
				e.Errorf("got %v, want %s", is.err, what)
			}
		}
		e.MustBe(e.Store.DropQueue(e.ctx, "outbox"), penstock.ErrNoQueue, "DropQueue of an outbox")
		_, err := e.Store.DriverQueue("outbox").Claim(e.ctx, driver.Claim{Jobs: 1, Lease: suite.LongLease})
		e.MustBe(err, penstock.ErrNoQueue, "Claim of an outbox")
		_, err = store.Subscribe(e.ctx, driver.Subscribe{Outbox: queue, Subscription: "s"})
		e.MustBe(err, penstock.ErrNoOutbox, "Subscribe to a queue")
		e.MustBe(store.Publish(e.ctx, queue, penstock.Message{}), penstock.ErrNoOutbox, "Publish to a queue")
	}
}

func queueDropForgetsEverything(e *env) {
	e.set(penstock.QueueSettings{MaxAttempts: new(1)})
	e.deadLetter("x", job("dead"))
	e.enqueue(keyed("k", "running"), keyed("k", "waiting"), once("d", "ready"), after(suite.LongLease, "delayed"))
	running := e.claim(1)
	e.schedule(penstock.Schedule{Name: "s", Cron: "@hourly", Job: job("s")})
	e.Must(e.Store.DropQueue(e.ctx, queue), "DropQueue")
	e.MustBe(suite.Err(e.q.Enqueue(e.ctx, job("a"))), penstock.ErrNoQueue, "Enqueue after DropQueue")
	e.MustBe(suite.Err(e.q.Ack(e.ctx, running[0].Lease)), penstock.ErrNoQueue, "Ack after DropQueue")

	e.Must(e.Store.CreateQueue(e.ctx, queue, penstock.LIFO), "CreateQueue")
	e.maintain()
	e.want()
	s := e.status()
	if s.Order != penstock.LIFO || s.Ready+s.Running+s.Waiting+s.Delayed+s.DeadLetters != 0 || *s.MaxAttempts == 1 {
		e.Errorf("a queue that was dropped and made anew has the status %+v", s)
	}
	suite.Equal(e, len(e.schedules()), 0, "schedules of a queue that was dropped and made anew")
	e.MustBe(e.q.DeadLetter(e.ctx, running[0].Lease, ""), penstock.ErrLeaseLost, "DeadLetter of a lease from before")
	e.enqueue(once("d", "a"), keyed("k", "b"))
	e.ack(e.want("b", "a")...)
}

// An operator's process that has known a queue for long sees that another one has dropped it, and made it anew.
func queueMadeAnewElsewhere(e *env) {
	other := e.Another(e)
	e.schedule(penstock.Schedule{Name: "s", Cron: "@hourly", Job: job("s")})
	e.enqueue(job("a"))
	e.Must(other.DropQueue(e.ctx, queue), "DropQueue")
	e.MustBe(e.Store.SetSchedule(e.ctx, penstock.Schedule{Queue: queue, Name: "t", Cron: "@hourly", Job: job("t")}), penstock.ErrNoQueue, "SetSchedule after DropQueue")
	e.MustBe(suite.Err(e.Store.Schedules(e.ctx, queue)), penstock.ErrNoQueue, "Schedules after DropQueue")

	e.Must(other.CreateQueue(e.ctx, queue, penstock.FIFO), "CreateQueue")
	e.Must(other.SetSchedule(e.ctx, penstock.Schedule{Queue: queue, Name: "s", Cron: "@hourly", Job: job("s")}), "SetSchedule")
	e.Must(e.Store.PauseSchedule(e.ctx, queue, "s"), "PauseSchedule")
	e.schedule(penstock.Schedule{Name: "t", Cron: "@hourly", Job: job("t")})
	all := suite.Get(other.Schedules(e.ctx, queue)).Must(e, "Schedules")
	if len(all) != 2 || !all[0].Paused {
		e.Errorf("the schedules are %+v, want s, which is paused, and t", all)
	}
	there := other.DriverQueue(queue)
	suite.Get(there.Enqueue(e.ctx, job("dead"))).Must(e, "Enqueue")
	claimed := suite.Get(there.Claim(e.ctx, driver.Claim{Jobs: 1, Lease: suite.LongLease})).Must(e, "Claim")
	e.same(claimed, "dead")
	e.Must(there.DeadLetter(e.ctx, claimed[0].Lease, "no good"), "DeadLetter")
	suite.Equal(e, len(e.deadJobs(admin.DeadJobQuery{})), 1, "dead letters")
	e.retryDead(1, admin.DeadJobQuery{})
	e.Must(e.Store.DropSchedule(e.ctx, queue, "t"), "DropSchedule")
	e.ack(e.collect("dead")...)
}

func queueQueuesAreApart(e *env) {
	e.Must(e.Store.CreateQueue(e.ctx, "other", penstock.LIFO), "CreateQueue")
	other := e.Store.DriverQueue("other")
	e.enqueue(keyed("k", "mine"), once("d", "my one"))
	suite.Get(other.Enqueue(e.ctx, keyed("k", "theirs"), once("d", "their one"))).Must(e, "Enqueue")
	mine := e.want("mine", "my one")
	theirs := suite.Get(other.Claim(e.ctx, driver.Claim{Jobs: 5, Lease: suite.LongLease})).Must(e, "Claim")
	e.same(theirs, "their one", "theirs") // the other is LIFO
	e.pause(true)
	suite.Get(other.Ack(e.ctx, leases(theirs)...)).Must(e, "Ack")
	e.Must(e.Store.DropQueue(e.ctx, "other"), "DropQueue")
	e.ack(mine...)
}

func queueFirstMakersRace(e *env) {
	stores := []driver.QueueStore{e.Store, e.Another(e), e.Another(e)}
	made := make([]bool, len(stores))
	e.Must(suite.Concurrently(len(stores), func(i int) error {
		err := stores[i].CreateQueue(e.ctx, "race", penstock.FIFO)
		if made[i] = err == nil; errors.Is(err, penstock.ErrQueueExists) {
			return nil
		}
		return err
	}), "CreateQueue at once")
	n := 0
	for _, m := range made {
		if m {
			n++
		}
	}
	suite.Equal(e, n, 1, "successes of CreateQueue at once")
}
