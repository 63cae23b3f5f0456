package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/work"
)

// A program dies between a step's return and its job's end. The step does not run again, here in a worker of Go.
func TestStepsOfADeadProgram(t *testing.T) {
	eachAlone(t, func(g *goal, l *language) {
		q := g.queue()
		g.enqueue("order")
		charged := make(chan penstock.Job, 1)
		g.working(q, func(ctx context.Context, j penstock.Job) error {
			s, err := step(ctx, "charge", "receipt 7", nil)
			if err != nil || !s.Ran || s.Result != "receipt 7" {
				g.Errorf("the first call: %+v, %v", s, err)
			}
			again, err := step(ctx, "charge", "receipt 8", nil)
			if err != nil || again.Ran || again.Result != "receipt 7" {
				g.Errorf("a second call in one attempt: %+v, %v", again, err)
			}
			charged <- j
			<-ctx.Done()
			return ctx.Err()
		}, work.Options{Lease: time.Hour})
		j := <-charged
		q.c.kill()
		_, err := g.native().Extend(g.ctx, time.Millisecond, j.Lease)
		must(g, err)
		done := make(chan string, 1)
		ctx, cancel := context.WithCancel(g.ctx)
		defer cancel()
		must(g, work.Run(ctx, g.native(), func(ctx context.Context, j penstock.Job) error {
			defer cancel()
			receipt, err := work.Step(ctx, "charge", func(context.Context) (string, error) { return "receipt 9", nil })
			done <- receipt
			return err
		}, work.Options{}))
		if receipt := <-done; receipt != "receipt 7" {
			g.Errorf("the next attempt has %q, want the receipt of the first", receipt)
		}
	})
}

// The client's next attempt has the steps of an earlier one, of any language. Its reports and steps add up.
func TestStepsOfEarlierAttempts(t *testing.T) {
	each(t, func(g *goal, l *language) {
		q := g.queue()
		g.enqueue("order")
		jobs, err := g.native().Claim(g.ctx, driver.Claim{Jobs: 1, Lease: time.Hour})
		must(g, err)
		report := g.native().(driver.Reporter).Report
		must(g, report(g.ctx, jobs[0].Lease, []byte(`{"penstock-steps": {"charge": "receipt 7"}, "rows": 1}`)))
		_, err = g.native().Retry(g.ctx, jobs[0].Lease, 0, "no parcel")
		must(g, err)
		done := make(chan penstock.Job, 1)
		stop := g.working(q, func(ctx context.Context, j penstock.Job) error {
			if s, err := step(ctx, "charge", "receipt 8", nil); err != nil || s.Ran || s.Result != "receipt 7" {
				g.Errorf("attempt %d: %+v, %v", j.Attempt, s, err)
			}
			if j.Attempt == 2 {
				if s, err := step(ctx, "ship", "parcel", nil); err != nil || !s.Ran {
					g.Errorf("another step: %+v, %v", s, err)
				}
				for name, want := range map[string]string{"": "step", strings.Repeat("x", 101): "step", "large": "large"} {
					if _, err := step(ctx, name, strings.Repeat("x", penstock.MaxReportBytes-50), nil); err == nil || !strings.Contains(err.Error(), want) {
						g.Errorf("step %.20q: got %v, want an error with %s", name, err, want)
					}
				}
				return penstock.RetryAfter(errUnreadable, 0)
			}
			done <- j
			return nil
		}, work.Options{})
		j := <-done
		must(g, stop())
		var got, want any
		must(g, json.Unmarshal([]byte(`{"rows": 1, "penstock-steps": {"ship": "parcel", "charge": "receipt 7"}}`), &want))
		if err := json.Unmarshal(j.Report, &got); err != nil || !reflect.DeepEqual(got, want) || len(j.Headers) != 0 {
			g.Errorf("the report is %s and the headers are %v, want %v", j.Report, j.Headers, want)
		}
	})
}

// A step whose result is written in a transaction has run if that commits. All kinds of transactions take it.
func TestStepsInATransaction(t *testing.T) {
	each(t, func(g *goal, l *language) {
		execute(g, g.url, "create table effect (kind text)")
		q := g.queue()
		for range q.c.hello.Kinds {
			g.enqueue("order")
		}
		var done seen
		stop := g.working(q, func(ctx context.Context, j penstock.Job) error {
			kind := q.c.hello.Kinds[j.ID-1]
			in := func(result string, end func(*remoteTx) error) (bool, string) {
				t, err := q.c.beginAs(ctx, kind)
				if err != nil {
					g.Error(err)
					return false, ""
				}
				defer func() { _ = t.Rollback(g.ctx) }()
				s, err := step(ctx, "book", result, args{"tx": t.tx})
				if err != nil {
					return false, err.Error()
				}
				if s.Ran {
					if _, err := t.execute(ctx, "insert into effect values ('"+kind+"') returning kind"); err != nil {
						g.Error(err)
					}
				}
				if err := end(t); err != nil {
					g.Errorf("%s: %v", kind, err)
				}
				return s.Ran, s.Result
			}
			commit, rollback := func(t *remoteTx) error { return t.Commit(ctx) }, func(t *remoteTx) error { return t.Rollback(ctx) }
			if j.Attempt == 1 {
				if ran, result := in("a", rollback); !ran {
					g.Errorf("%s: the first call: %s", kind, result)
				}
				if ran, result := in("b", commit); !ran {
					g.Errorf("%s: after a rollback: %s", kind, result)
				}
				if ran, result := in("c", commit); ran {
					g.Errorf("%s: it committed twice in one attempt: %s", kind, result)
				}
				return penstock.RetryAfter(errUnreadable, 0)
			}
			if ran, result := in("d", commit); ran || result != "b" {
				g.Errorf("%s: the next attempt: %v, %q", kind, ran, result)
			}
			done.add(j)
			return nil
		}, work.Options{Lease: time.Hour})
		g.eventually("all are done", func() bool { return done.count() == len(q.c.hello.Kinds) })
		must(g, stop())
		var effects int
		conn := g.connect()
		must(g, conn.QueryRow(g.ctx, "select count(distinct kind) * 1000 + count(*) from effect").Scan(&effects))
		if n := len(q.c.hello.Kinds); effects != 1001*n {
			g.Errorf("%d effects, want one for each of %d kinds", effects, n)
		}
	})
}

// A process that is stopped beyond its lease wakes up, and reports nothing.
func TestReportOfAStoppedProcess(t *testing.T) {
	eachAlone(t, func(g *goal, l *language) {
		q := g.queue()
		g.enqueue("order")
		old, err := q.Claim(g.ctx, driver.Claim{Jobs: 1, Lease: suite.ShortLease})
		must(g, err)
		must(g, syscall.Kill(-q.c.cmd.Process.Pid, syscall.SIGSTOP))
		var jobs []penstock.Job
		g.eventually("its lease has ended", func() bool {
			jobs, err = g.native().Claim(g.ctx, driver.Claim{Jobs: 1, Lease: time.Hour})
			must(g, err)
			return len(jobs) == 1
		})
		must(g, syscall.Kill(-q.c.cmd.Process.Pid, syscall.SIGCONT))
		if err := q.Report(g.ctx, old[0].Lease, []byte(`{"penstock-steps": {"charge": "late"}}`)); !errors.Is(err, penstock.ErrLeaseLost) {
			g.Errorf("a late step: got %v, want a lost lease", err)
		}
		if jobs[0].Attempt != 2 || jobs[0].Report != nil {
			g.Errorf("the next attempt is %+v", jobs[0])
		}
	})
}
