package work_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/work"
)

// Running handlers may finish; nothing new is claimed.
func TestWorkDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(20)
		_, stop := begin(t, q, func(ctx context.Context, _ penstock.Job) error {
			time.Sleep(5 * time.Second)
			return ctx.Err()
		}, work.Options{Concurrency: 2})
		time.Sleep(time.Second)
		start := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took < 4*time.Second || took > 5*time.Second {
			t.Errorf("stopping took %s, want as long as the handlers", took)
		}
		if len(q.done) != 2 || len(q.waiting) != 18 || len(q.leases) != 0 {
			t.Errorf("%d done, %d wait, %d are leased, want 2, 18, 0", len(q.done), len(q.waiting), len(q.leases))
		}
	})
}

func TestWorkDrainTimeout(t *testing.T) {
	for name, c := range map[string]struct {
		queue func(*fakeQueue) work.Queue
		want  func(*fakeQueue) bool
	}{
		"Releaser":    {func(q *fakeQueue) work.Queue { return releasing{q} }, func(q *fakeQueue) bool { return len(q.freed) == 2 && len(q.retried) == 0 }},
		"no Releaser": {func(q *fakeQueue) work.Queue { return q }, func(q *fakeQueue) bool { return len(q.retried) == 2 && q.retried[0][:11] == "j0 after 0s" }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newFakeQueue(3)
				cause := make(chan error, 2)
				var log bytes.Buffer
				_, stop := begin(t, c.queue(q), func(ctx context.Context, j penstock.Job) error {
					<-ctx.Done()
					cause <- context.Cause(ctx)
					if j.ID == 2 {
						time.Sleep(time.Millisecond) // for the order of the two
					}
					return ctx.Err()
				}, work.Options{Concurrency: 2, DrainTimeout: 3 * time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil))})
				time.Sleep(time.Second)
				start := time.Now()
				if err := stop(); err != nil {
					t.Error(err)
				}
				if took := time.Since(start); took < 3*time.Second || took > 4*time.Second {
					t.Errorf("stopping took %s, want DrainTimeout", took)
				}
				if err := <-cause; !errors.Is(err, work.ErrStopping) {
					t.Errorf("the context ended because of %v, want ErrStopping", err)
				}
				if !c.want(q) {
					t.Errorf("released %q, retried %q", q.freed, q.retried)
				}
				if !strings.Contains(log.String(), `are aborted" jobs="[1 2]"`) {
					t.Errorf("the log does not have the jobs that were aborted: %s", &log)
				}
			})
		})
	}
}

// Jobs claimed ahead are given back, and their attempt does not count.
func TestWorkGivesBackWhatHasNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(200)
		slow := make(chan struct{})
		n := 0
		seen, stop := begin(t, releasing{q}, func(context.Context, penstock.Job) error {
			if n++; n > 50 {
				<-slow
			}
			return nil
		}, work.Options{Concurrency: 1})
		time.Sleep(time.Second)
		synctest.Wait()
		q.mu.Lock()
		ahead := len(q.leases) - 1
		q.mu.Unlock()
		if ahead < 10 {
			t.Fatalf("%d jobs were claimed ahead for a quick handler, want more", ahead)
		}
		go func() {
			time.Sleep(time.Second)
			close(slow)
		}()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if len(q.freed) != ahead || seen.count(work.Released) != ahead || len(q.done) != 51 {
			t.Errorf("%d were given back, %d done, want %d and 51", len(q.freed), len(q.done), ahead)
		}
	})
}

// Jobs that were claimed ahead keep their leases while they wait.
func TestWorkExtendsWhatHasNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(200)
		n := 0
		_, stop := begin(t, q, func(context.Context, penstock.Job) error {
			if n++; n == 50 {
				time.Sleep(5 * time.Minute)
			}
			return nil
		}, work.Options{Concurrency: 1})
		time.Sleep(10 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if len(q.done) != 200 || n != 200 {
			t.Errorf("%d jobs are done with %d attempts, want 200 with 200", len(q.done), n)
		}
	})
}

// During an outage of the database, results are kept, and written after it.
func TestWorkOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(6)
		down := errors.New("connection refused")
		seen, stop := begin(t, q, func(_ context.Context, j penstock.Job) error {
			time.Sleep(time.Second)
			switch j.ID {
			case 1:
				return errors.New("failed")
			case 2:
				return penstock.Permanent(errors.New("bad"))
			}
			return nil
		}, work.Options{Concurrency: 6, Lease: 5 * time.Minute})
		time.Sleep(500 * time.Millisecond)
		for _, call := range []string{"claim", "ack", "retry", "dead-letter", "maintain", "extend"} {
			q.set(call, down, 0)
		}
		time.Sleep(2 * time.Minute)
		q.mu.Lock()
		acks := q.calls["ack"]
		q.mu.Unlock()
		if acks < 10 || acks > 100 {
			t.Errorf("in an outage of 2 minutes there were %d acks, want them with backoff", acks)
		}
		for _, call := range []string{"claim", "ack", "retry", "dead-letter", "maintain", "extend"} {
			q.set(call, nil, 0)
		}
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if len(q.done) != 4 || len(q.retried) != 1 || len(q.dead) != 1 || seen.count(work.Done) != 4 {
			t.Errorf("after the outage %q are done, %q retried, %q dead", q.done, q.retried, q.dead)
		}
	})
}

// A stop during an outage shows how many results could not be written.
func TestWorkStopsInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(2)
		q.set("ack", errors.New("connection refused"), 0)
		_, stop := begin(t, q, nothing, work.Options{DrainTimeout: 3 * time.Second})
		time.Sleep(time.Second)
		start := time.Now()
		err := stop()
		if err == nil || time.Since(start) > 4*time.Second {
			t.Errorf("got %v after %s, want an error after 3 s", err, time.Since(start))
		}
	})
}

func TestWorkPermanentErrors(t *testing.T) {
	for _, call := range []string{"claim", "ack", "maintain", "extend", "retry"} {
		for _, permanent := range []error{penstock.ErrNoQueue, penstock.ErrClosed} {
			t.Run(call, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q := newFakeQueue(3)
					q.set(call, penstock.WithHint(permanent, "create it"), 0)
					done := make(chan error)
					go func() {
						done <- work.Run(t.Context(), q, func(ctx context.Context, j penstock.Job) error {
							if j.ID == 1 {
								return errors.New("failed")
							} else if j.ID == 2 {
								return nil
							}
							<-ctx.Done() // nothing else would stop it
							return ctx.Err()
						}, work.Options{Logger: slog.New(slog.DiscardHandler)})
					}()
					if err := <-done; !errors.Is(err, permanent) {
						t.Errorf("got %v, want %v", err, permanent)
					}
				})
			})
		}
	}
}

// A claim that is running when Run stops is not cancelled, and the jobs that it brings are given
// back.
func TestWorkStopsDuringAClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(3)
		q.set("claim", nil, time.Second)
		_, stop := begin(t, releasing{q}, nothing, work.Options{})
		time.Sleep(500 * time.Millisecond)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if len(q.freed)+len(q.done) != 3 || len(q.leases) != 0 {
			t.Errorf("given back %q, done %q, %d are leased", q.freed, q.done, len(q.leases))
		}
	})
}

// A handler that ends its goroutine costs one attempt and no slot.
func TestWorkGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(5)
		_, stop := begin(t, q, func(_ context.Context, j penstock.Job) error {
			if j.ID < 5 {
				runtime.Goexit()
			}
			return nil
		}, work.Options{Concurrency: 1})
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if len(q.retried) != 4 || !slices.Equal(q.done, []string{"j4"}) {
			t.Errorf("retried %q, done %q", q.retried, q.done)
		}
	})
}
