package queuetest

import (
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

// Rates are policies of groups, or of a queue as a whole.
var rateCases = named("Policies", policiesRateLetsABurstStart, policiesRateOfTheQueue, policiesRateThatIsLowered, policiesRateWithoutExpiredJobs,
	policiesRateOverTime)

// A rate counts starts, not ends.
func policiesRateLetsABurstStart(e *env) {
	e.setGroup(penstock.GroupPolicy{Group: "a", Rate: penstock.Rate{Jobs: 1, Per: time.Hour, Burst: 3}})
	e.setGroup(penstock.GroupPolicy{Group: "b", Rate: penstock.Rate{Jobs: 1000, Per: time.Hour}})
	e.fill("a", 10)
	e.fill("b", 10)
	e.ack(e.claimOf("a", 2)...)
	e.ack(e.claimOf("a", 2)...)
	e.same(e.claimOf("a", 2))
	e.wantGroups("a has used its burst", nil, "", 10, "b")
	e.same(e.claimOf("b", 5), "b0") // without a burst one by one
	e.same(e.claimOf("b", 5))
	e.wantGroups("b as well", nil, "", 10)
	e.setGroup(penstock.GroupPolicy{Group: "a"})
	got := e.claimOf("a", 2)
	e.same(got, "a3", "a4")
	suite.Equal(e, got[0].Attempt, 1, "attempt after the rate")
}

func policiesRateOfTheQueue(e *env) {
	e.set(penstock.QueueSettings{Rate: &penstock.Rate{Jobs: 1, Per: time.Hour, Burst: 3}})
	if s := e.status(); s.Rate == nil || *s.Rate != (penstock.Rate{Jobs: 1, Per: time.Hour, Burst: 3}) || s.Tokens == nil || *s.Tokens != 3 || s.WaitsFor() != "" {
		e.Errorf("the status says that the rate is %+v, and tokens %v", s.Rate, s.Tokens)
	}
	e.set(penstock.QueueSettings{MaxRunning: new(100)}) // leaves it as it is
	e.fill("a", 2)
	e.fill("b", 2)
	e.ack(e.claimOf("a", 2)...)
	e.ack(e.claimOf("b", 2)...)
	e.same(e.claimOf("b", 2))
	e.wantGroups("the queue has used its burst", nil, "", 10)
	s := e.status()
	suite.Equal(e, s.WaitsFor(), "rate", "what a queue that has used its burst waits for")
	e.set(penstock.QueueSettings{Rate: &penstock.Rate{}})
	if s := e.status(); s.Rate != nil || s.Tokens != nil {
		e.Errorf("the status says that the rate is %+v, and tokens %v", s.Rate, s.Tokens)
	}
	e.same(e.claimOf("b", 2), "b1")
}

// A smaller burst does not forget what has started. A start that a former rate puts off by more than the new one allows does not count.
func policiesRateThatIsLowered(e *env) {
	e.setGroup(penstock.GroupPolicy{Group: "a", Rate: penstock.Rate{Jobs: 4, Per: time.Hour, Burst: 4}})
	e.fill("a", 10)
	e.same(e.claimOf("a", 10), "a0", "a1", "a2", "a3")
	e.setGroup(penstock.GroupPolicy{Group: "a", Rate: penstock.Rate{Jobs: 4, Per: time.Hour}})
	e.same(e.claimOf("a", 10))
	e.wantGroups("the hour's jobs have started", nil, "", 10)
	e.setGroup(penstock.GroupPolicy{Group: "a", Rate: penstock.Rate{Jobs: 1, Per: time.Minute}})
	e.wantGroups("they started an hour ahead", nil, "", 10, "a")
	e.same(e.claimOf("a", 10), "a4")
	e.same(e.claimOf("a", 10))
}

// A job whose deadline has passed does not start, so no rate counts it: a group's, that of all groups without one, or the queue's. Those behind it start.
func policiesRateWithoutExpiredJobs(e *env) {
	hourly := penstock.Rate{Jobs: 1, Per: time.Hour}
	claims := func(group, what string) {
		late := penstock.NewJob{Group: group, Deadline: passed()}
		other := late
		other.UniqueKey = "late " + what
		e.enqueue(other, late, penstock.NewJob{Group: group, Payload: []byte(what)}, penstock.NewJob{Group: group, Payload: []byte("next")})
		e.same(e.claimOf(group, 3), what)
		e.same(e.claimOf(group, 3)) // it has used its burst
	}
	e.setGroup(penstock.GroupPolicy{Group: "a", Rate: hourly})
	claims("a", "group")
	e.setGroup(penstock.GroupPolicy{Group: penstock.DefaultGroup, Rate: hourly})
	claims("b", "all groups")
	e.setGroup(penstock.GroupPolicy{Group: penstock.DefaultGroup})
	e.set(penstock.QueueSettings{Rate: &hourly})
	claims("c", "queue")
	suite.Equal(e, e.status().Expired, int64(6), "expired jobs")
}

// Starts are as far apart as the rate says, with several workers.
func policiesRateOverTime(e *env) {
	rate := penstock.Rate{Jobs: 1, Per: 30 * time.Millisecond}
	e.setGroup(penstock.GroupPolicy{Group: "a", Rate: rate})
	const n = 8
	e.fill("a", n)
	qs := []driver.Queue{e.q, e.Another(e).DriverQueue(queue)}
	t, start := newTally(), time.Now()
	e.Must(suite.Concurrently(4, func(i int) error {
		for t.total() < n {
			if err := t.work(e, qs[i%2], "a", 2); err != nil {
				return err
			}
		}
		return nil
	}), "working")
	if took := time.Since(start); took < (n-1)*rate.Per {
		e.Errorf("%d jobs started within %s, at a rate of one in %s", n, took, rate.Per)
	}
}
