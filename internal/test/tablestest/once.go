package tablestest

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/wire"
)

// Messages that the store itself publishes are there once, wherever its connection was lost. That is before the server saw it,
// after it had done it, or before it did it after all. It may have been carried off before it is looked up.
func publish(f *fixture, trip Trip, cut string) {
	msgs := []penstock.Message{{Key: "k", Payload: []byte("1")}, {Payload: []byte("2")}}
	f.OK(f.Store.Publish(f.Context(), "orders", msgs...)) // the driver knows the statements now
	f.Proxy.Once(cuts[cut], trip.Text, func(next []byte) {
		if cut == "carried off" && strings.Contains(string(next), "given_up") {
			f.exec("delete from {schema}.outbox_orders where payload = '1'")
		}
	})
	f.OK(f.Store.Publish(f.Context(), "orders", msgs...))
	f.arrive(cut)
	f.counts("select count(*) from {schema}.outbox_orders", map[bool]int{false: 4, true: 2}[cut == "carried off"])
	f.lookedOnce()
	for range 3 {
		f.OK(f.Store.Publish(f.Context(), "orders", msgs...))
	}
	f.counts("select count(*) from {schema}.attempts where not given_up", 1) // that of the last
}

// The same of jobs, whose numbers are returned.
func enqueue(f *fixture, trip Trip, cut string, dedup bool) {
	jobs := func(n int) (all []penstock.NewJob) {
		for i := range 3 {
			j := penstock.NewJob{Payload: fmt.Appendf(nil, "%d%d", n, i)}
			if dedup {
				j.DedupKey = fmt.Sprint(n, "-", i/2)
			}
			all = append(all, j)
		}
		return all
	}
	suite.Get(f.q.Enqueue(f.Context(), jobs(1)...)).Must(f, "Enqueue")
	f.lose(trip, cut, "given_up")
	made := suite.Get(f.q.Enqueue(f.Context(), jobs(2)...)).Must(f, "Enqueue")
	f.arrive(cut)
	f.counts("select count(*) from {schema}.queue_jobs", map[bool]int{false: 6, true: 4}[dedup])
	for i, m := range made {
		f.counts(fmt.Sprintf("select count(*) from {schema}.queue_jobs where seq = %d and payload = '2%d'", m.ID, i), map[bool]int{false: 1}[m.Deduplicated])
	}
	f.lookedOnce()
}

// Jobs of a claim whose answer was lost are claimed by the same call, and not left until the leases end; also if jobs end in it.
func claim(f *fixture, trip Trip, cut string) {
	suite.Get(f.q.Enqueue(f.Context(), make([]penstock.NewJob, 9)...)).Must(f, "Enqueue")
	claims := func(acks ...penstock.Job) []penstock.Job {
		var leases []int64
		for _, j := range acks {
			leases = append(leases, j.Lease)
		}
		_, jobs, err := f.q.(driver.AckClaimer).AckClaim(f.Context(), leases, driver.Claim{Jobs: 3, Lease: time.Hour})
		f.OK(err)
		return jobs
	}
	next := func(jobs, before []penstock.Job) {
		if len(jobs) != 3 || jobs[0].ID != before[2].ID+1 || jobs[0].Attempt != 1 {
			f.Errorf("claimed %+v after %+v", jobs, before)
		}
		f.counts("select count(*) from {schema}.leases", 6)
	}
	first := claims()
	f.lose(trip, cut, "")
	second := claims()
	next(second, first)
	f.lookedOnce()
	f.lose(trip, cut, "")
	next(claims(first...), second)
}

// The server sees a claim whose worker has given up only after another claim has given its leases back. They are given back again.
func lateClaim(f *fixture) {
	suite.Get(f.q.Enqueue(f.Context(), make([]penstock.NewJob, 3)...)).Must(f, "Enqueue")
	claim := func(c driver.Claim) []penstock.Job {
		jobs := suite.Get(f.q.Claim(f.Context(), c)).Must(f, "Claim")
		return jobs
	}
	other := driver.Claim{Jobs: 3, Lease: time.Hour, Group: "other"}
	claim(other) // the store knows the queue now
	ctx, giveUp := context.WithCancel(f.Context())
	f.Proxy.Decide(func(trip []byte) wire.Fault {
		if ctx.Err() == nil && bytes.Contains(trip, []byte("impatient")) {
			giveUp()
			return wire.CutLate
		}
		return wire.Pass
	})
	if jobs, err := f.q.Claim(ctx, driver.Claim{Jobs: 3, Lease: time.Hour, Worker: "impatient"}); err == nil {
		f.Fatalf("a call that had given up claimed %+v", jobs)
	}
	if jobs := claim(other); len(jobs) > 0 {
		f.Fatalf("claimed %+v of a group without jobs", jobs)
	}
	f.Proxy.Arrive()
	f.counts("select count(*) from {schema}.leases", 3)
	for claimed := 0; claimed < 3; {
		for _, job := range claim(driver.Claim{Jobs: 3, Lease: time.Hour}) {
			if claimed++; job.Attempt != 1 {
				f.Errorf("claimed %+v, want attempt 1", job)
			}
		}
	}
}

// A claim that meets a job whose deadline has passed ends it in a transaction after its first. If that is lost, or its caller gives up meanwhile, the job is
// ended once, and the others that were claimed are handed over. They do not stay leased until their leases end.
func deadlinesPassed(f *fixture) {
	suite.Get(f.q.Claim(f.Context(), driver.Claim{Jobs: 1, Lease: time.Hour})).Must(f, "Claim") // the store knows the queue now
	for i, cut := range []string{"before", "after", "given up"} {
		late := penstock.NewJob{Deadline: time.Now().Add(-time.Second), Payload: []byte("late")}
		suite.Get(f.q.Enqueue(f.Context(), penstock.NewJob{}, late, penstock.NewJob{})).Must(f, "Enqueue")
		ctx, giveUp := context.WithCancel(f.Context())
		defer giveUp()
		f.Proxy.Once(cuts[cut], "set expired = expired", nil)
		if cut == "given up" {
			f.Proxy.Decide(func(trip []byte) wire.Fault {
				if bytes.Contains(trip, []byte("set expired = expired")) {
					giveUp()
				}
				return wire.Pass
			})
		}
		jobs, err := f.q.Claim(ctx, driver.Claim{Jobs: 3, Lease: time.Hour})
		if f.Proxy.Decide(nil); err != nil || len(jobs) != 2 {
			f.Fatalf("%s: claimed %+v, %v, want the two others", cut, jobs, err)
		}
		f.counts("select count(*) from {schema}.leases", 2)
		f.counts("select expired from {schema}.queues", i+1)
		suite.Get(f.q.Ack(f.Context(), jobs[0].Lease, jobs[1].Lease)).Must(f, "Ack")
	}
}

// A deadline that passes while a claim is under way, before it takes the job, is seen: no attempt begins after it.
func deadlineWithin(f *fixture, trip Trip, _ string) {
	suite.Get(f.q.Claim(f.Context(), driver.Claim{Jobs: 1, Lease: time.Hour})).Must(f, "Claim") // the store knows the queue now
	deadline := time.Now().Add(time.Second)
	suite.Get(f.q.Enqueue(f.Context(), penstock.NewJob{Deadline: deadline})).Must(f, "Enqueue")
	f.Proxy.Decide(func(now []byte) wire.Fault {
		if bytes.Contains(now, []byte(trip.Text)) {
			time.Sleep(time.Until(deadline.Add(50 * time.Millisecond)))
		}
		return wire.Pass
	})
	if jobs := suite.Get(f.q.Claim(f.Context(), driver.Claim{Jobs: 1, Lease: time.Hour})).Must(f, "Claim"); len(jobs) > 0 {
		f.Errorf("an attempt of %+v begins after the deadline", jobs)
	}
	f.counts("select expired from {schema}.queues", 1)
}

// The rows of processes that died are taken away a day later, not before.
func attemptsOfTheDead(f *fixture) {
	f.exec(fmt.Sprintf("insert into {schema}.attempts (attempt, at) values (1, %s), (2, %s)", f.Ago(48*time.Hour), f.Ago(2*time.Hour)))
	suite.Get(f.q.Enqueue(f.Context(), penstock.NewJob{})).Must(f, "Enqueue")
	f.exec(fmt.Sprintf("insert into {schema}.attempts (attempt, given_up, at) values (-1, true, %s)", f.Ago(48*time.Hour)))
	f.OK(f.Direct.DriverQueue("jobs").Maintain(f.Context())) // of another store, which also looks for them
	f.counts("select sum(attempt) from {schema}.attempts where attempt in (-1, 1, 2)", 2)
}
