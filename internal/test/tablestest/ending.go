package tablestest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

// call ends or extends leases, and returns which were held.
type call struct {
	one     bool // it takes one lease
	last    bool // it is the job's last attempt
	becomes string
	do      func(ctx context.Context, q driver.Queue, leases []int64) (held []int64, err error)
}

var calls = map[string]call{
	"Ack": {becomes: "gone", do: func(ctx context.Context, q driver.Queue, leases []int64) ([]int64, error) {
		return q.Ack(ctx, leases...)
	}},
	"AckClaim": {becomes: "gone", do: func(ctx context.Context, q driver.Queue, leases []int64) ([]int64, error) {
		held, jobs, err := q.(driver.AckClaimer).AckClaim(ctx, leases, driver.Claim{Group: "others", Jobs: 1, Lease: time.Hour})
		if err == nil && (len(jobs) != 1 || jobs[0].Attempt != 1) {
			err = fmt.Errorf("claimed %+v, want a job that nobody had", jobs)
		}
		return held, err
	}},
	"Extend": {becomes: "leased", do: func(ctx context.Context, q driver.Queue, leases []int64) ([]int64, error) {
		return q.Extend(ctx, time.Hour, leases...)
	}},
	"Release": {becomes: "attempt 1", do: func(ctx context.Context, q driver.Queue, leases []int64) ([]int64, error) {
		return q.(driver.Releaser).Release(ctx, 0, leases...)
	}},
	"Retry": {one: true, becomes: "attempt 2", do: func(ctx context.Context, q driver.Queue, leases []int64) ([]int64, error) {
		return retry(ctx, q, leases, false)
	}},
	"LastRetry": {one: true, last: true, becomes: "dead", do: func(ctx context.Context, q driver.Queue, leases []int64) ([]int64, error) {
		return retry(ctx, q, leases, true)
	}},
	"DeadLetter": {one: true, becomes: "dead", do: func(ctx context.Context, q driver.Queue, leases []int64) ([]int64, error) {
		return single(leases, q.DeadLetter(ctx, leases[0], "broken"))
	}},
}

func retry(ctx context.Context, q driver.Queue, leases []int64, last bool) ([]int64, error) {
	dead, err := q.Retry(ctx, leases[0], 0, "broken")
	if err == nil && dead != last {
		err = fmt.Errorf("dead: %v, want %v", dead, last)
	}
	return single(leases, err)
}

// single is the answer of a call that has an error where others leave a lease out.
func single(leases []int64, err error) ([]int64, error) {
	if errors.Is(err, penstock.ErrLeaseLost) {
		return nil, nil
	}
	return leases, err
}

// A worker ends a job or extends its lease once, and learns the result, wherever its connection was lost.
func ending(f *fixture, c call, trip Trip, cut string) {
	r := &run{f, c, cut}
	r.known()
	r.held(trip)
	if cut != "late" && !trip.IfHeld {
		r.lost(trip)
	}
}

type run struct {
	*fixture
	call
	cut string
}

// claim enqueues jobs and claims them. Each call also finds one of another group.
func (r *run) claim(n int) (jobs []penstock.Job) {
	suite.Get(r.q.Enqueue(r.Context(), slices.Repeat([]penstock.NewJob{{}}, n)...)).Must(r, "Enqueue")
	suite.Get(r.q.Enqueue(r.Context(), penstock.NewJob{Group: "others"})).Must(r, "Enqueue")
	jobs = suite.Get(r.q.Claim(r.Context(), driver.Claim{Jobs: n, Lease: time.Hour})).Must(r, "Claim")
	suite.MustEqual(r, len(jobs), n, "claimed jobs")
	return jobs
}

// calls makes the call, which loses a round trip if there is one to lose.
func (r *run) calls(trip *Trip, jobs ...penstock.Job) (held []int64) {
	looked := r.looked()
	if trip != nil {
		r.lose(*trip, r.cut, "")
		looked++
	}
	var leases []int64
	for _, j := range jobs {
		leases = append(leases, j.Lease)
	}
	if r.last {
		r.OK(r.Direct.SetQueue(r.Context(), "jobs", penstock.QueueSettings{MaxAttempts: new(1)}))
	}
	held = suite.Get(r.do(r.Context(), r.q, leases)).Must(r, "the call")
	r.OK(r.Direct.SetQueue(r.Context(), "jobs", penstock.QueueSettings{MaxAttempts: new(25)}))
	suite.Equal(r, r.looked(), looked, "how often it looked")
	return held
}

// known has the driver know the statements, and nothing left of the jobs.
func (r *run) known() {
	r.calls(nil, r.claim(1)...)
	r.cancelAll()
}

func (r *run) cancelAll() {
	suite.Get(r.Direct.DiscardDeadJobs(r.Context(), admin.DeadJobQuery{Queue: "jobs"})).Must(r, "DiscardDeadJobs")
	var ids []int64
	for id := range int64(100) { // each has a separate queue, whose ids are below
		ids = append(ids, id)
	}
	suite.Get(r.Direct.CancelJobs(r.Context(), "jobs", ids...)).Must(r, "CancelJobs")
}

// gone is a job whose lease has ended, and which another worker has done.
func (r *run) gone() penstock.Job {
	j := r.claim(1)[0]
	other := r.Direct.DriverQueue("jobs")
	suite.Get(other.Extend(r.Context(), time.Microsecond, j.Lease)).Must(r, "Extend")
	for {
		r.OK(other.Maintain(r.Context()))
		again := suite.Get(other.Claim(r.Context(), driver.Claim{Jobs: 1, Lease: time.Hour})).Must(r, "Claim")
		for _, a := range again {
			suite.MustEqual(r, a.ID, j.ID, "the job of %+v", a)
			suite.Get(other.Ack(r.Context(), a.Lease)).Must(r, "Ack")
			return j
		}
	}
}

// held: of those that are held and one that is not any more it is known which.
func (r *run) held(trip Trip) {
	gone := r.gone()
	jobs := r.claim(2)
	if r.one {
		jobs = jobs[:1]
	}
	all := jobs
	if !r.one {
		all = append([]penstock.Job{gone}, jobs...)
	}
	held := r.calls(&trip, all...)
	r.arrive(r.cut)
	var want []int64
	for _, j := range jobs {
		want = append(want, j.Lease)
	}
	slices.Sort(want)
	slices.Sort(held)
	suite.Equal(r, held, want, "held")
	for _, j := range jobs {
		suite.Equal(r, r.became(j), r.becomes, "what a job became")
	}
}

// became is where a job is.
func (r *run) became(j penstock.Job) string {
	q := r.Direct.DriverQueue("jobs")
	held := suite.Get(q.Extend(r.Context(), time.Hour, j.Lease)).Must(r, "Extend")
	dead := suite.Get(r.Direct.DeadJobs(r.Context(), admin.DeadJobQuery{Queue: "jobs", IDs: []int64{j.ID}})).Must(r, "DeadJobs")
	var found []string
	if len(held) > 0 {
		found = append(found, "leased")
	}
	for _, d := range dead {
		found = append(found, "dead")
		suite.Equal(r, len(d.Failures), 1, "failures of a dead letter")
	}
	again := suite.Get(q.Claim(r.Context(), driver.Claim{Jobs: 100, Lease: time.Hour})).Must(r, "Claim")
	var others []int64
	for _, a := range again {
		if a.ID == j.ID {
			found = append(found, fmt.Sprint("attempt ", a.Attempt))
		} else {
			others = append(others, a.Lease)
		}
	}
	suite.Get(q.(driver.Releaser).Release(r.Context(), 0, others...)).Must(r, "Release")
	if len(found) == 0 {
		return "gone"
	}
	return strings.Join(found, ", ")
}

// lost: what is not held any more is not taken for ended by the attempt that was lost.
func (r *run) lost(trip Trip) {
	gone, cancelled := r.gone(), r.claim(1)[0]
	if n, err := r.Direct.CancelJobs(r.Context(), "jobs", cancelled.ID); err != nil || n != 1 {
		r.Fatalf("%d were cancelled, %v", n, err)
	}
	for what, j := range map[string]penstock.Job{"its lease has ended": gone, "it was cancelled": cancelled} {
		if held := r.calls(&trip, j); len(held) > 0 {
			r.Errorf("a job is taken for held, but %s", what)
		}
	}
}
