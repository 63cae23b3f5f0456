package queuetest

import (
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

var deadCases = named("DeadJob", deadJobDeadLetterListDiscard, deadJobRetry, deadJobRetryNow, deadJobQuery,
	deadJobNothingChosen, deadJobWrittenByHand)

// deadLetter enqueues jobs and makes dead letters of them, one after another.
func (e *env) deadLetter(reason string, jobs ...penstock.NewJob) []int64 {
	var ids []int64
	for _, j := range jobs {
		ids = append(ids, e.enqueue(j)...)
		claimed := e.claimAs(driver.Claim{Group: j.Group, Jobs: 1})
		e.same(claimed, string(j.Payload))
		e.Must(e.q.DeadLetter(e.ctx, claimed[0].Lease, reason), "DeadLetter")
	}
	return ids
}

func deadNames(dead []admin.DeadJob) []string {
	var all []string
	for _, d := range dead {
		all = append(all, string(d.Job.Payload))
	}
	return all
}

func deadJobDeadLetterListDiscard(e *env) {
	before := time.Now().Add(-time.Hour)
	ids := e.deadLetter("no good", penstock.NewJob{Key: "k", Group: "g", Priority: -4, Headers: map[string]string{"h": "1"}, Payload: []byte("a")}, job("b"))
	dead := e.deadJobs(admin.DeadJobQuery{})
	suite.MustEqual(e, deadNames(dead), []string{"a", "b"}, "dead letters")
	d := dead[0]
	if j := d.Job; j.ID != ids[0] || j.Key != "k" || j.Group != "g" || j.Priority != -4 || j.Headers["h"] != "1" || j.Attempt != 1 || j.CreatedAt.IsZero() {
		e.Errorf("the dead letter is %+v, want what was enqueued, at attempt 1", j)
	}
	if d.Err() != "no good" || d.At.Before(before) || len(d.Failures) != 1 || d.Failures[0].Attempt != 1 {
		e.Errorf("the dead letter says %+v at %s, want one failure: no good", d.Failures, d.At)
	}
	e.wantCounts(counts{dead: 2})
	e.discardDead(1, admin.DeadJobQuery{IDs: ids[:1]})
	suite.Equal(e, deadNames(e.deadJobs(admin.DeadJobQuery{})), []string{"b"}, "dead letters after the discarding")
	e.want()
}

// By its id a job that failed and waits is tried again at once, with its history, and one that its producer delayed runs now. One that runs does not.
func deadJobRetryNow(e *env) {
	ids := e.enqueue(after(time.Hour, "later"), keyed("k", "a"), keyed("k", "behind"), job("b"), job("c"))
	claimed := e.collect("a", "b", "c")
	e.retry(claimed[0], time.Hour, "one")
	e.retry(claimed[1], time.Hour, "two")
	e.same(e.claim(9))
	e.Must(e.Store.CreateQueue(e.ctx, "other", penstock.FIFO), "CreateQueue")
	if n, err := e.Store.RetryDeadJobs(e.ctx, admin.DeadJobQuery{Queue: "other", IDs: ids}); n != 0 || err != nil {
		e.Errorf("RetryDeadJobs of a queue with the ids of another's jobs: got %d, %v, want 0", n, err)
	}
	for _, want := range []int{2, 0} { // the second time they wait no more
		e.retryDead(want, admin.DeadJobQuery{IDs: append(slices.Clone(ids[:3]), ids[4], -1)})
	}
	e.maintain()
	attempts := map[int64]int{}
	for _, j := range e.collect("a", "later") {
		attempts[j.ID] = j.Attempt
		e.ack(j)
	}
	suite.Equal(e, attempts, map[int64]int{ids[0]: 1, ids[1]: 2}, "attempts by job")
	e.ack(claimed[2])
	e.ack(e.collect("behind")...)
	for _, of := range [][]int64{nil, ids} {
		e.retryDead(0, admin.DeadJobQuery{IDs: of, Error: "two"})
	}
	e.wantCounts(counts{delayed: 1})
}

// A dead letter that is retried goes to the end, with one attempt to spend.
func deadJobRetry(e *env) {
	e.set(penstock.QueueSettings{MaxAttempts: new(2)})
	ids := e.enqueue(ofKind("k", "a"))
	e.retry(e.collect("a")[0], 0, "one")
	if dead, err := e.q.Retry(e.ctx, e.collect("a")[0].Lease, 0, "two"); !dead || err != nil {
		e.Fatalf("Retry of the last attempt: got %v, %v, want a dead letter", dead, err)
	}
	e.enqueue(job("b"))
	e.retryDead(1, admin.DeadJobQuery{})
	suite.MustEqual(e, len(e.deadJobs(admin.DeadJobQuery{})), 0, "dead letters that RetryDeadJobs left")
	var a penstock.Job
	for _, j := range e.collect("a", "b") {
		if string(j.Payload) == "a" {
			a = j
		}
	}
	if a.ID != ids[0] || a.Attempt != 3 || a.Kind() != "k" {
		e.Errorf("the job that was sent back is %+v, want id %d, its kind and attempt 3", a, ids[0])
	}
	dead, err := e.q.Retry(e.ctx, a.Lease, 0, "three")
	if err != nil || !dead {
		e.Fatalf("Retry after the one more attempt: got %v, %v, want a dead letter", dead, err)
	}
	d := e.deadJobs(admin.DeadJobQuery{})[0]
	var reasons []string
	for _, f := range d.Failures {
		reasons = append(reasons, f.Err)
	}
	suite.Equal(e, reasons, []string{"one", "two", "three"}, "failures")
	suite.Equal(e, d.Job.Kind(), "k", "kind of the dead letter")
}

func deadJobQuery(e *env) {
	ids := e.deadLetter("timed out", keyed("k1", "a"), penstock.NewJob{Group: "g", Kind: "welcome", Payload: []byte("b")})
	var between time.Time
	e.eventually("time passes", func() bool {
		between = e.deadJobs(admin.DeadJobQuery{})[1].At
		return time.Since(between) > 5*time.Millisecond
	})
	ids = append(ids, e.deadLetter("Refused 100%_", keyed("k1", "c"), keyed("k2", "d"))...)
	for i, c := range []struct {
		q    admin.DeadJobQuery
		want []string
	}{
		{admin.DeadJobQuery{}, []string{"a", "b", "c", "d"}},
		{admin.DeadJobQuery{IDs: []int64{ids[3], ids[0], -5}}, []string{"a", "d"}},
		{admin.DeadJobQuery{IDs: []int64{-5}}, nil},
		{admin.DeadJobQuery{Key: "k1"}, []string{"a", "c"}},
		{admin.DeadJobQuery{Kind: "welcome"}, []string{"b"}},
		{admin.DeadJobQuery{Kind: "k1"}, nil},
		{admin.DeadJobQuery{Group: "g"}, []string{"b"}},
		{admin.DeadJobQuery{Error: "timed"}, []string{"a", "b"}},
		{admin.DeadJobQuery{Error: "Timed"}, nil},
		{admin.DeadJobQuery{Error: "0%_"}, []string{"c", "d"}},
		{admin.DeadJobQuery{Error: "1%0"}, nil},
		{admin.DeadJobQuery{DiedBefore: between.Add(time.Millisecond)}, []string{"a", "b"}},
		{admin.DeadJobQuery{DiedAfter: between.Add(time.Millisecond)}, []string{"c", "d"}},
		{admin.DeadJobQuery{AfterID: ids[1]}, []string{"c", "d"}},
		{admin.DeadJobQuery{Limit: 3}, []string{"a", "b", "c"}},
		{admin.DeadJobQuery{Key: "k1", AfterID: ids[0], Limit: 3}, []string{"c"}},
	} {
		suite.Equal(e, deadNames(e.deadJobs(c.q)), c.want, "query %d", i)
	}
	e.retryDead(1, admin.DeadJobQuery{Key: "k1", Limit: 1})
	e.ack(e.collect("a")...)
	e.discardDead(2, admin.DeadJobQuery{Error: "Refused"})
	suite.Equal(e, deadNames(e.deadJobs(admin.DeadJobQuery{})), []string{"b"}, "dead letters")
}

func deadJobNothingChosen(e *env) {
	e.Must(e.Store.CreateQueue(e.ctx, "other", penstock.FIFO), "CreateQueue")
	e.deadLetter("x", job("a"))
	for what, f := range map[string]func() (int, error){
		"RetryDeadJobs":   func() (int, error) { return e.Store.RetryDeadJobs(e.ctx, admin.DeadJobQuery{Queue: "other"}) },
		"DiscardDeadJobs": func() (int, error) { return e.Store.DiscardDeadJobs(e.ctx, admin.DeadJobQuery{Queue: "other"}) },
	} {
		if n, err := f(); n != 0 || err != nil {
			e.Errorf("%s in a queue without dead letters: got %d, %v", what, n, err)
		}
	}
	suite.Equal(e, len(e.deadJobs(admin.DeadJobQuery{})), 1, "dead letters of the queue %s", queue)
}

// A dead letter that was written by hand, and cannot be parsed, says so. It hides no other, and can be retried, though no number is left for its
// next attempt. A new failure of it is kept.
func deadJobWrittenByHand(e *env) {
	if e.Spoil == nil {
		e.Skip("nobody can write into this store by hand")
	}
	ids := e.deadLetter("no", jobs("d", 3)...)
	e.Spoil(e, ids[1])
	dead := e.deadJobs(admin.DeadJobQuery{})
	if !slices.Equal(deadNames(dead), []string{"d0", "d1", "d2"}) || dead[0].Err() != "no" || !strings.Contains(dead[1].Err(), "cannot be read") {
		e.Fatalf("the dead letters are %+v, want three, of which the second cannot be read", dead)
	}
	suite.Equal(e, len(e.deadJobs(admin.DeadJobQuery{IDs: ids[1:2]})), 1, "shown, though it cannot be read")
	if found := e.deadJobs(admin.DeadJobQuery{Error: "no"}); len(found) < 2 {
		e.Errorf("found by their error are %+v, want d0 and d2", found)
	}
	e.retryDead(3, admin.DeadJobQuery{})
	claimed := e.collect("d0", "d1", "d2")
	for _, j := range claimed {
		e.Must(e.q.DeadLetter(e.ctx, j.Lease, "again"), "DeadLetter")
	}
	for _, d := range e.deadJobs(admin.DeadJobQuery{}) {
		suite.Equal(e, d.Err(), "again", "what failed last")
	}
}
