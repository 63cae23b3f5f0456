package queuetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/work"
)

var reportCases = named("Report", reportComesWithTheNextAttempt, reportOfOneAmongMany, reportStepsAddUp,
	reportRefused, reportStoreWithoutReports, reportLateOneIsLost, reportStepsRunOnce, reportStepTakesEffectOnce)

// reports returns the queue's Reporter. A store without one skips the test: clients refuse as well.
func (e *env) reports() driver.Reporter {
	r, ok := e.q.(driver.Reporter)
	if !ok {
		e.Skip("the store keeps no reports")
	}
	return r
}

func (e *env) report(j penstock.Job, text string) {
	e.Must(e.reports().Report(e.ctx, j.Lease, []byte(text)), "Report")
}

func (e *env) reported(what string, j penstock.Job, want string) {
	if want == "" && j.Report != nil || want != "" && !sameJSON(j.Report, want) {
		e.Errorf("%s: the job of %s comes in attempt %d with the report %s, want %s", what, j.Payload, j.Attempt, j.Report, want)
	}
	if j.Headers["h"] != "1" || len(j.Headers) != 1 {
		e.Errorf("%s: the job has the headers %v", what, j.Headers)
	}
}

// reportComesWithTheNextAttempt: whatever ends an attempt but an ack, the next one has the report, also if the attempt in between reported nothing.
func reportComesWithTheNextAttempt(e *env) {
	e.reports()
	ends := []struct {
		name string
		end  func(penstock.Job)
	}{
		{"a retry at once", func(j penstock.Job) { e.retry(j, 0, "x") }},
		{"a retry after a pause", func(j penstock.Job) { e.retry(j, time.Millisecond, "x") }},
		{"the end of the lease", func(j penstock.Job) { e.expire(j) }},
		{"a dead letter that is tried again", func(j penstock.Job) {
			e.Must(e.q.DeadLetter(e.ctx, j.Lease, "x"), "DeadLetter")
			dead := e.deadJobs(admin.DeadJobQuery{IDs: []int64{j.ID}})
			if len(dead) != 1 || (dead[0].Job.Report == nil) != (j.Report == nil) && dead[0].Job.Report == nil || dead[0].Job.Headers["h"] != "1" || len(dead[0].Job.Headers) != 1 {
				e.Errorf("the dead letter is %+v, want the report and the headers of its job", dead)
			}
			suite.Get(e.Store.RetryDeadJobs(e.ctx, admin.DeadJobQuery{Queue: queue, IDs: []int64{j.ID}})).Must(e, "RetryDeadJobs")
		}},
		{"a release at once", func(j penstock.Job) { e.release(0, j) }},
		{"a release for a while", func(j penstock.Job) { e.release(time.Millisecond, j) }},
	}
	for _, key := range []string{"", "k"} {
		for i, end := range ends {
			name := fmt.Sprintf("%s %d", key, i)
			e.enqueue(penstock.NewJob{Payload: []byte(name), Key: key, Headers: map[string]string{"h": "1"}})
			j := e.collect(name)[0]
			e.reported(end.name, j, "")
			e.report(j, `{"rows": 1}`)
			e.report(j, `{"rows": 2}`)
			end.end(j)
			j = e.collect(name)[0]
			e.reported(end.name, j, `{"rows": 2}`)
			end.end(j)
			j = e.collect(name)[0]
			e.reported(end.name+", and another", j, `{"rows": 2}`)
			e.report(j, `"done"`)
			end.end(j)
			j = e.collect(name)[0]
			e.reported(end.name+", and a new report", j, `"done"`)
			e.ack(j)
		}
	}
	e.want()
}

// reportOfOneAmongMany: of jobs that were claimed together, each has its own.
func reportOfOneAmongMany(e *env) {
	e.reports()
	const n = 20
	all := jobs("j", n)
	for i := range all {
		all[i].Headers = map[string]string{"h": "1"}
	}
	e.enqueue(all...)
	claimed := e.ackClaim(nil, driver.Claim{Jobs: n})
	suite.MustEqual(e, len(claimed), n, "jobs claimed together")
	for i, j := range claimed {
		if i%3 == 0 {
			e.report(j, fmt.Sprintf(`{"of": "%s"}`, j.Payload))
		}
	}
	for i, j := range claimed {
		if i%2 == 0 {
			e.retry(j, 0, "x")
		} else {
			e.expire(j)
		}
	}
	again := e.collect(names(claimed)...)
	for _, j := range again {
		want := ""
		if i := slices.IndexFunc(claimed, func(c penstock.Job) bool { return c.ID == j.ID }); i%3 == 0 {
			want = fmt.Sprintf(`{"of": "%s"}`, j.Payload)
		}
		e.reported("claimed together", j, want)
	}
	e.ack(again...)
}

const (
	stepA  = `{"penstock-steps": {"a": 1}}`
	stepB  = `{"penstock-steps": {"b": null}, "rows": 3}`
	bothAB = `"penstock-steps": {"a": 1, "b": null}`
)

// reportStepsAddUp: a step adds to what was reported before, also by an earlier attempt, and a report replaces all but the steps.
func reportStepsAddUp(e *env) {
	r := e.reports()
	e.enqueue(penstock.NewJob{Payload: []byte("x"), Headers: map[string]string{"h": "1"}})
	next := func(what string, j penstock.Job, want string) penstock.Job {
		e.retry(j, 0, "x")
		j = e.collect("x")[0]
		e.reported(what, j, want)
		return j
	}
	j := e.collect("x")[0]
	e.report(j, `5`)
	e.report(j, stepA)
	j = next("a step in place of a number", j, stepA)
	e.report(j, stepB)
	j = next("a step in another attempt", j, `{"rows": 3, `+bothAB+`}`)
	e.Fails(r.Report(e.ctx, j.Lease, []byte(stepA)), "a second report of a step")
	e.report(j, `{"cols": 4}`)
	j = next("a report behind steps", j, `{"cols": 4, `+bothAB+`}`)
	for _, bad := range []string{`5`, `"x"`, `[1]`, `null`, `{"penstock-steps": 5}`, `{"penstock-steps": null}`,
		`{"penstock-steps": {"c": "` + strings.Repeat("c", penstock.MaxReportBytes-50) + `"}}`} {
		e.Fails(r.Report(e.ctx, j.Lease, []byte(bad)), "behind steps, the report %.50s", bad)
	}
	j = next("refused reports", j, `{"cols": 4, `+bothAB+`}`)
	e.ack(j)
}

func reportRefused(e *env) {
	r := e.reports()
	e.enqueue(penstock.NewJob{Payload: []byte("x"), Headers: map[string]string{"h": "1"}})
	j := e.collect("x")[0]
	e.report(j, `{"n": 1}`)
	for _, bad := range [][]byte{nil, []byte("no JSON"), []byte(`{"a": "` + string(make([]byte, 1)) + `"}`), slices.Concat([]byte(`"`), slices.Repeat([]byte("x"), penstock.MaxReportBytes), []byte(`"`))} {
		e.Fails(r.Report(e.ctx, j.Lease, bad), "a report that is %.20q of %d bytes", bad, len(bad))
	}
	for _, lease := range []int64{j.Lease + 2, -1, 1 << 62} {
		e.MustBe(r.Report(e.ctx, lease, []byte("1")), penstock.ErrLeaseLost, "Report of a lease that nobody has")
	}
	large, _ := json.Marshal(map[string]string{"large": strings.Repeat(`"`, penstock.MaxReportBytes/2-20)})
	e.report(j, string(large))
	e.retry(j, 0, "x")
	j = e.collect("x")[0]
	e.reported("as large as it may be", j, string(large))
	e.ack(j)
	e.MustBe(r.Report(e.ctx, j.Lease, []byte("1")), penstock.ErrLeaseLost, "Report of a job that is done")
}

// reportStoreWithoutReports: where the store keeps none, a handler's report and step fail and say so, and the step does not run.
func reportStoreWithoutReports(e *env) {
	if _, ok := e.q.(driver.Reporter); ok || e.Work != nil {
		e.Skip("the store keeps reports")
	}
	e.enqueue(job("x"))
	var done atomic.Bool
	stop := e.work(func(ctx context.Context, j penstock.Job) error {
		_, err := work.Step(ctx, "charge", func(context.Context) (int, error) { e.Error("the step ran"); return 0, nil })
		for _, err := range []error{err, work.Report(ctx, 1)} {
			if err == nil || !strings.Contains(err.Error(), "keeps no reports") {
				e.Errorf("got %v, want that the queue keeps no reports", err)
			}
		}
		done.Store(true)
		return nil
	}, work.Options{})
	e.eventually("the job is done", done.Load)
	e.Must(stop(), "Work")
}

// reportLateOneIsLost: a process that slept beyond its lease reports nothing, and takes no step of the attempt that runs.
func reportLateOneIsLost(e *env) {
	r := e.reports()
	e.enqueue(penstock.NewJob{Payload: []byte("x"), Headers: map[string]string{"h": "1"}})
	old := e.claimAs(driver.Claim{Jobs: 1, Lease: suite.ShortLease})[0]
	j := e.collect("x")[0]
	e.report(j, stepA)
	e.MustBe(r.Report(e.ctx, old.Lease, []byte(`{"penstock-steps": {"a": "late"}}`)), penstock.ErrLeaseLost, "a late step")
	e.MustBe(r.Report(e.ctx, old.Lease, []byte(`{"late": true}`)), penstock.ErrLeaseLost, "a late report")
	e.retry(j, 0, "x")
	j = e.collect("x")[0]
	e.reported("after a late report", j, stepA)
	e.ack(j)
}

// dying is the queue of a worker that dies: none of its calls arrives any more.
type dying struct {
	driver.Queue
	driver.Reporter
	dead atomic.Bool
}

var errDead = errors.New("the process is dead")

func (d *dying) Claim(ctx context.Context, c driver.Claim) ([]penstock.Job, error) {
	if d.dead.Load() {
		return nil, errDead
	}
	return d.Queue.Claim(ctx, c)
}

func (d *dying) Extend(ctx context.Context, lease time.Duration, leases ...int64) ([]int64, error) {
	if d.dead.Load() {
		return nil, errDead
	}
	return d.Queue.Extend(ctx, lease, leases...)
}

func (d *dying) Ack(ctx context.Context, leases ...int64) ([]int64, error) {
	if d.dead.Load() {
		return nil, errDead
	}
	return d.Queue.Ack(ctx, leases...)
}

// reportStepsRunOnce: a worker dies between a step's return and its job's end, and later attempts fail. Each step runs until it has returned once.
func reportStepsRunOnce(e *env) {
	r := e.reports()
	if e.Work != nil {
		e.Skip("a worker in another language has its own steps: see clients/conformance")
	}
	type receipt struct{ Number int }
	var charged, shipped, done atomic.Int64
	charge := func(ctx context.Context, j penstock.Job) {
		paid, err := work.Step(ctx, "charge", func(context.Context) (receipt, error) { return receipt{int(charged.Add(1))}, nil })
		if err != nil || paid.Number != 1 {
			e.Errorf("attempt %d: the receipt is %+v, %v", j.Attempt, paid, err)
		}
	}
	e.enqueue(penstock.NewJob{Payload: []byte("x"), Headers: map[string]string{"h": "1"}})
	first := &dying{Queue: e.q, Reporter: r}
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	_ = work.Run(ctx, first, func(ctx context.Context, j penstock.Job) error {
		charge(ctx, j)
		first.dead.Store(true)
		if _, err := e.q.Extend(ctx, suite.ShortLease, j.Lease); err != nil { // long enough for the step, and over soon
			e.Error(err)
		}
		cancel()
		return nil
	}, work.Options{Lease: suite.LongLease, DrainTimeout: time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	if !first.dead.Load() {
		e.Fatal("the first worker did not get the job")
	}
	ship := func(context.Context) (*int, error) {
		if shipped.Add(1) < 3 {
			return nil, penstock.RetryAfter(errors.New("no ship"), 0)
		}
		return nil, nil
	}
	stop := e.work(func(ctx context.Context, j penstock.Job) error {
		charge(ctx, j)
		if err := work.Report(ctx, map[string]int{"attempt": j.Attempt}); err != nil {
			return err
		}
		if _, err := work.Step(ctx, "ship", ship); err != nil {
			return err
		}
		if _, err := work.Step(ctx, "ship", ship); err != nil {
			e.Errorf("a second call in one attempt: %v", err)
		}
		if j.Attempt < 6 {
			return penstock.RetryAfter(errors.New("once more"), time.Millisecond)
		}
		for name, want := range map[string]string{"": "step", "large": `result of step "large"`} {
			_, err := work.Step(ctx, name, func(context.Context) (string, error) { return strings.Repeat("x", penstock.MaxReportBytes-10), nil })
			if err == nil || !strings.Contains(err.Error(), want) {
				e.Errorf("step %q: got %v, want an error with %s", name, err, want)
			}
		}
		if _, err := work.Step(ctx, "charge", func(context.Context) ([]int, error) { return nil, nil }); err == nil || !strings.Contains(err.Error(), `"charge"`) {
			e.Errorf("a result of another type: %v", err)
		}
		done.Add(1)
		return nil
	}, work.Options{})
	e.eventually("the job is done", func() bool { return done.Load() == 1 })
	e.Must(stop(), "Work")
	if charged.Load() != 1 || shipped.Load() != 3 {
		e.Errorf("charged %d times and shipped %d times; want 1 and 3", charged.Load(), shipped.Load())
	}
	_, err := work.Step(e.ctx, "charge", func(context.Context) (int, error) { return 0, nil })
	if err == nil || !strings.Contains(err.Error(), "no job") {
		e.Errorf("a step of no job: %v", err)
	}
}

// reportStepTakesEffectOnce: what a step writes in the transaction that its result is written in takes effect once.
func reportStepTakesEffectOnce(e *env) {
	e.reports()
	first := e.begin()
	_, ok := first.Tx.(TxReporter)
	e.Must(first.Tx.Rollback(e.ctx), "Rollback")
	if !ok || e.Work != nil {
		e.Skip("the transactions take no reports")
	}
	e.Must(e.Store.CreateQueue(e.ctx, "effects", penstock.FIFO), "CreateQueue")
	e.enqueue(job("x"))
	var ran, done atomic.Int64
	stop := e.work(func(ctx context.Context, j penstock.Job) error {
		in := func(end func(Tx) error) (int64, error) {
			t, err := e.Begin(ctx)
			if err != nil {
				return 0, err
			}
			defer func() { _ = t.Rollback(ctx) }()
			n, err := work.StepTx(ctx, t.(TxReporter).Reporter(queue), "note", func(ctx context.Context) (int64, error) {
				_, err := t.Enqueue(ctx, "effects", job("effect"))
				return ran.Add(1), err
			})
			if err != nil {
				return 0, err
			}
			return n, end(t)
		}
		rollback, commit := func(t Tx) error { return t.Rollback(ctx) }, func(t Tx) error { return t.Commit(ctx) }
		again := penstock.RetryAfter(errors.New("once more"), 0)
		switch j.Attempt {
		case 1: // twice: it has not run
			for range 2 {
				if _, err := in(rollback); err != nil {
					e.Errorf("a step that was rolled back: %v", err)
				}
			}
			return again
		case 2:
			if n, err := in(commit); err != nil || n != 3 {
				e.Errorf("the step that commits: %d, %v", n, err)
			}
			e.Fails(suite.Err(in(commit)), "to commit a step a second time in one attempt")
			return again
		}
		n, err := in(commit)
		if err != nil || n != 3 {
			e.Errorf("the kept result: %d, %v; want 3", n, err)
		}
		done.Add(1)
		return nil
	}, work.Options{Lease: suite.LongLease})
	e.eventually("the job is done", func() bool { return done.Load() == 1 })
	e.Must(stop(), "Work")
	effects := suite.Get(e.Store.DriverQueue("effects").Claim(e.ctx, driver.Claim{Jobs: 10, Lease: suite.LongLease})).Must(e, "Claim")
	if len(effects) != 1 || ran.Load() != 4 {
		e.Errorf("%d effects after %d runs, want 1 after 4", len(effects), ran.Load())
	}
}
