package work_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/work"
)

func TestWorkDoesEveryJobOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(5000)
		q.takes["claim"], q.takes["ack"] = time.Millisecond, time.Millisecond
		seen, stop := begin(t, q, func(context.Context, penstock.Job) error { time.Sleep(time.Millisecond); return nil }, work.Options{})
		time.Sleep(20 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if len(q.done) != 5000 || seen.claimed != 5000 || seen.started != 5000 || seen.count(work.Done) != 5000 || seen.took != time.Millisecond {
			t.Errorf("%d jobs are done, %d were claimed, %d started, the observer saw %v, up to %s", len(q.done), seen.claimed, seen.started, seen.ends, seen.took)
		}
		if n := q.calls["ack"]; n > 1000 {
			t.Errorf("5000 jobs took %d acks, want them in batches", n)
		}
		if n := q.calls["maintain"]; n < 35 || n > 45 {
			t.Errorf("in 20 s there were %d calls of Maintain, want two a second", n)
		}
	})
}

// stillQueue does not answer Extend: a process that stands still does not call it either.
type stillQueue struct{ *fakeQueue }

func (q stillQueue) Extend(context.Context, time.Duration, ...int64) ([]int64, error) {
	time.Sleep(20 * time.Second)
	return nil, errors.New("late")
}

// A job whose lease ends while it waits for a slot does not begin then: it may run elsewhere.
func TestWorkBeginsNoJobLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := stillQueue{newFakeQueue(100)}
		var late int
		seen, stop := begin(t, q, func(_ context.Context, job penstock.Job) error {
			if !time.Now().Before(job.LeaseUntil) {
				late++
			}
			time.Sleep(time.Millisecond)
			if string(job.Payload) == "j20" && job.Attempt == 1 {
				time.Sleep(5 * time.Second)
			}
			return nil
		}, work.Options{Lease: 3 * time.Second, Concurrency: 1})
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if late > 0 || len(q.done) != 100 || seen.count(work.Lost) < 2 {
			t.Errorf("%d jobs began after their leases, %d are done, the observer saw %v; want some that are lost and run again", late, len(q.done), seen.ends)
		}
	})
}

// Where a claim's answer takes longer than a lease, jobs are done nevertheless: the lease may have begun at its end.
func TestWorkAfterSlowClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(3)
		q.takes["claim"] = 4 * time.Second
		_, stop := begin(t, q, func(context.Context, penstock.Job) error { return nil }, work.Options{Lease: 3 * time.Second})
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if len(q.done) != 3 {
			t.Errorf("%d jobs are done", len(q.done))
		}
	})
}

// farQueue answers claims later than a lease after they were made, and not the first calls after that.
type farQueue struct {
	*fakeQueue
	unanswered atomic.Int32
}

func (q *farQueue) Claim(ctx context.Context, c driver.Claim) ([]penstock.Job, error) {
	jobs, err := q.fakeQueue.Claim(ctx, c)
	if len(jobs) > 0 && string(jobs[0].Payload) == "j0" && jobs[0].Attempt == 1 {
		time.Sleep(2 * c.Lease)
	}
	return jobs, err
}

func (q *farQueue) Extend(ctx context.Context, lease time.Duration, leases ...int64) ([]int64, error) {
	if q.unanswered.Add(-1) >= 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return q.fakeQueue.Extend(ctx, lease, leases...)
}

// A job whose lease has ended while the claim's answer was on the way does not begin: it may run elsewhere.
func TestWorkAfterLateAnswers(t *testing.T) {
	for _, unanswered := range []int32{0, 1, 10} {
		synctest.Test(t, func(t *testing.T) {
			q, late := &farQueue{fakeQueue: newFakeQueue(3)}, 0
			q.unanswered.Store(unanswered)
			_, stop := begin(t, q, func(_ context.Context, job penstock.Job) error {
				if !time.Now().Before(job.LeaseUntil) {
					late++
				}
				return nil
			}, work.Options{Lease: 3 * time.Second, Concurrency: 1})
			time.Sleep(time.Minute)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			if late > 0 || len(q.done) != 3 {
				t.Errorf("%d calls without an answer: %d jobs began after their leases, %d are done", unanswered, late, len(q.done))
			}
		})
	}
}

// Jobs begin at once, Concurrency at a time. More are claimed ahead only when handlers are quick.
func TestWorkConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(30)
		var mu sync.Mutex
		running, most := 0, 0
		_, stop := begin(t, q, func(context.Context, penstock.Job) error {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(time.Minute)
			mu.Lock()
			running--
			mu.Unlock()
			return nil
		}, work.Options{Concurrency: 4, Worker: "w", Group: "g", Lease: 20 * time.Second})
		time.Sleep(90 * time.Second)
		mu.Lock()
		if q.mu.Lock(); len(q.leases) != 4 || len(q.done) != 4 || running != 4 || most != 4 {
			t.Errorf("%d jobs are leased, %d done, %d run, %d ran at most, want 4 of each", len(q.leases), len(q.done), running, most)
		}
		if c := q.claims[0]; c.Worker != "w" || c.Group != "g" || c.Lease != 20*time.Second || c.Jobs != 4 {
			t.Errorf("the claim was %+v", c)
		}
		q.mu.Unlock()
		mu.Unlock()
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestWorkVerdicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(7)
		seen, stop := begin(t, q, func(_ context.Context, j penstock.Job) error {
			switch string(j.Payload) {
			case "j0":
				return errors.New("no luck\x00\xff")
			case "j1":
				return penstock.RetryAfter(errors.New("busy"), 42*time.Second)
			case "j2":
				return fmt.Errorf("wrapped: %w", penstock.Permanent(errors.New("no good")))
			case "j3":
				panic("oh no")
			case "j4":
				return work.ErrSettled
			case "j5":
				return errors.New(strings.Repeat("é", 10_000))
			}
			return nil
		}, work.Options{Concurrency: 1})
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if len(q.retried) != 4 || q.retried[0] != "j0 after -1ns: no luck\uFFFD\uFFFD" || q.retried[1] != "j1 after 42s: busy" {
			t.Fatalf("retried: %q", q.retried)
		}
		if r := q.retried[2]; !strings.HasPrefix(r, "j3 after -1ns: panic: oh no\n") || !strings.Contains(r, "work_test.go") || strings.Contains(r, "runtime/debug") {
			t.Errorf("a panic was recorded as %q, want the value and where", r)
		}
		if r := q.retried[3]; len(r) > 5000 {
			t.Errorf("an error of 20,000 bytes was recorded with %d", len(r))
		}
		if !slices.Equal(q.dead, []string{"j2: wrapped: no good"}) || !slices.Equal(q.done, []string{"j6"}) {
			t.Errorf("dead %q, done %q", q.dead, q.done)
		}
		if len(q.leases) != 1 { // j4, which the handler ended itself
			t.Errorf("%d leases are held, want that of the job that its handler settled", len(q.leases))
		}
		want := map[work.End]int{work.Done: 1, work.Failed: 4, work.Dead: 1, work.Settled: 1}
		for how, n := range want {
			if seen.count(how) != n {
				t.Errorf("the observer saw %d jobs %s, want %d", seen.count(how), how, n)
			}
		}
	})
}

// unreadable is an error whose methods panic, as those of most nil pointers do.
type unreadable struct{ text string }

func (e *unreadable) Error() string     { return e.text }
func (e *unreadable) Is(err error) bool { return err.Error() == e.text }

// An error whose methods panic fails its job like a panic, and no other job.
func TestWorkErrorsThatPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(6)
		_, stop := begin(t, q, func(_ context.Context, j penstock.Job) error {
			var e *unreadable
			switch string(j.Payload) {
			case "j0":
				return e
			case "j1":
				return penstock.Permanent(e)
			case "j2":
				return penstock.RetryAfter(e, time.Hour)
			case "j3":
				return fmt.Errorf("wrapped: %w", e)
			case "j4":
				panic(e)
			}
			return nil
		}, work.Options{Concurrency: 1})
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		for i, r := range q.retried {
			if !strings.HasPrefix(r, fmt.Sprintf("j%d after -1ns: panic: ", i)) {
				t.Errorf("job %d failed with %q, want a panic", i, r)
			}
		}
		if len(q.retried) != 5 || !slices.Equal(q.done, []string{"j5"}) {
			t.Errorf("%d jobs failed and %q are done, want 5 and the last", len(q.retried), q.done)
		}
	})
}

func TestWorkSnoozesAndCancels(t *testing.T) {
	for name, wrap := range map[string]func(*fakeQueue) work.Queue{
		"Releaser":    func(q *fakeQueue) work.Queue { return releasing{q} },
		"no Releaser": func(q *fakeQueue) work.Queue { return q },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newFakeQueue(2)
				seen, stop := begin(t, wrap(q), func(_ context.Context, j penstock.Job) error {
					if string(j.Payload) == "j0" {
						return fmt.Errorf("wrapped: %w", work.Snooze(time.Minute))
					}
					return work.ErrCancelled
				}, work.Options{})
				time.Sleep(time.Second)
				if err := stop(); err != nil {
					t.Error(err)
				}
				snoozed := slices.Equal(q.freed, []string{"j0"}) && slices.Equal(q.afters, []time.Duration{time.Minute}) && seen.count(work.Snoozed) == 1
				if name == "no Releaser" {
					snoozed = slices.Equal(q.retried, []string{"j0 after 1m0s: wrapped: the job is to run again after 1m0s"})
				}
				if !snoozed || !slices.Equal(q.done, []string{"j1"}) || seen.count(work.Cancelled) != 1 {
					t.Errorf("freed %q after %v, retried %q, done %q, cancelled %d", q.freed, q.afters, q.retried, q.done, seen.count(work.Cancelled))
				}
			})
		})
	}
}

// A negative time, of a calculation that went wrong, would have the job run again at once and without end: it spends no attempt.
func TestWorkRefusesANegativePause(t *testing.T) {
	for what, failure := range map[string]error{"work.Snooze": work.Snooze(-time.Second), "work.HoldGroup": work.HoldGroup(-time.Second, "429")} {
		synctest.Test(t, func(t *testing.T) {
			q := newFakeQueue(1)
			_, stop := begin(t, releasing{q}, func(context.Context, penstock.Job) error { return fmt.Errorf("wrapped: %w", failure) }, work.Options{})
			time.Sleep(time.Second)
			if err := stop(); err != nil {
				t.Error(err)
			}
			if len(q.freed) > 0 || len(q.retried) != 1 || !strings.Contains(q.retried[0], what+" is negative: -1s") {
				t.Errorf("freed %q, retried %q, want a failed attempt that says why", q.freed, q.retried)
			}
		})
	}
}

func TestWorkExtendsLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(3)
		_, stop := begin(t, q, func(ctx context.Context, _ penstock.Job) error {
			select {
			case <-time.After(10 * time.Minute):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}, work.Options{Lease: 30 * time.Second})
		time.Sleep(11 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if len(q.done) != 3 || len(q.retried) != 0 {
			t.Errorf("done %q, retried %q, want all done", q.done, q.retried)
		}
		if n := len(q.extends); n != 59 && n != 60 || q.extends[0] != 3 { // every 10 s, all in one
			t.Errorf("the leases were extended in calls of %d", q.extends)
		}
	})
}

func TestWorkLostLeaseEndsTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(1)
		causes := make(chan error, 1)
		seen, stop := begin(t, q, func(ctx context.Context, _ penstock.Job) error {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return ctx.Err()
		}, work.Options{Lease: 30 * time.Second})
		time.Sleep(time.Second)
		q.lose()
		start := time.Now()
		if err := <-causes; !errors.Is(err, penstock.ErrLeaseLost) {
			t.Errorf("the context ended because of %v, want ErrLeaseLost", err)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("the context ended %s after the lease was lost, want at the next heartbeat", took)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if seen.count(work.Lost) != 1 || q.calls["retry"] != 0 {
			t.Errorf("the observer saw %v, there were %d retries", seen.ends, q.calls["retry"])
		}
	})
}

// A job is done, but its lease was lost before that was written.
func TestWorkAckOfALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(1)
		seen, stop := begin(t, q, func(context.Context, penstock.Job) error {
			q.lose()
			return nil
		}, work.Options{})
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if seen.count(work.Lost) != 1 || seen.count(work.Done) != 0 {
			t.Errorf("the observer saw %v, want that the lease was lost", seen.ends)
		}
	})
}

// The lease of a job that was cancelled is lost before its time. So the log does not say that the job runs again, whatever the handler returns.
func TestWorkAckOfACancelledJob(t *testing.T) {
	for name, c := range map[string]struct {
		goesOn time.Duration
		err    error
		want   string
	}{
		"done at once":               {time.Second, nil, "a job was removed while it ran"},
		"done after it was noticed":  {20 * time.Second, nil, "a job was removed while it ran"},
		"failed at once":             {time.Second, errors.New("bad"), "a job was removed while it ran"},
		"failed after it was so":     {20 * time.Second, errors.New("bad"), "a job was removed while it ran"},
		"done after an interruption": {-1, nil, "it runs again"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newFakeQueue(1)
				var log bytes.Buffer
				_, stop := begin(t, q, func(context.Context, penstock.Job) error {
					if c.goesOn < 0 {
						q.mu.Lock()
						q.fails["extend"] = errors.New("no answer")
						q.mu.Unlock()
						time.Sleep(time.Minute)
					}
					q.lose()
					time.Sleep(c.goesOn)
					return c.err
				}, work.Options{Lease: 30 * time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil))})
				time.Sleep(2 * time.Minute)
				if err := stop(); err != nil {
					t.Error(err)
				}
				if s := log.String(); !strings.Contains(s, c.want) || strings.Contains(s, "runs again") != strings.Contains(c.want, "runs again") {
					t.Errorf("the log has\n%swant %q", s, c.want)
				}
			})
		})
	}
}

// Ends within AckEvery are written with one call, and a full batch at once.
func TestWorkBatchesAcks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(10)
		_, stop := begin(t, q, func(_ context.Context, j penstock.Job) error {
			time.Sleep(time.Duration(j.ID) * 50 * time.Microsecond)
			return nil
		}, work.Options{AckEvery: time.Millisecond})
		time.Sleep(time.Second)
		if err := stop(); err != nil || !slices.Equal(q.batches, []int{10}) {
			t.Errorf("the acks were %d, %v, want one of 10", q.batches, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(8)
		_, stop := begin(t, q, nothing, work.Options{Concurrency: 8, Batch: 4, AckEvery: time.Hour})
		time.Sleep(time.Second)
		if q.mu.Lock(); len(q.done) <= 8-4 {
			t.Errorf("%d of 8 jobs are acked, want less than a batch of 4 left", len(q.done))
		}
		q.mu.Unlock()
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// If the database does not answer, leases are lost: another worker may have them.
func TestWorkHeartbeatsUnanswered(t *testing.T) {
	for name, fail := range map[string]func(*fakeQueue){
		"error": func(q *fakeQueue) { q.set("extend", errors.New("no route"), 0) },
		"hangs": func(q *fakeQueue) { q.set("extend", nil, time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newFakeQueue(1)
				causes := make(chan error, 1)
				_, stop := begin(t, q, func(ctx context.Context, _ penstock.Job) error {
					<-ctx.Done()
					causes <- context.Cause(ctx)
					return ctx.Err()
				}, work.Options{Lease: 30 * time.Second})
				time.Sleep(15 * time.Second) // extended once, at 10 s
				fail(q)
				start := time.Now()
				if err := <-causes; !errors.Is(err, penstock.ErrLeaseLost) {
					t.Errorf("the context ended because of %v, want ErrLeaseLost", err)
				}
				if took := time.Since(start); took < 24*time.Second || took > 36*time.Second {
					t.Errorf("the context ended after %s, want when the lease does, after 25 s", took)
				}
				q.set("extend", nil, 0)
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestWorkMiddleware(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(1)
		q.waiting[0].Headers = map[string]string{"traceparent": "00-abc"}
		var calls []string
		wrap := func(name string) func(work.Handler) work.Handler {
			return func(next work.Handler) work.Handler {
				return func(ctx context.Context, j penstock.Job) error {
					calls = append(calls, name+" "+j.Headers["traceparent"])
					return next(ctx, j)
				}
			}
		}
		_, stop := begin(t, q, nothing, work.Options{Middleware: []func(work.Handler) work.Handler{wrap("outer"), wrap("inner")}})
		time.Sleep(time.Second)
		if err := stop(); err != nil || !slices.Equal(calls, []string{"outer 00-abc", "inner 00-abc"}) {
			t.Errorf("got %q, %v", calls, err)
		}
	})
}

func TestWorkPollPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(0)
		_, stop := begin(t, q, nothing, work.Options{})
		time.Sleep(10 * time.Second)
		q.mu.Lock()
		before := q.calls["claim"]
		q.mu.Unlock()
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n := q.calls["claim"] - before; n < 190 || n > 210 {
			t.Errorf("an idle worker claimed %d times in 10 s, want one claim per 50 ms", n)
		}
	})
}

func TestWorkBadOptions(t *testing.T) {
	for field, o := range map[string]work.Options{
		"Concurrency": {Concurrency: -1}, "Claims": {Claims: -1}, "Batch": {Batch: driver.MaxClaim + 1}, "Lease": {Lease: 999 * time.Millisecond}, "PollMax": {PollMin: time.Second, PollMax: time.Millisecond},
		"AckEvery": {AckEvery: -1}, "DrainTimeout": {DrainTimeout: -1}, "Group": {Group: "\x00"}, "Middleware[0]": {Middleware: make([]func(work.Handler) work.Handler, 1)},
	} {
		var f *penstock.FieldError
		if err := work.Run(t.Context(), newFakeQueue(0), nothing, o); !errors.As(err, &f) || f.Field != field {
			t.Errorf("Run with a bad %s: got %v", field, err)
		}
	}
	for field, err := range map[string]error{"queue": work.Run(t.Context(), nil, nothing, work.Options{}), "handler": work.Run(t.Context(), newFakeQueue(1), nil, work.Options{})} {
		var f *penstock.FieldError
		if !errors.As(err, &f) || f.Field != field || f.Hint == "" {
			t.Errorf("Run without a %s: got %v", field, err)
		}
	}
}
