package queuetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testseed"
)

var reclaimCases = slices.Concat(
	named("Reclaim", reclaimKeepsWhatIsLeft),
	needing(Features{Reclaim: true}, named("Reclaim", reclaimFallsToTheFloor)),
	needing(Features{Reclaim: true, Snapshots: true}, named("Reclaim", reclaimFallsToTheFloorWhilePinned)),
	[]testCase{{Name: "FallsToTheFloorLIFO", Run: reclaimFallsToTheFloor, Needs: Features{Reclaim: true}, Other: true}},
)

// churn runs a few megabytes through the queue, in all the ways in which a job
// can end.
func (e *env) churn() {
	rnd := e.Random(0)
	const n = 1500
	for i := 0; i < n; i += 50 {
		batch := make([]penstock.NewJob, 50)
		for b := range batch {
			batch[b] = penstock.NewJob{Key: []string{"", "", fmt.Sprint("k", b)}[rnd.IntN(3)], Payload: testseed.Bytes(rnd, 2000)}
			if rnd.IntN(10) == 0 {
				batch[b].NotBefore = time.Now().Add(time.Duration(rnd.IntN(50)) * time.Millisecond)
			}
		}
		e.enqueue(batch...)
		for range 2 {
			claimed := e.claim(30)
			if len(claimed) > 20 {
				if claimed[0].Attempt < 5 { // the same job may come first again and again
					e.retry(claimed[0], 0, "x")
					claimed = claimed[1:]
				}
				e.Must(e.q.DeadLetter(e.ctx, claimed[0].Lease, "x"), "DeadLetter")
				claimed = claimed[1:]
			}
			e.ack(claimed...)
		}
	}
	e.eventually("the queue is empty", func() bool {
		claimed := e.claim(200)
		e.ack(claimed...)
		return len(claimed) == 0 && e.left() == 0
	})
	suite.Get(e.Store.DiscardDeadJobs(e.ctx, admin.DeadJobQuery{Queue: queue})).Must(e, "DiscardDeadJobs")
}

func (e *env) floor() int64 {
	// The rows that a store makes when a queue is first used count to its floor.
	e.enqueue(job("a"))
	e.ack(e.collect("a")...)
	return e.status().Bytes
}

func reclaimFallsToTheFloor(e *env) {
	floor := e.floor()
	e.churn()
	e.wantFloor(floor)
}

func reclaimFallsToTheFloorWhilePinned(e *env) {
	floor := e.floor()
	release := e.Pin(e)
	e.churn()
	e.wantFloor(floor)
	release()
	e.enqueue(job("b"))
	e.ack(e.collect("b")...)
}

// wantFloor waits until the queue takes about its size when it was new.
func (e *env) wantFloor(floor int64) {
	const slack = 512 << 10
	bytes := int64(0)
	e.eventually("the bytes fall to the floor", func() bool {
		bytes = e.status().Bytes
		if e.ctx.Err() != nil {
			e.Fatalf("the queue still takes %d bytes, want at most %d more than %d", bytes, slack, floor)
		}
		return bytes <= floor+slack
	})
}

// Reclaiming loses no job that waits, runs or is delayed.
func reclaimKeepsWhatIsLeft(e *env) {
	e.enqueue(keyed("k", "k0"), keyed("k", "k1"), job("running"), job("retried"), job("dead"))
	running := e.want("k0", "running", "retried", "dead")
	e.enqueue(after(300*time.Millisecond, "delayed"))
	e.retry(running[2], 300*time.Millisecond, "x")
	e.Must(e.q.DeadLetter(e.ctx, running[3].Lease, "x"), "DeadLetter")
	rnd := e.Random(1)
	for range 20 {
		batch := make([]penstock.NewJob, 50)
		for b := range batch {
			batch[b] = penstock.NewJob{Group: "filler", Payload: testseed.Bytes(rnd, 2000)}
		}
		e.enqueue(batch...)
		for claimed := e.claimAs(driver.Claim{Group: "filler", Jobs: 50}); len(claimed) > 0; claimed = e.claimAs(driver.Claim{Group: "filler", Jobs: 50}) {
			e.ack(claimed...)
		}
		e.maintain()
	}
	if dead := deadNames(e.deadJobs(admin.DeadJobQuery{})); len(dead) != 1 || dead[0] != "dead" {
		e.Errorf("the dead letters are %q, want one", dead)
	}
	e.ack(e.collect("delayed", "retried")...)
	e.ack(running[0], running[1])
	e.ack(e.collect("k1")...)
}
