package queuetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

var keyCases = slices.Concat(
	named("Key", keyOneAtATimeInOrder, keyOthersAreNotHeldUp, keyManyInTheWay,
		keyManyRetriedInTheWay, keyRetriedJobStaysTheHead, keyDeadLetterFreesTheKey, keyCancelFreesTheKey,
		keyEarlierJobComesBack, keyOrderBeforePriority, keyDelayedJobHoldsUpNoOther),
	[]testCase{
		{Name: "OneAtATimeInOrderLIFO", Run: keyOneAtATimeInOrder, Other: true},
		{Name: "ManyInTheWayLIFO", Run: keyManyInTheWay, Other: true},
	},
)

func keyOneAtATimeInOrder(e *env) {
	e.enqueue(keyed("k", "k0"), keyed("k", "k1"))
	e.enqueue(keyed("k", "k2"))
	for i := range 3 {
		claimed := e.collect(fmt.Sprint("k", i))
		suite.Equal(e, claimed[0].Key, "k", "key")
		e.enqueue(keyed("k", fmt.Sprint("k", i+3))) // behind all others, though one runs
		for range 3 {
			e.want()
			e.maintain()
		}
		e.ack(claimed...)
	}
	e.ack(e.collect("k3")...)
	e.ack(e.collect("k4")...)
	e.ack(e.collect("k5")...)
	e.want()
	e.enqueue(keyed("k", "k6")) // and the key is free again
	e.ack(e.collect("k6")...)
}

func keyOthersAreNotHeldUp(e *env) {
	var all []penstock.NewJob
	for i := range 5 {
		all = append(all, keyed("busy", fmt.Sprint("busy", i)))
	}
	all = append(all, keyed("other", "o0"), job("free"), keyed("other", "o1"), keyed("Busy", "case"))
	e.enqueue(all...)
	busy := e.claim(1)
	e.same(busy, "busy0")
	others := e.collect("o0", "free", "case")
	e.ack(others...)
	e.ack(e.collect("o1")...)
	e.want()
	e.ack(busy...)
	e.ack(e.collect("busy1")...)
}

// However many jobs wait for their key, a job behind them comes before those of later priorities.
func keyManyInTheWay(e *env) {
	e.enqueue(keyed("k", "running"))
	e.want("running")
	all := []penstock.NewJob{job("free")}
	for _, j := range jobs("k", 250) {
		j.Key = "k"
		all = append(all, j)
	}
	if e.status().Order == penstock.FIFO {
		slices.Reverse(all)
	}
	e.enqueue(all...)
	e.enqueue(withPriority(1, "later"))
	e.same(e.claim(1), "free")
	e.same(e.claim(1), "later")
	e.want()
}

func keyManyRetriedInTheWay(e *env) {
	for i := range 20 {
		e.enqueue(keyed("k", fmt.Sprint("k", i)))
		e.Must(e.q.DeadLetter(e.ctx, e.claim(1)[0].Lease, "no"), "DeadLetter")
	}
	e.retryDead(20, admin.DeadJobQuery{})
	e.collect("k0")
	e.enqueue(job("again"))
	e.retry(e.want("again")[0], 0, "at once")
	e.enqueue(withPriority(1, "later"))
	another := e.Another(e).DriverQueue(queue) // which does not know the obstacle yet
	for _, want := range []string{"again", "later"} {
		claimed := suite.Get(another.Claim(e.ctx, driver.Claim{Jobs: 1, Lease: suite.LongLease})).Must(e, "Claim")
		e.same(claimed, want)
	}
}

func keyRetriedJobStaysTheHead(e *env) {
	e.enqueue(keyed("k", "k0"), keyed("k", "k1"), keyed("other", "o0"))
	claimed := e.want("k0", "o0")
	e.ack(claimed[1])
	e.retry(claimed[0], time.Hour, "later")
	for range 3 { // the whole key waits for it
		e.maintain()
		e.want()
	}
	e.enqueue(keyed("k2", "x0"), keyed("k2", "x1"))
	claimed = e.want("x0")
	e.retry(claimed[0], 0, "at once")
	again := e.collect("x0")
	if again[0].Attempt != 2 || again[0].ID != claimed[0].ID {
		e.Errorf("the retried job is %+v, want id %d and attempt 2", again[0], claimed[0].ID)
	}
	e.ack(again...)
	e.ack(e.collect("x1")...)
}

func keyDeadLetterFreesTheKey(e *env) {
	e.enqueue(keyed("k", "k0"), keyed("k", "k1"), keyed("k", "k2"))
	e.Must(e.q.DeadLetter(e.ctx, e.want("k0")[0].Lease, "no"), "DeadLetter")
	k1 := e.collect("k1")
	e.retryDead(1, admin.DeadJobQuery{})
	e.maintain()
	e.want()
	e.ack(k1...)
	e.ack(e.collect("k0")...) // by its id
	e.ack(e.collect("k2")...)
}

func keyCancelFreesTheKey(e *env) {
	ids := e.enqueue(keyed("k", "k0"), keyed("k", "k1"), keyed("k", "k2"), keyed("k", "k3"))
	e.cancel(1, ids[0]) // the first, waiting
	k1 := e.collect("k1")
	e.cancel(1, ids[2]) // in the middle
	e.want()
	e.cancel(1, ids[1]) // running
	e.ack(e.collect("k3")...)
	e.sameLeases("Ack of a cancelled job", suite.Get(e.q.Ack(e.ctx, k1[0].Lease)).Must(e, "Ack of a cancelled job"), nil)
}

// A job that comes back while a later one of its key runs was passed over. It runs however the later one's attempt ends.
func keyEarlierJobComesBack(e *env) {
	ends := map[string]func(penstock.Job){
		"retried":  func(j penstock.Job) { e.retry(j, 0, "at once") },
		"expired":  func(j penstock.Job) { e.expire(j) },
		"released": func(j penstock.Job) { e.release(0, j) },
	}
	for name, end := range ends {
		first, second := name+" 0", name+" 1"
		e.enqueue(keyed(name, first), keyed(name, second))
		e.Must(e.q.DeadLetter(e.ctx, e.want(first)[0].Lease, "no"), "DeadLetter")
		running := e.collect(second)
		e.retryDead(1, admin.DeadJobQuery{Key: name})
		e.want()
		end(running[0])
		left := map[string]bool{first: true, second: true}
		e.eventually("both have run", func() bool {
			for _, j := range e.claim(10) {
				delete(left, string(j.Payload))
				e.ack(j)
			}
			return len(left) == 0
		})
	}
}

// Of one key the order is that of the ids, whatever the priorities.
func keyOrderBeforePriority(e *env) {
	e.enqueue(penstock.NewJob{Key: "k", Priority: 5, Payload: []byte("k0")}, penstock.NewJob{Key: "k", Priority: -5, Payload: []byte("k1")})
	e.ack(e.collect("k0")...)
	e.ack(e.collect("k1")...)
}

// A job takes its place in its key when its time has come.
func keyDelayedJobHoldsUpNoOther(e *env) {
	e.enqueue(penstock.NewJob{Key: "k", Payload: []byte("tomorrow"), NotBefore: time.Now().Add(24 * time.Hour)}, keyed("k", "now"))
	e.wantCounts(counts{ready: 1, delayed: 1})
	e.ack(e.collect("now")...)
	e.maintain()
	e.want()
}
