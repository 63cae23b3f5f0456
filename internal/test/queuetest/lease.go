package queuetest

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testseed"
)

var leaseCases = slices.Concat(
	named("Lease", leaseLostLeaseSettlesNothing, leaseExtendKeepsTheLease, leaseUnknownLease, leaseLastLeaseThatExpiresIsADeadLetter, leaseEndsAtTheLeasesEnd),
	needing(Features{Reads: true}, named("Lease", leaseReadsEachOfManyOnce)),
)

// The worker wakes up when its job runs elsewhere, and when it is done.
func leaseLostLeaseSettlesNothing(e *env) {
	e.enqueue(job("a"), keyed("k", "k0"), keyed("k", "k1"))
	old := e.claimAs(driver.Claim{Jobs: 3, Lease: suite.ShortLease})
	e.same(old, "a", "k0")
	again := e.collect("a", "k0")
	for _, j := range again {
		if !slices.ContainsFunc(old, func(o penstock.Job) bool { return j.ID == o.ID && j.CreatedAt.Equal(o.CreatedAt) }) || j.Attempt != 2 {
			e.Errorf("after its lease ended the job is %+v, want attempt 2 and the same id and time", j)
		}
	}
	wantLost := func() {
		held := suite.Get(e.q.Ack(e.ctx, leases(old)...)).Must(e, "Ack of lost leases")
		e.sameLeases("Ack of lost leases", held, nil)
		held = suite.Get(e.q.Extend(e.ctx, suite.LongLease, leases(old)...)).Must(e, "Extend of lost leases")
		e.sameLeases("Extend of lost leases", held, nil)
		for _, j := range old {
			e.MustBe(suite.Err(e.q.Retry(e.ctx, j.Lease, 0, "x")), penstock.ErrLeaseLost, "Retry of a lost lease")
			e.MustBe(e.q.DeadLetter(e.ctx, j.Lease, "x"), penstock.ErrLeaseLost, "DeadLetter of a lost lease")
		}
		for _, after := range []time.Duration{0, time.Second} {
			held = suite.Get(e.q.Release(e.ctx, after, leases(old)...)).Must(e, "Release of lost leases")
			e.sameLeases("Release of lost leases", held, nil)
		}
	}
	wantLost()
	e.maintain()
	e.want()
	e.ack(again...)
	wantLost()
	e.ack(e.collect("k1")...)
	suite.Equal(e, len(e.deadJobs(admin.DeadJobQuery{})), 0, "dead letters of lost leases")
	e.want()
}

func leaseExtendKeepsTheLease(e *env) {
	var claimed []penstock.Job
	var held []int64
	for lease := suite.ShortLease; ; lease *= 2 { // until the leases are long enough for this machine
		e.enqueue(jobs("a", 3)...)
		claimed = e.claimAs(driver.Claim{Jobs: 3, Lease: lease})
		held = suite.Get(e.q.Extend(e.ctx, suite.LongLease, claimed[0].Lease, claimed[2].Lease)).Must(e, "Extend")
		if len(held) == 2 {
			break
		}
		lost := slices.DeleteFunc(claimed, func(j penstock.Job) bool { return slices.Contains(held, j.Lease) })
		suite.Get(e.q.Ack(e.ctx, held...)).Must(e, "Ack")
		e.ack(e.collect(names(lost)...)...)
	}
	again := e.collect("a1") // so the time has passed
	e.maintain()
	e.want()
	held = suite.Get(e.q.Extend(e.ctx, suite.LongLease, append(leases(append(again, claimed...)), claimed[0].Lease)...)).Must(e, "Extend")
	e.sameLeases("Extend of two that are held, one of them twice, one that was lost and the new one", held, []penstock.Job{claimed[0], claimed[2], again[0]})
	e.ack(claimed[0], claimed[2], again[0])
}

func leaseUnknownLease(e *env) {
	e.enqueue(job("a"))
	claimed := e.want("a")
	for _, lease := range []int64{0, -1, claimed[0].Lease + 1000, 1 << 62} {
		held := suite.Get(e.q.Ack(e.ctx, lease)).Must(e, "Ack of an unknown lease")
		e.sameLeases("Ack of an unknown lease", held, nil)
		e.MustBe(suite.Err(e.q.Retry(e.ctx, lease, 0, "")), penstock.ErrLeaseLost, "Retry of an unknown lease")
	}
	// A lease counts in its own queue only.
	e.Must(e.Store.CreateQueue(e.ctx, "other", penstock.FIFO), "CreateQueue")
	other := e.Store.DriverQueue("other")
	held := suite.Get(other.Ack(e.ctx, claimed[0].Lease)).Must(e, "Ack in another queue")
	e.sameLeases("Ack in another queue", held, nil)
	e.MustBe(other.DeadLetter(e.ctx, claimed[0].Lease, ""), penstock.ErrLeaseLost, "DeadLetter in another queue")
	held = suite.Get(e.q.Ack(e.ctx, claimed[0].Lease, claimed[0].Lease, -1)).Must(e, "Ack")
	e.sameLeases("Ack of a lease twice", held, claimed)
}

func leaseLastLeaseThatExpiresIsADeadLetter(e *env) {
	e.set(penstock.QueueSettings{MaxAttempts: new(2)})
	e.enqueue(keyed("k", "k0"), keyed("k", "k1"))
	e.same(e.claimAs(driver.Claim{Jobs: 2, Lease: suite.ShortLease}), "k0")
	e.eventually("it comes back", func() bool {
		return len(e.claimAs(driver.Claim{Jobs: 1, Lease: suite.ShortLease, Worker: "w"})) == 1
	})
	var dead []admin.DeadJob
	e.eventually("it is a dead letter", func() bool {
		dead = e.deadJobs(admin.DeadJobQuery{})
		return len(dead) > 0
	})
	if d := dead[0]; string(d.Job.Payload) != "k0" || d.Job.Attempt != 2 || d.Err() != "lease expired, held by w" || d.Failures[0].Err != "lease expired" {
		e.Errorf("the dead letter is %q, attempt %d, error %q, want k0, attempt 2 and who held it", d.Job.Payload, d.Job.Attempt, d.Err())
	}
	e.ack(e.collect("k1")...)
}

// Acks that meet the end of their lease, while another claims free jobs: each job was either acked or runs again, once. On which
// side of the end an ack comes is the machine's business, and the promise is the same.
func leaseEndsAtTheLeasesEnd(e *env) {
	const each, near = 50, 5 * time.Millisecond
	rounds := 6
	if testseed.Long() {
		rounds = 10_000 / each * testseed.Rounds()
	}
	r := testseed.New("ends at the lease's end", 0)
	acked, lost := 0, 0
	for round := range rounds {
		e.enqueue(jobs(fmt.Sprint(round, " "), each)...)
		began := time.Now()
		claimed := e.claimAs(driver.Claim{Jobs: each, Lease: suite.ShortLease})
		between := time.Since(began) // in which the lease began
		done := make([]bool, len(claimed))
		var ends, claims sync.WaitGroup
		for i, j := range claimed {
			aim := began.Add(suite.ShortLease + time.Duration(r.Int64N(int64(between+2*near))) - near)
			ends.Go(func() {
				time.Sleep(time.Until(aim))
				held, err := e.q.Ack(e.ctx, j.Lease)
				if err != nil {
					e.Errorf("Ack: %v", err)
				}
				done[i] = len(held) == 1
			})
		}
		again := map[int64]int{} // how often each job was claimed after its first lease
		var second []penstock.Job
		var stop atomic.Bool
		claim := func() error {
			if err := e.q.Maintain(e.ctx); err != nil { // it takes back the leases that ended
				return err
			}
			free, err := e.q.Claim(e.ctx, driver.Claim{Jobs: 7, Lease: suite.LongLease})
			for _, j := range free {
				again[j.ID]++
				second = append(second, j)
			}
			return err
		}
		claims.Go(func() {
			for !stop.Load() {
				if err := claim(); err != nil {
					e.Errorf("Claim: %v", err)
					return
				}
				time.Sleep(time.Millisecond) // a store with one writer lets the acks in
			}
		})
		ends.Wait()
		stop.Store(true)
		claims.Wait()
		refused := 0
		for i := range claimed {
			if !done[i] {
				refused++
			}
		}
		e.eventually(fmt.Sprintf("the %d jobs whose acks were refused run again", refused), func() bool {
			e.Must(claim(), "Claim")
			return len(second) >= refused
		})
		e.Must(claim(), "Claim")
		for i, j := range claimed {
			want := 1
			if done[i] {
				want = 0
			}
			if again[j.ID] != want {
				e.Errorf("round %d: the job %s was claimed %d times after its lease, and its ack was held: %v", round, j.Payload, again[j.ID], done[i])
			}
		}
		e.ack(second...)
		acked, lost = acked+each-refused, lost+refused
	}
	e.want()
	e.Logf("of %d acks at the end of a lease %d were held and %d refused (PENSTOCK_SEED=%d)", rounds*each, acked, lost, testseed.Seed())
}

// Ten times as many jobs in each call are ten times as many reads. This holds for enqueues with dedup keys, new and known, and
// for calls that settle jobs of one claim and of many.
func leaseReadsEachOfManyOnce(e *env) {
	e.readsInLine(func(n int) {
		batch := jobs("x", n)
		for i := range batch {
			batch[i].DedupKey = fmt.Sprint(n, " ", i)
		}
		e.enqueue(batch...)
		e.enqueue(batch...)
		claimed := e.claim(n)
		suite.Get(e.q.Extend(e.ctx, suite.LongLease, leases(claimed)...)).Must(e, "Extend")
		e.release(0, claimed...)
		e.ack(e.claim(n / 2)...)
		claimed = nil
		for range 10 {
			claimed = append(claimed, e.claim(n/20)...)
		}
		e.ack(claimed...)
		e.want()
	})
}
