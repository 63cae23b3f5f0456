package queuetest

import (
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

var listCases = append(named("List", listStates, listGivenBack, listWaitsForBarriers, listRefuses),
	testCase{Name: "ReadyLIFO", Run: listReady, Other: true}, testCase{Name: "Ready", Run: listReady})

// listed are the numbers of the jobs that a query chooses, in order, read in pages of that size.
func (e *env) listed(q admin.JobQuery, size int) (ids []int64, jobs []admin.Found) {
	for q.Queue, q.Limit = queue, size; ; {
		page := suite.Get(e.Store.ListJobs(e.ctx, q)).Must(e, "ListJobs")
		jobs = append(jobs, page.Jobs...)
		if q.After = page.Next; q.After == "" {
			break
		}
	}
	for i := range jobs {
		ids = append(ids, jobs[i].Message.Seq)
	}
	return ids, jobs
}

// wantListed reads the list in pages of several sizes.
func (e *env) wantListed(q admin.JobQuery, want ...int64) (jobs []admin.Found) {
	for _, size := range []int{1, 2, 100} {
		var got []int64
		if got, jobs = e.listed(q, size); !slices.Equal(got, want) {
			e.Errorf("in pages of %d the jobs of %+v are %d, want %d", size, q, got, want)
		}
	}
	return jobs
}

func listStates(e *env) {
	began := time.Now()
	ids := e.enqueue(penstock.NewJob{Kind: "mail", Payload: []byte("again")}, keyed("ann", "first"), keyed("ann", "second"), keyed("ann", "third"),
		penstock.NewJob{Kind: "mail", NotBefore: began.Add(time.Hour)}, penstock.NewJob{Group: "eu", NotBefore: began.Add(2 * time.Hour)})
	again, first, second, third, soon, late := ids[0], ids[1], ids[2], ids[3], ids[4], ids[5]
	claimed := e.claimAs(driver.Claim{Jobs: 1, Lease: suite.LongLease, Worker: "w1"})
	e.same(claimed, "again")
	e.retry(claimed[0], 3*time.Hour, "no route\nto host")
	e.same(e.claimAs(driver.Claim{Jobs: 1, Lease: suite.LongLease, Worker: "w2"}), "first")
	e.same(e.claim(10)) // a claim looks at the others of the key

	delayed := e.wantListed(admin.JobQuery{State: "delayed"}, soon, late, again)
	if len(delayed) == 3 {
		w := delayed[2].Where[0]
		if w.State != "delayed" || w.Attempts != 1 || penstock.LastError(w.Failures) != "no route\nto host" || !w.Until.After(delayed[1].Where[0].Until) || w.Worker != "" {
			e.Errorf("the job that failed is listed as %+v", delayed[2])
		}
		if m := delayed[0].Message; m.Headers[penstock.HeaderKind] != "mail" || m.ID != fmt.Sprint(soon) || m.CreatedAt.IsZero() || delayed[0].Where[0].Attempts != 0 || len(m.Payload) > 0 {
			e.Errorf("the job that has not begun is listed as %+v", delayed[0])
		}
		suite.Equal(e, delayed[1].Group, "eu", "group of a delayed job")
		mid := delayed[0].Message.CreatedAt
		e.wantListed(admin.JobQuery{State: "delayed", CreatedBefore: mid.Add(-time.Minute)})
		e.wantListed(admin.JobQuery{State: "delayed", CreatedAfter: mid.Add(-time.Minute), CreatedBefore: mid.Add(time.Minute)}, soon, late, again)
		e.wantListed(admin.JobQuery{State: "delayed", CreatedAfter: mid.Add(time.Minute)})
	}
	e.wantListed(admin.JobQuery{State: "delayed", Kind: "mail"}, soon, again)
	e.wantListed(admin.JobQuery{State: "delayed", Group: "eu"}, late)
	e.wantListed(admin.JobQuery{State: "delayed", Group: "eu", Kind: "mail"})

	running := e.wantListed(admin.JobQuery{State: "running", Key: "ann"}, first)
	if len(running) == 1 {
		if w := running[0].Where[0]; w.State != "running" || w.Worker != "w2" || w.Attempts != 1 || w.Until.IsZero() || running[0].Message.Key != "ann" {
			e.Errorf("the running job is listed as %+v", running[0])
		}
	}
	waiting := e.wantListed(admin.JobQuery{State: "waiting"}, second, third)
	if len(waiting) == 2 && waiting[0].Where[0].State != "behind its key" {
		e.Errorf("the waiting job is listed as %+v", waiting[0])
	}
	e.wantListed(admin.JobQuery{State: "waiting", Newest: true}, third, second)
	e.wantListed(admin.JobQuery{State: "delayed", Newest: true, Key: "ann"})
	e.wantListed(admin.JobQuery{State: "ready"})
}

// A job that was given back for a while has had no attempt.
func listGivenBack(e *env) {
	id := e.enqueue(job("a"))[0]
	e.release(time.Hour, e.claim(1)...)
	if jobs := e.wantListed(admin.JobQuery{State: "delayed"}, id); len(jobs) == 1 && jobs[0].Where[0].Attempts != 0 {
		e.Errorf("a job that was given back is listed as %+v, want no attempt", jobs[0])
	}
}

// The ready jobs of a group are listed as they run, one whose lease has ended among them.
func listReady(e *env) {
	low, group := penstock.NewJob{Priority: 3, Payload: []byte("low")}, penstock.NewJob{Group: "eu", Payload: []byte("eu")}
	ids := e.enqueue(low, job("a"), job("b"), group, job("c"))
	e.wantListed(admin.JobQuery{State: "ready", Group: "eu"}, ids[3])
	e.wantListed(admin.JobQuery{State: "ready", Newest: true}, ids[4], ids[2], ids[1], ids[0])
	want := []int64{ids[1], ids[2], ids[4], ids[0]}
	if e.lifo() {
		want = []int64{ids[4], ids[2], ids[1], ids[0]}
	}
	e.wantListed(admin.JobQuery{State: "ready"}, want...)
	var ran []int64
	for _, j := range e.claim(10) {
		ran = append(ran, j.ID)
	}
	suite.Equal(e, ran, want, "claimed, of those listed")
	if len(e.wantListed(admin.JobQuery{State: "ready"})) > 0 {
		e.Error("claimed jobs are listed as ready")
	}
}

func listWaitsForBarriers(e *env) {
	if !e.features.Barriers {
		e.Skip("the store has no barriers")
	}
	b := e.barrier()
	ids := e.enqueue(penstock.NewJob{WaitsFor: []int64{b}}, penstock.NewJob{Holds: b})
	if jobs := e.wantListed(admin.JobQuery{State: "waiting"}, ids[0]); len(jobs) == 1 && jobs[0].Where[0].State != "waiting for barriers" {
		e.Errorf("a job that waits for a barrier is listed as %+v", jobs[0])
	}
	e.wantListed(admin.JobQuery{State: "delayed"})
}

func listRefuses(e *env) {
	for _, q := range []admin.JobQuery{{State: "dead", Limit: 1}, {State: "ready"}, {State: "ready", Limit: 1, After: "x"}} {
		q.Queue = queue
		if _, err := e.Store.ListJobs(e.ctx, q); !errors.As(err, new(*penstock.FieldError)) {
			e.Errorf("ListJobs of %+v: got %v, want a field's error", q, err)
		}
	}
	if _, err := e.Store.ListJobs(e.ctx, admin.JobQuery{Queue: "none", State: "ready", Limit: 1}); !errors.Is(err, penstock.ErrNoQueue) || !strings.Contains(err.Error(), "none") {
		e.Errorf("ListJobs of a queue that is not there: got %v, want %v", err, penstock.ErrNoQueue)
	}
}
