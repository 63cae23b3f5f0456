package queuetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/work"
)

var policyCases = append(rateCases,
	named("Policies", policiesSetReplacedDeleted, policiesRefused, policiesGoWithTheQueue,
		policiesLimitCountsLeases, policiesNoLeaseComesBackAboveTheLimit, policiesExtensionUnderWay, policiesLimitCountsJobsClaimedTogether, policiesLimitOfQueueAndGroup,
		policiesDefaultOfEachGroup, policiesLimitAndKeys, policiesHeldAndReleased, policiesHoldEnds, policiesSeen, policiesWeightsAreShares,
		policiesNoHoldShortensAnother, policiesWorkServesAll, policiesRandomWalk, policiesHandlerHoldsTheGroup)...)

// policies is the store as what sets policies.
func (e *env) policies() driver.GroupStore { return e.Store.(driver.GroupStore) }

func (e *env) setGroup(p penstock.GroupPolicy) {
	e.Must(e.policies().SetGroup(e.ctx, queue, p), "SetGroup")
}

func (e *env) hold(group string, d time.Duration, reason string) {
	e.Must(e.policies().HoldGroup(e.ctx, queue, group, d, reason), "HoldGroup")
}

// allPolicies lists the policies, without the times until which groups are held.
func (e *env) allPolicies(after string, most int) []admin.GroupPolicy {
	all := suite.Get(e.policies().GroupPolicies(e.ctx, queue, after, most)).Must(e, "GroupPolicies")
	for i := range all {
		if all[i].Reason != "" && all[i].Until.IsZero() {
			e.Errorf("the group %q is held for %q, and until no time", all[i].Group, all[i].Reason)
		}
		all[i].Until = time.Time{}
	}
	return all
}

func (e *env) wantPolicies(want ...admin.GroupPolicy) {
	suite.Equal(e, e.allPolicies("", 100), want, "policies")
}

// claimOf claims up to n jobs of a group.
func (e *env) claimOf(group string, n int) []penstock.Job {
	return e.claimAs(driver.Claim{Group: group, Jobs: n})
}

// fill enqueues n jobs of a group: group0, group1, …
func (e *env) fill(group string, n int) {
	e.enqueue(groupJobs(group, n)...)
}

func groupJobs(group string, n int) []penstock.NewJob {
	all := jobs(group, n)
	for i := range all {
		all[i].Group = group
	}
	return all
}

func policiesSetReplacedDeleted(e *env) {
	a := penstock.GroupPolicy{Group: "a", MaxRunning: 3, Rate: penstock.Rate{Jobs: 100, Per: time.Minute, Burst: 7}, Weight: 4}
	e.setGroup(a)
	e.setGroup(penstock.GroupPolicy{Group: penstock.DefaultGroup, MaxRunning: 1})
	e.setGroup(penstock.GroupPolicy{Group: "", Weight: 2})
	e.hold("held", time.Hour, "429")
	all, is := penstock.GroupPolicy{Group: penstock.DefaultGroup, MaxRunning: 1}, penstock.GroupPolicy{Weight: 2}
	held := admin.GroupPolicy{GroupPolicy: penstock.GroupPolicy{Group: "held"}, Hold: admin.Hold{Reason: "429"}}
	policy := func(p penstock.GroupPolicy) admin.GroupPolicy { return admin.GroupPolicy{GroupPolicy: p} }
	e.wantPolicies(policy(is), policy(all), policy(a), held)
	suite.Equal(e, e.allPolicies("", 2), []admin.GroupPolicy{policy(is), policy(all)}, "the first two policies")
	suite.Equal(e, e.allPolicies("*", 1), []admin.GroupPolicy{policy(a)}, "the policy after *")
	a = penstock.GroupPolicy{Group: "a", Rate: penstock.Rate{Jobs: 1, Per: time.Hour}} // as a whole
	e.setGroup(a)
	e.hold("a", time.Hour, "")
	e.wantPolicies(policy(is), policy(all), policy(a), held)
	e.setGroup(penstock.GroupPolicy{Group: "a"})
	e.setGroup(penstock.GroupPolicy{Group: ""})
	e.setGroup(penstock.GroupPolicy{Group: penstock.DefaultGroup})
	e.setGroup(penstock.GroupPolicy{Group: "never set"})
	e.hold("held", 0, "")
	e.hold("never held", 0, "")
	e.wantPolicies(policy(penstock.GroupPolicy{Group: "a"})) // which is still held
	e.hold("a", 0, "")
	e.wantPolicies()
}

func policiesRefused(e *env) {
	s := e.policies()
	for field, p := range map[string]penstock.GroupPolicy{
		"group":       {Group: strings.Repeat("x", penstock.MaxGroupBytes+1)},
		"max running": {MaxRunning: -1},
		"weight":      {Weight: penstock.MaxGroupWeight + 1},
		"rate":        {Rate: penstock.Rate{Per: time.Second}},
		"per":         {Rate: penstock.Rate{Jobs: 1}},
		"burst":       {Rate: penstock.Rate{Jobs: 1, Per: time.Second, Burst: -1}},
	} {
		e.BadField("SetGroup", s.SetGroup(e.ctx, queue, p), field)
	}
	e.BadField("SetGroup", s.SetGroup(e.ctx, queue, penstock.GroupPolicy{Rate: penstock.Rate{Jobs: 1001, Per: time.Millisecond}}), "rate")
	e.BadField("SetQueue", e.Store.SetQueue(e.ctx, queue, penstock.QueueSettings{Rate: &penstock.Rate{Jobs: -1}}), "rate")
	e.BadField("HoldGroup", s.HoldGroup(e.ctx, queue, penstock.DefaultGroup, time.Second, ""), "group")
	e.BadField("HoldGroup", s.HoldGroup(e.ctx, queue, "a", -1, ""), "for")
	e.BadField("HoldGroup", s.HoldGroup(e.ctx, queue, "a", 1, strings.Repeat("x", penstock.MaxReasonBytes+1)), "reason")
	e.BadField("GroupPolicies", suite.Err(s.GroupPolicies(e.ctx, queue, "", 0)), "limit")
	e.MustBe(suite.Err(s.GroupPolicies(e.ctx, "none-such", "", 1)), penstock.ErrNoQueue, "GroupPolicies of no queue")
	e.MustBe(s.SetGroup(e.ctx, "none-such", penstock.GroupPolicy{Weight: 2}), penstock.ErrNoQueue, "SetGroup of no queue")
	e.MustBe(s.HoldGroup(e.ctx, "none-such", "a", 1, ""), penstock.ErrNoQueue, "HoldGroup of no queue")
	e.wantPolicies()
}

func policiesGoWithTheQueue(e *env) {
	e.setGroup(penstock.GroupPolicy{Group: "a", MaxRunning: 1})
	e.hold("b", time.Hour, "")
	e.Must(e.Store.SetQueue(e.ctx, queue, penstock.QueueSettings{Rate: &penstock.Rate{Jobs: 1, Per: time.Hour}}), "SetQueue")
	e.fill("a", 2)
	e.same(e.claimOf("a", 2), "a0")
	e.Must(e.Store.DropQueue(e.ctx, queue), "DropQueue")
	e.Must(e.Store.CreateQueue(e.ctx, queue, penstock.FIFO), "CreateQueue")
	e.wantPolicies()
	e.fill("a", 3)
	e.fill("b", 1)
	e.same(e.claimOf("a", 5), "a0", "a1", "a2")
	e.same(e.claimOf("b", 1), "b0")
}

// All that ends a lease makes room, and nothing else does. What does not fit costs no attempt.
func policiesLimitCountsLeases(e *env) {
	e.setGroup(penstock.GroupPolicy{Group: "a", MaxRunning: 4})
	e.fill("a", 20)
	e.fill("b", 6)
	first := e.claimOf("a", 3)
	e.same(first, "a0", "a1", "a2")
	last := e.claimOf("a", 3)
	e.same(last, "a3")
	e.same(e.claimOf("a", 3))
	e.wantGroups("full", nil, "", 10, "b")
	e.same(e.claimOf("b", 10), "b0", "b1", "b2", "b3", "b4", "b5") // another group is not concerned

	e.ack(first[0])
	e.wantGroups("one is done", nil, "", 10, "a")
	e.same(e.claimOf("a", 3), "a4")
	e.retry(first[1], time.Hour, "x")
	e.Must(e.q.DeadLetter(e.ctx, first[2].Lease, "x"), "DeadLetter")
	e.same(e.claimOf("a", 3), "a5", "a6")
	e.cancel(1, last[0].ID)
	running := e.claimOf("a", 3)
	e.same(running, "a7")
	e.release(time.Hour, running[0])
	running = e.claimOf("a", 3)
	e.same(running, "a8")
	suite.Get(e.q.Extend(e.ctx, suite.LongLease, running[0].Lease)).Must(e, "Extend")
	e.same(e.claimOf("a", 3))
	e.expire(running[0]) // as if its worker had died
	e.eventually("the lease ends, and makes room", func() bool {
		got := e.claimOf("a", 3)
		if len(got) > 1 || len(got) == 1 && got[0].Attempt > 2 {
			e.Fatalf("one lease ended, and %+v were claimed", got)
		}
		return len(got) == 1
	})

	e.setGroup(penstock.GroupPolicy{Group: "a", MaxRunning: 2}) // 4 run
	e.same(e.claimOf("a", 3))
	e.setGroup(penstock.GroupPolicy{Group: "a", MaxRunning: 5})
	if got := e.claimOf("a", 3); len(got) != 1 || got[0].Attempt > 2 {
		e.Errorf("4 of 5 run, and %q were claimed", names(got))
	}
	e.setGroup(penstock.GroupPolicy{Group: "a"})
	for _, j := range e.claimOf("a", 30) {
		if want := 1; j.Attempt > want && string(j.Payload) != "a8" {
			e.Errorf("job %q has attempt %d: a limit took some", j.Payload, j.Attempt)
		}
	}
}

// A lease that has ended does not count any more, or it can be extended, but not both. A claim may find first that it has ended.
func policiesNoLeaseComesBackAboveTheLimit(e *env) {
	e.setGroup(penstock.GroupPolicy{Group: "a", MaxRunning: 1})
	e.fill("a", 2)
	for range 5 {
		var leases []int64
		for len(leases) < 2 {
			for _, j := range suite.Get(e.q.Claim(e.ctx, driver.Claim{Jobs: 1, Lease: suite.LongLease, Group: "a"})).Must(e, "Claim") {
				if leases = append(leases, j.Lease); len(leases) == 1 {
					suite.Get(e.q.Extend(e.ctx, time.Microsecond, j.Lease)).Must(e, "Extend")
				}
			}
		}
		held := suite.Get(e.q.Extend(e.ctx, suite.LongLease, leases...)).Must(e, "Extend")
		suite.MustEqual(e, held, leases[1:], "leases that are extended")
		suite.Get(e.q.Release(e.ctx, 0, leases[1])).Must(e, "Release")
	}
}

// A lease whose time is over counts while an extension of it is under way.
func policiesExtensionUnderWay(e *env) {
	if e.HoldExtensions == nil {
		e.Skip("no transaction of the store can be held")
	}
	waits, hold := e.HoldExtensions(e)
	other := e.Another(e).DriverQueue(queue)
	for _, limit := range []func(){
		func() { e.setGroup(penstock.GroupPolicy{Group: "a", MaxRunning: 1}) },
		func() {
			e.setGroup(penstock.GroupPolicy{Group: "a"})
			e.set(penstock.QueueSettings{MaxRunning: new(1)})
		},
	} {
		limit()
		e.fill("a", 2)
		claim := func(lease time.Duration) (jobs []penstock.Job) {
			e.eventually("a job may run", func() bool {
				jobs = e.claimAs(driver.Claim{Group: "a", Jobs: 1, Lease: lease})
				return len(jobs) == 1
			})
			return jobs
		}
		var open func()
		var extended chan []int64
		var mine []penstock.Job
		for waiting := false; !waiting; { // an extension that comes too late finds no lease
			mine, extended = claim(500*time.Millisecond), make(chan []int64, 1)
			open = hold()
			go func() {
				leases, err := e.q.Extend(e.ctx, suite.LongLease, mine[0].Lease)
				if err != nil {
					e.Errorf("Extend: %v", err)
				}
				extended <- leases
			}()
			e.Eventually("the extension waits, or has ended", func() bool { waiting = waits(); return waiting || len(extended) > 0 })
			if !waiting {
				open()
			}
		}
		e.Eventually("the time of the lease is over", func() bool { return time.Now().After(mine[0].LeaseUntil) })
		claimed := make(chan []penstock.Job, 1)
		go func() {
			jobs, err := other.Claim(e.ctx, driver.Claim{Group: "a", Jobs: 1, Lease: suite.LongLease})
			if err != nil {
				e.Errorf("Claim: %v", err)
			}
			claimed <- jobs
		}()
		var more []penstock.Job
		select {
		case more = <-claimed:
			claimed <- nil
		case <-time.After(300 * time.Millisecond): // it waits, or a slow machine hides the fault
		}
		open()
		if more = append(more, <-claimed...); len(more) > 0 {
			e.Errorf("a job was claimed of a limit of 1, while the lease of another one was extended")
		}
		e.sameLeases("Extend", <-extended, mine)
		e.ack(mine...)
		e.ack(claim(suite.LongLease)...)
	}
}

// Jobs that one claim took before a limit was set count each, also after some of them are done. The limit is the queue's, or a group's.
func policiesLimitCountsJobsClaimedTogether(e *env) {
	ofGroup := func(n int) { e.setGroup(penstock.GroupPolicy{Group: "a", MaxRunning: n}) }
	for _, limit := range []func(n int){ofGroup, func(n int) { e.set(penstock.QueueSettings{MaxRunning: &n}) }} {
		e.fill("a", 40)
		running := e.ackClaim(nil, driver.Claim{Group: "a", Jobs: 30})
		suite.MustEqual(e, len(running), 30, "claimed jobs")
		limit(12)
		e.wantGroups("30 run of 12 that may", nil, "", 10)
		e.ack(running[:18]...)
		e.same(e.claimOf("a", 5))
		e.wantGroups("12 run of 12 that may", nil, "", 10)
		e.ack(running[18:20]...)
		e.wantGroups("10 run of 12 that may", nil, "", 10, "a")
		more := e.ackClaim(running[20:23], driver.Claim{Group: "a", Jobs: 20})
		more = append(more, e.claimOf("a", 5)...) // what the first call ends makes room for it, or for the second
		e.same(more, "a30", "a31", "a32", "a33", "a34")
		limit(0)
		e.ack(slices.Concat(running[23:], more, e.claimOf("a", 10))...)
	}
}

func policiesLimitOfQueueAndGroup(e *env) {
	e.set(penstock.QueueSettings{MaxRunning: new(5)})
	e.setGroup(penstock.GroupPolicy{Group: "a", MaxRunning: 3})
	e.fill("a", 10)
	e.fill("b", 10)
	a := e.claimOf("a", 10)
	e.same(a, "a0", "a1", "a2")
	b := e.claimOf("b", 10)
	e.same(b, "b0", "b1")
	e.ack(b...)
	e.wantGroups("the queue has room, a has none", nil, "", 10, "b")
	e.same(e.claimOf("a", 10))
	e.same(e.claimOf("b", 1), "b2")
	e.ack(a...)
	e.same(e.claimOf("a", 10), "a3", "a4", "a5")
}

// The default counts for each group separately. A group's own policy replaces it as a whole.
func policiesDefaultOfEachGroup(e *env) {
	e.setGroup(penstock.GroupPolicy{Group: penstock.DefaultGroup, MaxRunning: 1})
	e.setGroup(penstock.GroupPolicy{Group: "more", MaxRunning: 2})
	e.setGroup(penstock.GroupPolicy{Group: "free", Weight: 1})
	for _, group := range []string{"a", "", "more", "free", "late"} {
		e.fill(group, 4)
	}
	e.same(e.claimOf("a", 3), "a0")
	e.same(e.claimOf("", 3), "0")
	e.same(e.claimOf("more", 3), "more0", "more1")
	e.same(e.claimOf("free", 3), "free0", "free1", "free2")
	e.wantGroups("some are full", nil, "", 10, "free", "late")
	e.setGroup(penstock.GroupPolicy{Group: "more"})
	e.same(e.claimOf("more", 3))
	e.setGroup(penstock.GroupPolicy{Group: penstock.DefaultGroup})
	e.same(e.claimOf("a", 2), "a1", "a2")
	e.same(e.claimOf("more", 2), "more2", "more3")
	e.same(e.claimOf("late", 4), "late0", "late1", "late2", "late3")
}

// With keys jobs are found in another way, and moved when they must wait.
func policiesLimitAndKeys(e *env) {
	e.setGroup(penstock.GroupPolicy{Group: "a", MaxRunning: 2})
	in := func(key, payload string) penstock.NewJob {
		return penstock.NewJob{Group: "a", Key: key, Payload: []byte(payload)}
	}
	e.enqueue(in("k", "k0"), in("k", "k1"), in("l", "l0"), in("", "free"), in("m", "m0"))
	first := e.claimOf("a", 5)
	e.same(first, "k0", "l0")
	e.same(e.claimOf("a", 5))
	e.ack(first[0])
	e.eventually("one more of another key, or the next of the same", func() bool {
		got := e.claimOf("a", 5)
		if len(got) > 1 {
			e.Fatalf("one was done of two that may run, and %q were claimed", names(got))
		}
		return len(got) == 1
	})
	e.same(e.claimOf("a", 5))
}

func policiesHeldAndReleased(e *env) {
	e.fill("a", 3)
	e.fill("b", 3)
	running := e.claimOf("a", 1)
	e.hold("a", time.Hour, "its server answered 429")
	e.same(e.claimOf("a", 3))
	e.wantGroups("a is held", nil, "", 10, "b")
	e.same(e.claimOf("b", 1), "b0")
	e.ack(running...) // what runs is left alone
	e.hold("a", 2*time.Hour, "")
	e.same(e.claimOf("a", 3))
	e.hold("a", 0, "")
	e.wantGroups("a is released", nil, "", 10, "a", "b")
	e.same(e.claimOf("a", 3), "a1", "a2")
}

func policiesHoldEnds(e *env) {
	e.fill("a", 1)
	e.hold("a", time.Hour, "")
	e.hold("a", 0, "")
	e.hold("a", 100*time.Millisecond, "")
	var got []penstock.Job
	e.eventually("the hold ends", func() bool {
		got = e.claimOf("a", 1)
		return len(got) == 1
	})
	e.wantPolicies()
	suite.Equal(e, got[0].Attempt, 1, "attempt of the job that was held")
}

func policiesSeen(e *env) {
	e.setGroup(penstock.GroupPolicy{Group: "a", MaxRunning: 2, Rate: penstock.Rate{Jobs: 1, Per: time.Hour, Burst: 5}, Weight: 3})
	e.fill("a", 3)
	e.fill("b", 1)
	e.fill("c", 1)
	e.hold("b", time.Hour, "429")
	suite.MustEqual(e, len(e.claimOf("a", 3)), 2, "claimed jobs")
	got := e.groupStatus("", 10)
	a := admin.GroupLimits{MaxRunning: 2, Rate: penstock.Rate{Jobs: 1, Per: time.Hour, Burst: 5}, Weight: 3, Tokens: 3}
	if l := got["a"].Limits; l == nil || *l != a || got["a"].Running != 2 {
		e.Errorf("the status of a is %+v with %+v, want %+v", got["a"], l, a)
	}
	if l := got["b"].Limits; l == nil || l.Reason != "429" || l.Until.IsZero() {
		e.Errorf("the status of b is %+v with %+v", got["b"], l)
	}
	if got["c"].Limits != nil {
		e.Errorf("the status of c is %+v with %+v, and it has no limits", got["c"], got["c"].Limits)
	}
	e.setGroup(penstock.GroupPolicy{Group: penstock.DefaultGroup, MaxRunning: 9})
	if l := e.groupStatus("b", 10)["c"].Limits; l == nil || l.MaxRunning != 9 {
		e.Errorf("with a default the limits of c are %+v", l)
	}
}

// Of groups that all have jobs, each gets its share of what three workers do.
func policiesWeightsAreShares(e *env) {
	weights := map[string]int{"a": 1, "b": 2, "c": 4}
	const n, sum = 1000, 7
	for group, weight := range weights {
		e.setGroup(penstock.GroupPolicy{Group: group, Weight: weight})
		e.fill(group, n*weight/sum+300)
	}
	e.wantGroups("a group comes as often as it weighs", nil, "", 10, "a", "b", "b", "c", "c", "c", "c")
	e.wantGroups("and counts once", nil, "a", 2, "b", "b", "c", "c", "c", "c")
	var mu sync.Mutex
	started, count := 0, map[string]int{}
	h := func(_ context.Context, j penstock.Job) error {
		mu.Lock()
		defer mu.Unlock()
		if started++; started <= n {
			count[j.Group]++
		}
		return nil
	}
	var stops []func() error
	for range 3 {
		stops = append(stops, e.work(h, work.Options{AllGroups: true, Concurrency: 2}))
	}
	e.eventually("a thousand jobs are done", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return started >= n
	})
	for _, stop := range stops {
		e.Must(stop(), "Work")
	}
	for group, weight := range weights {
		if share, want := float64(count[group]), float64(n*weight)/sum; share < 0.95*want || share > 1.05*want {
			e.Errorf("of %d jobs %d were of the group %q, which has a weight of %d in %d", n, count[group], group, weight, sum)
		}
	}
}

// A handler that has its group held gets its job back afterwards, and no attempt is spent. The group waits, others continue.
func policiesHandlerHoldsTheGroup(e *env) {
	e.set(penstock.QueueSettings{MaxAttempts: new(1)})
	const n = 100
	e.fill("a", n)
	var mu sync.Mutex
	var order []string
	refused := false
	h := func(_ context.Context, j penstock.Job) error {
		mu.Lock()
		defer mu.Unlock()
		suite.Equal(e, j.Attempt, 1, "attempt of %q", j.Payload)
		if j.Group == "a" && !refused && len(order) == 10 { // by now some are claimed ahead
			refused = true
			return fmt.Errorf("wrapped: %w", work.HoldGroup(time.Hour, "429"))
		}
		order = append(order, string(j.Payload))
		return nil
	}
	stop := e.work(h, work.Options{Groups: []string{"a", "b"}, Concurrency: 1})
	e.eventually("the group is held, and its jobs are back", func() bool { return len(e.allPolicies("", 10)) == 1 && e.groupStatus("", 10)["a"].Running == 0 })
	e.wantPolicies(admin.GroupPolicy{GroupPolicy: penstock.GroupPolicy{Group: "a"}, Hold: admin.Hold{Reason: "429"}})
	e.fill("b", 2)
	e.eventually("the other group is served", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Contains(order, "b0") && slices.Contains(order, "b1")
	})
	mu.Lock()
	suite.Equal(e, len(order), 12, "jobs that have run, of which 10 of a before its group was held")
	mu.Unlock()
	e.hold("a", 0, "")
	e.eventually("its jobs run once it is released", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(order) == n+2
	})
	e.Must(stop(), "Work")
	suite.Equal(e, len(e.deadJobs(admin.DeadJobQuery{})), 0, "dead letters")
}

// For example, a handler does not end the hold of an operator.
func policiesNoHoldShortensAnother(e *env) {
	h := e.q.(driver.GroupHolder)
	e.hold("a", time.Hour, "by hand")
	e.Must(h.HoldGroup(e.ctx, "a", time.Minute, "429"), "HoldGroup")
	e.hold("a", time.Minute, "429")
	held := admin.GroupPolicy{GroupPolicy: penstock.GroupPolicy{Group: "a"}, Hold: admin.Hold{Reason: "by hand"}}
	e.wantPolicies(held)
	e.Must(h.HoldGroup(e.ctx, "a", 2*time.Hour, "429"), "HoldGroup")
	held.Reason = "429"
	e.wantPolicies(held)
	e.BadField("HoldGroup", h.HoldGroup(e.ctx, penstock.DefaultGroup, time.Second, ""), "group")
}

// Groups that are full, held or over their rate, and many at that, are in no other's way.
func policiesWorkServesAll(e *env) {
	e.setGroup(penstock.GroupPolicy{Group: penstock.DefaultGroup, MaxRunning: 1})
	var full []penstock.NewJob
	for i := range 40 {
		group := fmt.Sprintf("busy%02d", i)
		full = append(full, groupJobs(group, 5)...)
	}
	e.enqueue(full...)
	for i := range 40 {
		group := fmt.Sprintf("busy%02d", i)
		if i%2 == 0 {
			e.hold(group, time.Hour, "")
		} else {
			suite.MustEqual(e, len(e.claimOf(group, 2)), 1, "claimed of %q, where one may run", group)
		}
	}
	h, done := e.endless()
	stop := e.work(h, work.Options{AllGroups: true, Concurrency: 4})
	for i := range 10 {
		group := []string{"aaa", "busy11x", "zzz", ""}[i%4]
		e.enqueue(grouped(group, "late"))
		e.eventually("a group between them is served", func() bool { return done(group) >= 1+i/4 })
	}
	e.Must(stop(), "Work")
	for i := range 40 {
		if group := fmt.Sprintf("busy%02d", i); done(group) > 0 {
			e.Errorf("the group %q was served", group)
		}
	}
}

// policiesRandomWalk changes policies, holds and jobs at random. A claim never brings more than may start, and all that may. A search
// finds each group as often as it weighs. Two groups have rates, which add no start meanwhile: only a larger burst does.
func policiesRandomWalk(e *env) {
	random := e.Random(0)
	groups := []string{"", "a", "b", "c"}
	policies, waiting, held := map[string]penstock.GroupPolicy{}, map[string]int{}, map[string]bool{}
	running, starts := map[string][]penstock.Job{}, map[string]int{} // starts under a rate
	policy := func(group string) penstock.GroupPolicy {
		if p, ok := policies[group]; ok {
			return p
		}
		return policies[penstock.DefaultGroup]
	}
	room := func(group string) int { // how many may start
		p, n := policy(group), 1<<30
		if p.MaxRunning > 0 {
			n = p.MaxRunning - len(running[group])
		}
		if p.Rate.Jobs > 0 {
			n = min(n, p.Rate.Burst-starts[group])
		}
		if held[group] {
			return 0
		}
		return max(n, 0)
	}
	for step := range testseed.Steps(300) {
		group := groups[random.IntN(len(groups))]
		mine := running[group]
		n := min(len(mine), 1+random.IntN(4))
		switch what := random.IntN(12); {
		case what < 2:
			some := 1 + random.IntN(12)
			e.fill(group, some)
			waiting[group] += some
		case what < 6:
			ask := 1 + random.IntN(12)
			want := min(ask, waiting[group], room(group))
			var jobs []penstock.Job
			if random.IntN(2) == 0 {
				jobs = e.ackClaim(nil, driver.Claim{Group: group, Jobs: ask})
			} else {
				jobs = e.claimOf(group, ask)
			}
			if len(jobs) > want {
				e.Fatalf("step %d: of the group %q %d run, %d may start by %+v, and a claim brought %d", step, group, len(mine), room(group), policy(group), len(jobs))
			}
			for len(jobs) < want { // a claim may miss some that another one finds
				before := len(jobs)
				e.eventually("a claim brings what may run", func() bool {
					jobs = append(jobs, e.claimOf(group, want-len(jobs))...)
					return len(jobs) > before
				})
			}
			waiting[group] -= len(jobs)
			running[group] = append(mine, jobs...)
			if policy(group).Rate.Jobs > 0 {
				starts[group] += len(jobs)
			}
		case what < 8:
			e.ack(mine[:n]...)
			running[group] = mine[n:]
		case what == 8 && n > 0:
			e.retry(mine[0], 0, "again")
			running[group] = mine[1:]
			waiting[group]++
		case what == 9:
			held[group] = !held[group]
			d := time.Duration(0)
			if held[group] {
				d = time.Hour
			}
			e.hold(group, d, "")
		default:
			of := append(groups, penstock.DefaultGroup)[random.IntN(len(groups)+1)]
			p := penstock.GroupPolicy{Group: of}
			if random.IntN(3) > 0 {
				p.MaxRunning = 1 + random.IntN(10)
			}
			if random.IntN(3) > 0 {
				p.Weight = 1 + random.IntN(3)
			}
			if of == "b" || of == "c" {
				p.Rate = penstock.Rate{Jobs: 1, Per: 24 * time.Hour, Burst: max(1, starts[of]+random.IntN(12))}
			}
			if policies[of] = p; p == (penstock.GroupPolicy{Group: of}) {
				delete(policies, of)
			}
			e.setGroup(p)
		}
		if random.IntN(3) == 0 {
			var want []string
			for _, group := range append(groups[1:], "") {
				if waiting[group] > 0 && room(group) > 0 {
					want = append(want, slices.Repeat([]string{group}, max(policy(group).Weight, 1))...)
				}
			}
			e.eventually(fmt.Sprintf("step %d: the groups %q are ready", step, want), func() bool { return slices.Equal(e.readyGroups(nil, "", 10), want) })
		}
	}
}
