package queuetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/work"
)

var groupCases = slices.Concat(
	named("Groups", groupsReadyOnes, groupsManyReadyOnes, groupsNoneWhilePausedOrFull,
		groupsCounts, groupsCountsOfKeys, groupsPages, groupsLimits, groupsWorkTakesTurns,
		groupsWorkServesAll),
	needing(Features{ConcurrentWriters: true}, named("Groups", groupsLateCommit)),
	needing(Features{Reads: true}, named("Groups", groupsReadNoDeepOnes)),
	[]testCase{{Name: "ReadyOnesLIFO", Run: groupsReadyOnes, Other: true}},
)

func grouped(group, payload string) penstock.NewJob {
	return penstock.NewJob{Group: group, Payload: []byte(payload)}
}

func (e *env) readyGroups(groups []string, behind string, most int) []string {
	return suite.Get(e.q.(driver.GroupFinder).ReadyGroups(e.ctx, groups, behind, most)).Must(e, "ReadyGroups")
}

func (e *env) wantGroups(when string, groups []string, behind string, most int, want ...string) {
	suite.Equal(e, e.readyGroups(groups, behind, most), want, "%s: ready of %q, up to %d groups behind %q", when, groups, most, behind)
}

// The search for ready groups reads as many entries of deep groups as of shallow ones, also in a queue with policies and with running jobs.
func groupsReadNoDeepOnes(e *env) {
	deepen := func(jobs int) {
		for _, group := range []string{"", "a", "b"} {
			batch := make([]penstock.NewJob, jobs)
			for i := range batch {
				batch[i] = penstock.NewJob{Group: group, Priority: i % 3}
			}
			e.enqueue(batch...)
		}
	}
	reads := func() float64 {
		before := e.Reads(e)
		e.wantGroups("deep", nil, "a", 10, "b", "", "a")
		return e.Reads(e) - before
	}
	deepen(50)
	e.setGroup(penstock.GroupPolicy{Group: "*", MaxRunning: 20})
	e.claimAs(driver.Claim{Jobs: 5, Lease: suite.LongLease, Group: "a"})
	few := min(reads(), reads())
	deepen(2000)
	many := min(reads(), reads())
	e.Logf("%.0f entries with 150 jobs, %.0f with 6,150", few, many)
	if many > 2*few+20 {
		e.Errorf("the search reads %.0f entries with 150 jobs, and %.0f with 6,150", few, many)
	}
}

func groupsReadyOnes(e *env) {
	e.wantGroups("at first", nil, "", 10)
	e.enqueue(grouped("b", "b0"), grouped("é", "é0"), job("none0"), grouped("a", "a0"), penstock.NewJob{Group: "B", Priority: 7, Payload: []byte("B0")})
	e.wantGroups("enqueued", nil, "", 10, "B", "a", "b", "é", "")
	e.wantGroups("enqueued", nil, "a", 10, "b", "é", "", "B", "a")
	e.wantGroups("enqueued", nil, "az", 10, "b", "é", "", "B", "a")
	e.wantGroups("enqueued", nil, "a", 3, "b", "é", "")
	e.wantGroups("enqueued", nil, "zz\u0100", 2, "é", "")
	e.wantGroups("enqueued", []string{"é", "nobody", "", "a"}, "b", 10, "é", "", "a")
	e.wantGroups("enqueued", []string{"é", "nobody", "", "a"}, "", 2, "a", "é")
	e.wantGroups("enqueued", []string{"nobody"}, "", 2)

	a := e.claimAs(driver.Claim{Group: "a", Jobs: 10})
	e.same(a, "a0")
	e.ack(e.claimAs(driver.Claim{Group: "b", Jobs: 10})...)
	e.wantGroups("one runs, one is done", nil, "", 10, "B", "é", "")
	e.wantGroups("one runs, one is done", []string{"a", "b", "é"}, "", 10, "é")
	e.enqueue(grouped("b", "b1"), penstock.NewJob{Group: "é", Priority: -7, Payload: []byte("é1")})
	e.ack(e.claimAs(driver.Claim{Group: "é", Jobs: 1})...)
	e.wantGroups("another job in a group that had one", nil, "", 10, "B", "b", "é", "")
	e.retry(a[0], 0, "again")
	delayed := after(50*time.Millisecond, "c0")
	delayed.Group = "c"
	e.enqueue(delayed)
	e.eventually("what is tried again and what has become due is ready", func() bool {
		return slices.Equal(e.readyGroups(nil, "", 10), []string{"B", "a", "b", "c", "é", ""})
	})
	for _, group := range []string{"", "B", "a", "b", "c", "é"} {
		e.ack(e.claimAs(driver.Claim{Group: group, Jobs: 10})...)
	}
	e.wantGroups("all is done", nil, "", 10)

	_, err := e.Store.DriverQueue("none-such").(driver.GroupFinder).ReadyGroups(e.ctx, nil, "", 10)
	e.MustBe(err, penstock.ErrNoQueue, "ReadyGroups of no queue")
	e.Fails(suite.Err(e.q.(driver.GroupFinder).ReadyGroups(cancelled(e.ctx), nil, "", 10)), "ReadyGroups with a context that has ended")
}

// A limit that no list can have is named before the database sees it.
func groupsLimits(e *env) {
	for _, most := range []int{math.MinInt32, -1, 0, admin.MaxRows + 1, math.MaxInt32 + 1} {
		_, ready := e.q.(driver.GroupFinder).ReadyGroups(e.ctx, nil, "", most)
		_, groups := e.Store.QueueGroups(e.ctx, queue, "", most)
		errs := map[string]error{"ReadyGroups": ready, "QueueGroups": groups}
		if s, ok := e.Store.(doctor.Examiner); ok {
			_, errs["Running"] = s.Running(e.ctx, queue, most)
		}
		if s, ok := e.Store.(interface {
			FindJobs(context.Context, admin.Find) ([]admin.Found, error)
			FindMessages(context.Context, admin.Find) ([]admin.Found, error)
		}); ok {
			_, errs["FindJobs"] = s.FindJobs(e.ctx, admin.Find{In: queue, Limit: most})
			_, errs["FindMessages"] = s.FindMessages(e.ctx, admin.Find{In: "orders", Limit: most})
		}
		for what, err := range errs {
			if field, ok := errors.AsType[*penstock.FieldError](err); !ok || field.Field != "limit" {
				e.Errorf("%s up to %d: got error %v", what, most, err)
			}
		}
	}
}

// Groups whose jobs were all taken lie between those that have some.
func groupsManyReadyOnes(e *env) {
	name := func(i int) string { return fmt.Sprintf("g%03d", i) }
	const n = 200
	for _, round := range []string{"first", "second"} {
		var batch []penstock.NewJob
		for i := range n {
			batch = append(batch, grouped(name(i), round), grouped(name(i), round))
		}
		e.enqueue(batch...)
		var left []string
		for i := range n {
			if i%10 == 3 {
				left = append(left, name(i))
				continue
			}
			e.ack(e.claimAs(driver.Claim{Group: name(i), Jobs: 100})...)
		}
		e.wantGroups(round, nil, "", n, left...)
		e.wantGroups(round, nil, name(57), 3, name(63), name(73), name(83))
		e.wantGroups(round, nil, name(183), 3, name(193), name(3), name(13))
	}
}

// A job that commits late makes its group ready, whatever was claimed from it meanwhile.
func groupsLateCommit(e *env) {
	t := e.begin()
	t.enqueue(grouped("known", "late"), grouped("new", "late"))
	for range 40 {
		e.enqueue(grouped("known", "a"), grouped("known", "b"))
		e.ack(e.claimAs(driver.Claim{Group: "known", Jobs: 10})...)
	}
	e.wantGroups("not committed", nil, "", 10)
	t.Commit()
	e.wantGroups("committed", nil, "", 10, "known", "new")
	e.wantGroups("committed", []string{"known", "other"}, "", 10, "known")
	e.eventually("the late one is claimed", func() bool {
		claimed := e.claimAs(driver.Claim{Group: "known", Jobs: 10})
		e.ack(claimed...)
		return len(claimed) == 1
	})
	e.wantGroups("and done", nil, "", 10, "new")
}

func groupsNoneWhilePausedOrFull(e *env) {
	e.enqueue(grouped("a", "a0"), grouped("b", "b0"), grouped("b", "b1"))
	e.pause(true)
	e.wantGroups("paused", nil, "", 10)
	if all, err := e.Store.QueueGroups(e.ctx, queue, "", 10); err != nil || len(all) != 2 || all[1].Ready != 2 {
		e.Errorf("the groups of a queue that is paused are %+v, %v", all, err)
	}
	e.pause(false)
	e.wantGroups("resumed", nil, "", 10, "a", "b")
	e.set(penstock.QueueSettings{MaxRunning: new(1)})
	running := e.claimAs(driver.Claim{Group: "b", Jobs: 10})
	e.same(running, "b0")
	e.wantGroups("as many run as may", nil, "", 10)
	e.ack(running...)
	e.wantGroups("it has ended", nil, "", 10, "a", "b")
}

// groupStatus reads the groups without their ages, which it checks.
func (e *env) groupStatus(after string, most int) map[string]admin.GroupStatus {
	all := suite.Get(e.Store.QueueGroups(e.ctx, queue, after, most)).Must(e, "QueueGroups")
	found := map[string]admin.GroupStatus{}
	for i, g := range all {
		if i > 0 && all[i-1].Group >= g.Group {
			e.Errorf("QueueGroups returned %q before %q", all[i-1].Group, g.Group)
		}
		if g.OldestAge < 0 || g.OldestAge > suite.Deadline || g.Ready == 0 && g.OldestAge != 0 {
			e.Errorf("of the group %q %d jobs are ready, and the oldest is %s old", g.Group, g.Ready, g.OldestAge)
		}
		g.OldestAge = 0
		found[g.Group] = g
	}
	return found
}

func groupsCounts(e *env) {
	suite.Equal(e, len(e.groupStatus("", 10)), 0, "groups of an empty queue")
	e.deadLetter("x", grouped("dead", "d0"), grouped("dead", "d1"), grouped("a", "d2"))
	delayed := after(time.Hour, "later")
	delayed.Group = "later"
	e.enqueue(delayed, job("none0"), grouped("a", "a0"), grouped("a", "a1"), penstock.NewJob{Group: "a", Priority: -3, Payload: []byte("a2")}, grouped("b", "b0"), grouped("b", "b1"))
	e.same(e.claimAs(driver.Claim{Group: "b", Jobs: 2}), "b0", "b1")
	e.same(e.claimAs(driver.Claim{Group: "a", Jobs: 2}), "a2", "a0")
	e.ack(e.claim(1)...)
	e.enqueue(job("none1"), job("none2"))
	want := map[string]admin.GroupStatus{
		"": {Ready: 2}, "a": {Group: "a", Ready: 1, Running: 2, DeadLetters: 1}, "b": {Group: "b", Running: 2},
		"dead": {Group: "dead", DeadLetters: 2}, "later": {Group: "later", Delayed: 1},
	}
	got := e.groupStatus("", 10)
	suite.Equal(e, fmt.Sprint(got), fmt.Sprint(want), "groups")
	e.eventually("the oldest job has an age", func() bool {
		all := suite.Get(e.Store.QueueGroups(e.ctx, queue, "", 1)).Must(e, "QueueGroups")
		return len(all) == 1 && all[0].OldestAge > 0
	})
	e.MustBe(suite.Err(e.Store.QueueGroups(e.ctx, "none-such", "", 10)), penstock.ErrNoQueue, "QueueGroups of no queue")
}

// Of a key one job may run at a time: the others wait.
func groupsCountsOfKeys(e *env) {
	in := func(group, key, payload string) penstock.NewJob {
		return penstock.NewJob{Group: group, Key: key, Payload: []byte(payload)}
	}
	e.enqueue(in("a", "k", "k0"), in("a", "k", "k1"), in("a", "k", "k2"), in("a", "", "free"), in("b", "l", "l0"), in("b", "l", "l1"))
	want := map[string]admin.GroupStatus{"a": {Group: "a", Ready: 2, Waiting: 2}, "b": {Group: "b", Ready: 1, Waiting: 1}}
	suite.Equal(e, fmt.Sprint(e.groupStatus("", 10)), fmt.Sprint(want), "groups")
	e.same(e.claimAs(driver.Claim{Group: "b", Jobs: 10}), "l0")
	want["b"] = admin.GroupStatus{Group: "b", Running: 1, Waiting: 1}
	suite.Equal(e, fmt.Sprint(e.groupStatus("", 10)), fmt.Sprint(want), "groups while one runs")
}

func groupsPages(e *env) {
	e.enqueue(grouped("b", "x"), grouped("a", "x"), grouped("d", "x"))
	if got := e.groupStatus("", 2); len(got) != 2 || got["b"].Ready != 1 {
		e.Errorf("without a job of the empty group the first two are %v", got)
	}
	e.enqueue(job("x"))
	e.deadLetter("x", grouped("c", "x"))
	for _, page := range []struct {
		after string
		most  int
		want  []string
	}{
		{"", 2, []string{"", "a"}}, {"a", 2, []string{"b", "c"}}, {"aa", 10, []string{"b", "c", "d"}}, {"c", 2, []string{"d"}}, {"d", 2, nil},
	} {
		all := suite.Get(e.Store.QueueGroups(e.ctx, queue, page.after, page.most)).Must(e, "QueueGroups")
		var got []string
		for _, g := range all {
			got = append(got, g.Group)
		}
		suite.Equal(e, got, page.want, "up to %d groups after %q", page.most, page.after)
	}
}

// endless makes a handler that replaces each job that it has done by another one of the same group, and
// counts them.
func (e *env) endless(groups ...string) (h work.Handler, done func(group string) int) {
	var mu sync.Mutex
	count := map[string]int{}
	h = func(ctx context.Context, j penstock.Job) error {
		if slices.Contains(groups, j.Group) {
			if _, err := e.q.Enqueue(ctx, grouped(j.Group, "more")); err != nil {
				return err
			}
		}
		mu.Lock()
		defer mu.Unlock()
		count[j.Group]++
		return nil
	}
	return h, func(group string) int {
		mu.Lock()
		defer mu.Unlock()
		return count[group]
	}
}

// One group always has jobs; another is served all the same, in order of its key, and one that the worker
// was not given is left alone.
func groupsWorkTakesTurns(e *env) {
	many := make([]penstock.NewJob, 300) // more than a worker claims ahead
	for i := range many {
		many[i] = grouped("busy", "more")
	}
	e.enqueue(many...)
	h, done := e.endless("busy")
	log := newRunLog()
	stop := e.work(log.logged(h), work.Options{Groups: []string{"calm", "busy", "calm", "cold"}, Concurrency: 2})
	e.eventually("the busy group is served", func() bool { return done("busy") >= 5 })
	const n = 30
	for i := range n {
		e.enqueue(penstock.NewJob{Group: "calm", Key: "k", Payload: []byte(fmt.Sprint(i))}, grouped("other", "x"))
	}
	e.eventually("the calm group is served", func() bool { return done("calm") >= n })
	before := done("busy")
	e.eventually("the busy group goes on", func() bool { return done("busy") > before })
	e.Must(stop(), "Work")
	log.mu.Lock()
	defer log.mu.Unlock()
	for _, w := range log.wrong {
		e.Error(w)
	}
	if got := e.groupStatus("", 10); done("calm") != n || got["other"].Ready != n || got["calm"] != (admin.GroupStatus{}) {
		e.Errorf("%d jobs of the calm group were done, want %d; left are %+v", done("calm"), n, got)
	}
}

// More groups always have jobs than a worker looks for at once, and yet each is served, and one that appears later.
func groupsWorkServesAll(e *env) {
	var busy []string
	for i := range 40 {
		busy = append(busy, fmt.Sprintf("busy%02d", i))
		e.enqueue(grouped(busy[i], "more"), grouped(busy[i], "more"), grouped(busy[i], "more"))
	}
	e.pause(true)
	h, done := e.endless(busy...)
	stop := e.work(h, work.Options{AllGroups: true, Concurrency: 4})
	e.pause(false)
	for _, group := range busy {
		e.eventually("each group is served twice", func() bool { return done(group) >= 2 })
	}
	late := []string{"", "aaa", "busy20x", "zzz"}
	for _, group := range late {
		e.enqueue(grouped(group, "late"))
	}
	for _, group := range late {
		e.eventually("a group that appears later is served", func() bool { return done(group) == 1 })
	}
	e.Must(stop(), "Work")
}
