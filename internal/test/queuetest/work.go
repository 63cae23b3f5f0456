package queuetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/work"
)

var workCases = slices.Concat(
	named("Work", workTwoProcesses, workStopInTheMiddle, workCancelledJob, workOutcomes,
		workLogsQueueAndKind, workSnooze, workOtherKinds),
	needing(Features{WorkTx: true}, named("Work", workTxTakesEffectOnce)),
)

// work starts work.Run in a separate process and returns the function that stops it.
func (e *env) work(h work.Handler, o work.Options) (stop func() error) {
	q := e.Another(e).DriverQueue(queue)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(e.ctx)
	done := make(chan error, 1)
	run := e.Work
	if run == nil {
		run = func(ctx context.Context, q driver.Queue, h work.Handler, o work.Options) error {
			return work.Run(ctx, q, h, o)
		}
	}
	go func() { done <- run(ctx, q, h, o) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	e.Cleanup(func() { _ = stop() })
	return stop
}

// lines are those of a log that have a text, as they come.
type lines struct {
	of    string
	found chan string
}

func (l lines) Write(line []byte) (int, error) {
	if strings.Contains(string(line), l.of) {
		l.found <- string(line)
	}
	return len(line), nil
}

// The line of a failed job names the queue and the kind, so that those of several workers can be told apart.
func workLogsQueueAndKind(e *env) {
	if e.Work != nil {
		e.Skip("the worker is a program with a log elsewhere")
	}
	found := make(chan string, 1)
	e.enqueue(penstock.NewJob{Kind: "welcome"})
	stop := e.work(func(context.Context, penstock.Job) error { return penstock.Permanent(errors.New("no such user")) },
		work.Options{Logger: slog.New(slog.NewTextHandler(lines{"a job failed", found}, nil))})
	select {
	case line := <-found:
		if !strings.Contains(line, " queue="+queue+" ") || !strings.Contains(line, " kind=welcome") {
			e.Errorf("the line of a failed job is %q, want its queue and its kind", line)
		}
	case <-e.ctx.Done():
		e.Error("no line says that the job failed")
	}
	e.Must(stop(), "work")
}

// logged makes a handler of one that the log checks.
func (l *runLog) logged(h work.Handler) work.Handler {
	return func(ctx context.Context, j penstock.Job) error {
		l.start(j)
		err := errors.New("it panicked")
		defer func() {
			l.end(j, err == nil)
			if err == nil {
				l.ended.Add(1)
			}
		}()
		err = h(ctx, j)
		return err
	}
}

func workTwoProcesses(e *env) {
	const n = 400
	for i := range n {
		e.enqueue(keyed([]string{"", "", "a", "b", "c"}[i%5], fmt.Sprint(i)))
	}
	log := newRunLog()
	h := log.logged(func(_ context.Context, j penstock.Job) error {
		switch {
		case j.Attempt == 1 && j.ID%7 == 0:
			return penstock.RetryAfter(errors.New("once more"), time.Millisecond)
		case j.Attempt == 1 && j.ID%11 == 0:
			panic(penstock.RetryAfter(errors.New("once more"), 0))
		}
		return nil
	})
	stops := []func() error{e.work(h, work.Options{Worker: "one"}), e.work(h, work.Options{Worker: "two", Concurrency: 3})}
	e.eventually("all jobs are done", func() bool { return log.ended.Load() >= n })
	for _, stop := range stops {
		e.Must(stop(), "Work")
	}
	log.check(e, n)
	e.want()
	e.wantCounts(counts{})
}

// Workers come and go; every job is done once, and none waits for a lease.
func workStopInTheMiddle(e *env) {
	const n = 300
	for i := range n {
		e.enqueue(keyed([]string{"", "", "a"}[i%3], fmt.Sprint(i)))
	}
	log := newRunLog()
	h := log.logged(func(context.Context, penstock.Job) error { time.Sleep(100 * time.Microsecond); return nil })
	for log.ended.Load() < n {
		before := log.ended.Load()
		stop := e.work(h, work.Options{Lease: suite.LongLease, Concurrency: 4})
		e.eventually("some jobs are done", func() bool { return log.ended.Load() >= min(before+30, n) })
		e.Must(stop(), "Work")
	}
	log.check(e, n)
	e.want()
}

// The handler of a job that is cancelled learns of it.
func workCancelledJob(e *env) {
	ids := e.enqueue(job("a"))
	started, ended := make(chan struct{}), make(chan error, 1)
	begun := sync.OnceFunc(func() { close(started) })
	stop := e.work(func(ctx context.Context, _ penstock.Job) error {
		begun()
		<-ctx.Done()
		select {
		case ended <- context.Cause(ctx):
		default: // on a slow machine its lease has ended before, and it runs again
		}
		return ctx.Err()
	}, work.Options{Lease: 6 * time.Second})
	<-started
	e.cancel(1, ids...)
	e.MustBe(<-ended, penstock.ErrLeaseLost, "the cause of a cancelled job's context")
	e.Must(stop(), "Work")
	e.maintain()
	e.want()
}

// A job with one attempt that snoozes twice is done after all.
func workSnooze(e *env) {
	e.set(penstock.QueueSettings{MaxAttempts: new(1)})
	e.enqueue(keyed("k", "a"), keyed("k", "b"), job("c"))
	log, runs := newRunLog(), atomic.Int64{}
	stop := e.work(log.logged(func(_ context.Context, j penstock.Job) error {
		suite.Equal(e, j.Attempt, 1, "attempt of %q", j.Payload)
		if string(j.Payload) != "b" && runs.Add(1) <= 4 {
			return fmt.Errorf("wrapped: %w", work.Snooze(20*time.Millisecond))
		}
		return nil
	}), work.Options{})
	e.eventually("all jobs are done", func() bool { return log.ended.Load() >= 3 })
	e.Must(stop(), "Work")
	log.check(e, 3)
	e.want()
	suite.Equal(e, len(e.deadJobs(admin.DeadJobQuery{})), 0, "dead letters")
}

func workOutcomes(e *env) {
	e.enqueue(job("dead"), job("cancelled"), job("later"), job("failed"), job("done"))
	var calls atomic.Int64
	stop := e.work(func(_ context.Context, j penstock.Job) error {
		calls.Add(1)
		switch string(j.Payload) {
		case "dead":
			return penstock.Permanent(errors.New("no good"))
		case "cancelled":
			return work.ErrCancelled
		case "later":
			return penstock.RetryAfter(errors.New("later"), time.Hour)
		case "failed":
			return errors.New("no luck")
		}
		return nil
	}, work.Options{})
	e.eventually("each has run", func() bool { return calls.Load() >= 5 })
	e.Must(stop(), "Work")
	if s := e.status(); s.Running+s.Waiting != 0 || s.Ready > 1 || s.Delayed+s.DeadLetters < 2 { // the one that failed may be back
		e.Errorf("the status is %+v", s)
	}
	if dead := e.deadJobs(admin.DeadJobQuery{}); len(dead) != 1 || dead[0].Err() != "no good" {
		e.Errorf("the dead letters are %+v, want one, of no good", dead)
	}
}

// A handler's writes take effect once, with the end of its job, whatever becomes of its first attempts. Here that is a job.
func workTxTakesEffectOnce(e *env) {
	e.Must(e.Store.CreateQueue(e.ctx, "effects", penstock.FIFO), "CreateQueue")
	const n = 60
	for i := range n {
		e.enqueue(keyed([]string{"", "a", "b"}[i%3], fmt.Sprint(i)))
	}
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- e.WorkTx(ctx, func(ctx context.Context, tx Tx, j penstock.Job) error {
			if _, err := tx.Enqueue(ctx, "effects", job(fmt.Sprint(string(j.Payload), " on attempt ", j.Attempt))); err != nil {
				return err
			}
			switch i := turn(j); {
			case i%10 == 0:
				return penstock.Permanent(errors.New("never"))
			case i%7 == 0 && j.Attempt == 1:
				panic("the first time")
			case i%5 == 0 && j.Attempt < 3:
				return penstock.RetryAfter(errors.New("not yet"), time.Millisecond)
			}
			return nil
		}, work.Options{Concurrency: 4, Logger: slog.New(slog.DiscardHandler)})
	}()
	var want []string
	for i := range n {
		attempt := 1
		if i%5 == 0 {
			attempt = 3
		} else if i%7 == 0 {
			attempt = 2
		}
		if i%10 != 0 {
			want = append(want, fmt.Sprint(i, " on attempt ", attempt))
		}
	}
	e.eventually("every job has ended", func() bool { return e.left() == 0 })
	cancel()
	e.Must(<-done, "WorkTx")
	effects := suite.Get(e.Store.DriverQueue("effects").Claim(e.ctx, driver.Claim{Jobs: 2 * n, Lease: suite.LongLease})).Must(e, "Claim")
	got := names(effects)
	slices.Sort(got)
	slices.Sort(want)
	suite.Equal(e, got, want, "took effect")
	suite.Equal(e, len(e.deadJobs(admin.DeadJobQuery{})), n/10, "dead letters")
}

// Two workers with handlers for different kinds take the jobs of one queue. A job that meets the wrong one comes to the other at once, and not after
// the longest rest.
func workOtherKinds(e *env) {
	if e.Work != nil {
		e.Skip("the worker is a program, whose kinds are options: see the clients' own suite")
	}
	begun := make(chan string)
	for _, kind := range []string{"a", "b"} {
		var mux work.Mux
		mux.Handle(kind, func(context.Context, penstock.Job) error { begun <- kind; return nil })
		stop := e.work(mux.Handler(), work.Options{})
		defer func() { e.Must(stop(), "work") }()
	}
	ctx, cancel := context.WithTimeout(e.ctx, time.Minute) // half of the jobs would rest for 10 s, some of them several times
	defer cancel()
	for i := range 40 { // one after another: without a backlog, each may meet the wrong worker first
		kind := []string{"a", "b"}[i%2]
		e.enqueue(ofKind(kind, ""))
		select {
		case got := <-begun:
			suite.Equal(e, got, kind, "kind of the handler")
		case <-ctx.Done():
			e.Fatalf("%d of 40 jobs came to the worker of their kind in a minute", i)
		}
	}
}
