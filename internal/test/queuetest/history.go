package queuetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testseed"
)

var historyCases = named("History", historyKeptOrRefused, historyLastOfAClaimFirst, historyWhateverHappens)

// keepDone has the queue keep history, and is false where the store keeps none: then it says so.
func (e *env) keepDone() bool {
	day := 24 * time.Hour
	_, keeps := e.Store.(driver.HistoryStore)
	err := e.Store.SetQueue(e.ctx, queue, penstock.QueueSettings{KeepDone: &day})
	if keeps {
		e.Must(err, "SetQueue")
		return true
	}
	if field, ok := errors.AsType[*penstock.FieldError](err); !ok || field.Hint == "" {
		e.Errorf("a store that keeps no history took KeepDone, or said %v", err)
	}
	return false
}

// doneJobs reads all that is kept, in pages of the given size; each job comes once.
func (e *env) doneJobs(limit int, ids ...int64) map[int64]admin.DoneJob {
	return e.doneOf(admin.DoneJobQuery{Queue: queue, IDs: ids, Limit: limit})
}

func (e *env) doneOf(q admin.DoneJobQuery) map[int64]admin.DoneJob {
	all := map[int64]admin.DoneJob{}
	for {
		page, next, err := e.Store.(driver.HistoryStore).DoneJobs(e.ctx, q)
		e.Must(err, "DoneJobs")
		if len(page) > q.Limit {
			e.Fatalf("a page of %d has %d", q.Limit, len(page))
		}
		for _, j := range page {
			if _, twice := all[j.ID]; twice {
				e.Fatalf("job %d came twice", j.ID)
			}
			all[j.ID] = j
		}
		if q.After = next; next == "" {
			return all
		}
	}
}

// Of jobs that were claimed together the last one ends first, and then all others with one call: each is kept once.
func historyLastOfAClaimFirst(e *env) {
	if !e.keepDone() {
		return
	}
	const together = 9
	for range together {
		e.enqueue(job("x"))
	}
	jobs := e.ackClaim(nil, driver.Claim{Jobs: together})
	e.ack(jobs[together-1])
	e.ack(jobs[:together-1]...)
	suite.Equal(e, len(e.doneJobs(100)), together, "kept jobs")
}

func historyKeptOrRefused(e *env) {
	if !e.keepDone() {
		return
	}
	e.enqueue(penstock.NewJob{Key: "k", Priority: 2, Payload: []byte("a")}, job("b"))
	claimed := e.claimAs(driver.Claim{Jobs: 2, Worker: "w"})
	report := e.q.(driver.Reporter).Report
	e.Must(report(e.ctx, claimed[0].Lease, []byte(`{"n": 1}`)), "Report")
	e.Must(report(e.ctx, claimed[0].Lease, []byte(`{"n": 2}`)), "Report")
	e.ack(claimed[0])
	kept := e.doneJobs(10)
	j, ok := kept[claimed[0].ID]
	if !ok || len(kept) != 1 || j.Key != claimed[0].Key || j.Priority != claimed[0].Priority || j.Attempt != 1 || j.Worker != "w" || j.ClaimedAt.Before(j.CreatedAt) || j.FinishedAt.Before(j.ClaimedAt) || !sameJSON(j.Report, `{"n": 2}`) {
		e.Errorf("%+v is kept as %+v with %s", claimed[0], kept, j.Report)
	}
	none := time.Duration(0)
	e.set(penstock.QueueSettings{KeepDone: &none})
	e.ack(claimed[1])
	e.maintain()
	if kept := e.doneJobs(10); len(kept) > 1 || kept[claimed[1].ID].ID != 0 {
		e.Errorf("what was not to be kept is: %v", kept)
	}
}

func sameJSON(a json.RawMessage, b string) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal([]byte(b), &y) == nil && fmt.Sprint(x) == fmt.Sprint(y)
}

// historyWhateverHappens does to jobs whatever can be done to them: what was acked is kept, once, with the attempt that succeeded and
// what failed before, and nothing else is.
func historyWhateverHappens(e *env) {
	if !e.keepDone() {
		return
	}
	random := e.Random(0)
	type want struct {
		attempt, failures int
		report, kind      string
	}
	done, failures := map[int64]want{}, map[int64]int{}
	kinds := []string{"", "welcome", "digest"}
	var held []penstock.Job
	reports := map[int64]string{}
	for range testseed.Steps(400) {
		some := held
		if n := len(held); n > 0 {
			random.Shuffle(n, func(i, k int) { held[i], held[k] = held[k], held[i] })
			some = held[:1+random.IntN(n)]
		}
		took := true
		switch what := random.IntN(12); {
		case what < 2:
			new := make([]penstock.NewJob, 1+random.IntN(30))
			for i := range new {
				new[i] = penstock.NewJob{Payload: []byte("x"), Kind: kinds[random.IntN(len(kinds))]}
				if random.IntN(4) == 0 {
					new[i].Key = fmt.Sprint("k", random.IntN(3))
				}
			}
			e.enqueue(new...)
			took = false
		case what < 5:
			held = append(held, e.claimAs(driver.Claim{Jobs: 1 + random.IntN(40), Worker: "w"})...)
			took = false
		case len(some) == 0:
			took = false
		case what < 8:
			e.ack(some...)
			for _, j := range some {
				done[j.ID] = want{j.Attempt, failures[j.ID], reports[j.Lease], j.Kind()}
			}
		case what == 8:
			some = some[:1]
			suite.Get(e.q.Retry(e.ctx, some[0].Lease, 0, "no")).Must(e, "Retry")
			failures[some[0].ID]++
		case what == 9:
			some = some[:1]
			e.Must(e.q.DeadLetter(e.ctx, some[0].Lease, "never"), "DeadLetter")
			if failures[some[0].ID]++; random.IntN(2) == 0 {
				suite.Get(e.Store.RetryDeadJobs(e.ctx, admin.DeadJobQuery{Queue: queue, IDs: []int64{some[0].ID}})).Must(e, "RetryDeadJobs")
			}
		case what == 10:
			some = some[:1]
			e.cancel(1, some[0].ID)
		default:
			some = some[:1]
			text := fmt.Sprintf(`{"n":%d}`, random.IntN(100))
			e.Must(e.q.(driver.Reporter).Report(e.ctx, some[0].Lease, []byte(text)), "Report")
			reports[some[0].Lease] = text
			took = false
		}
		if took {
			held = held[len(some):]
		}
	}
	kept := e.doneJobs(1 + random.IntN(50))
	for id, w := range done {
		j, ok := kept[id]
		if !ok || j.Kind != w.kind || j.Attempt != w.attempt || len(j.Failures) != min(w.failures, penstock.MaxFailures) || (w.report == "") != (len(j.Report) == 0) || w.report != "" && !sameJSON(j.Report, w.report) {
			e.Errorf("job %d is kept as %+v with %s, want %+v", id, j, j.Report, w)
		}
	}
	suite.Equal(e, len(kept), len(done), "jobs that are kept")
	for _, kind := range kinds[1:] {
		some := e.doneOf(admin.DoneJobQuery{Queue: queue, Kind: kind, Limit: 1 + random.IntN(5)})
		for id, j := range kept {
			if _, is := some[id]; is != (j.Kind == kind) {
				e.Errorf("job %d of kind %q, among those of kind %q: %t", id, j.Kind, kind, is)
			}
		}
	}
}
