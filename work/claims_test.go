package work_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/work"
)

// counting is a carrying fakeQueue that knows how many claims are running.
type counting struct {
	carrying
	under, most *int
}

func newCounting(jobs int) counting {
	q := counting{carrying{newFakeQueue(jobs)}, new(int), new(int)}
	q.set("claim", nil, 10*time.Millisecond)
	return q
}

func (q counting) begins() func() {
	q.mu.Lock()
	defer q.mu.Unlock()
	*q.under++
	*q.most = max(*q.most, *q.under)
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		*q.under--
	}
}

// mostSoFar is how many claims ran at a time since it was last called.
func (q counting) mostSoFar() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	most := *q.most
	*q.most = 0
	return most
}

func (q counting) Claim(ctx context.Context, c driver.Claim) ([]penstock.Job, error) {
	defer q.begins()()
	return q.carrying.Claim(ctx, c)
}

func (q counting) AckClaim(ctx context.Context, acks []int64, c driver.Claim) ([]int64, []penstock.Job, error) {
	defer q.begins()()
	return q.carrying.AckClaim(ctx, acks, c)
}

func (q counting) Release(ctx context.Context, after time.Duration, leases ...int64) ([]int64, error) {
	return releasing{q.fakeQueue}.Release(ctx, after, leases...)
}

// With a backlog several claims run at a time, and without one only one. Every job runs once.
func TestWorkClaimsSideBySide(t *testing.T) {
	for _, c := range []struct {
		name string
		o    work.Options
		most int
	}{
		{"default", work.Options{}, 3}, // half of what four may claim ahead is claimed anew
		{"two", work.Options{Claims: 2}, 2},
		{"one", work.Options{Claims: 1}, 1},
		{"one handler keeps the order", work.Options{Concurrency: 1}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newCounting(5000)
				seen, stop := begin(t, q, nothing, c.o)
				for seen.count(work.Done) < 5000 {
					time.Sleep(time.Millisecond)
				}
				time.Sleep(time.Second) // the claims that the backlog began have ended
				if most := q.mostSoFar(); most != c.most {
					t.Errorf("at most %d claims were under way, want %d", most, c.most)
				}
				time.Sleep(time.Second)
				if most := q.mostSoFar(); most != 1 {
					t.Errorf("without a backlog %d claims were under way, want 1", most)
				}
				if err := stop(); err != nil || len(q.done) != 5000 || len(slices.Compact(slices.Sorted(slices.Values(q.done)))) != 5000 {
					t.Errorf("%d were done, error %v", len(q.done), err)
				}
			})
		})
	}
}

// Slow jobs are not claimed beyond the number of handlers, however many claims may run.
func TestWorkClaimsNoMoreThanBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newCounting(500)
		_, stop := begin(t, q, func(context.Context, penstock.Job) error {
			time.Sleep(time.Second)
			return nil
		}, work.Options{Concurrency: 5})
		for range 500 {
			time.Sleep(13 * time.Millisecond)
			q.mu.Lock()
			if n := len(q.leases); n > 10 { // those whose ends are not written yet are among them
				t.Fatalf("%d jobs are leased, for 5 handlers", n)
			}
			q.mu.Unlock()
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// When Run has been told to stop, it gives back what several running claims bring: none of it is left with
// a lease.
func TestWorkStopsDuringSeveralClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newCounting(2000)
		var slow atomic.Bool
		seen, stop := begin(t, q, func(context.Context, penstock.Job) error {
			if slow.Load() {
				time.Sleep(time.Second)
			}
			return nil
		}, work.Options{})
		for {
			q.mu.Lock()
			under := *q.under
			q.mu.Unlock()
			if under == 3 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		slow.Store(true)
		if err := stop(); err != nil {
			t.Error(err)
		}
		freed := seen.count(work.Released)
		if freed == 0 || len(q.leases) != 0 || len(q.freed) != freed || len(q.done)+freed+len(q.waiting) != 2000 {
			t.Errorf("%d done, %d given back (the observer saw %d), %d wait, %d are leased", len(q.done), len(q.freed), freed, len(q.waiting), len(q.leases))
		}
	})
}

// Parallel claims that fail are logged once at a time, and the remaining jobs run when the database is
// back.
func TestWorkSeveralClaimsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newCounting(3000)
		seen, stop := begin(t, q, nothing, work.Options{})
		for seen.count(work.Done) < 500 {
			time.Sleep(time.Millisecond)
		}
		q.set("ackclaim", context.DeadlineExceeded, 0)
		q.set("claim", context.DeadlineExceeded, 0)
		time.Sleep(time.Minute)
		q.mu.Lock()
		before := q.calls["claim"]
		q.mu.Unlock()
		time.Sleep(time.Minute)
		q.mu.Lock()
		if calls := q.calls["claim"] - before; calls > 30 {
			t.Errorf("%d claims in a minute of an outage, want a growing pause between them", calls)
		}
		q.mu.Unlock()
		q.set("ackclaim", nil, 0)
		q.set("claim", nil, time.Millisecond)
		// The fake queue applies the acks of a claim that fails: such jobs are reported as lost.
		for seen.count(work.Done)+seen.count(work.Lost) < 3000 {
			time.Sleep(10 * time.Millisecond)
		}
		if err := stop(); err != nil || len(q.leases) != 0 {
			t.Errorf("%d are leased, error %v", len(q.leases), err)
		}
	})
}

// timedQueue notes when it is called, by call.
type timedQueue struct {
	*fakeQueue
	at map[string][]time.Time
}

func (q *timedQueue) Claim(ctx context.Context, c driver.Claim) ([]penstock.Job, error) {
	q.note("claim")
	return q.fakeQueue.Claim(ctx, c)
}

func (q *timedQueue) Maintain(ctx context.Context) error {
	q.note("maintain")
	return q.fakeQueue.Maintain(ctx)
}

func (q *timedQueue) note(call string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.at[call] = append(q.at[call], time.Now())
}

// Workers that start together soon claim at different times.
func TestWorkersThatBeginTogetherSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers = 200
		q := &timedQueue{newFakeQueue(0), map[string][]time.Time{}}
		var stops []func() error
		for range workers {
			_, stop := begin(t, q, nothing, work.Options{PollMin: time.Second, PollMax: time.Second})
			stops = append(stops, stop)
		}
		time.Sleep(time.Minute)
		began := time.Now()
		time.Sleep(time.Second)
		for _, stop := range stops {
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
		for call, all := range q.at {
			at := map[time.Duration]int{}
			for _, when := range all {
				if when.After(began) {
					at[when.Sub(began)/(10*time.Millisecond)]++
				}
			}
			most := 0
			for _, n := range at {
				most = max(most, n)
			}
			if len(at) < 50 || most > workers/4 {
				t.Errorf("after a minute %s comes in %d of 100 moments of a second, up to %d at once", call, len(at), most)
			}
		}
	})
}

// limited is a queue of which at most limit jobs may run at a time.
type limited struct {
	carrying
	limit int
	most  *int // that have run at a time
}

func (q limited) AckClaim(ctx context.Context, acks []int64, c driver.Claim) ([]int64, []penstock.Job, error) {
	q.mu.Lock()
	room := q.limit - len(q.leases) + len(acks)
	q.mu.Unlock()
	full := 2*(room-c.Jobs) < q.limit
	var acked []int64
	var jobs []penstock.Job
	var err error
	if c.Jobs = min(c.Jobs, room); c.Jobs > 0 {
		acked, jobs, err = q.carrying.AckClaim(ctx, acks, c)
	} else {
		acked, err = q.Ack(ctx, acks...)
	}
	if full {
		acked = append(acked, driver.Full)
	}
	q.mu.Lock()
	*q.most = max(*q.most, len(q.leases))
	q.mu.Unlock()
	return acked, jobs, err
}

// Under a limit the end of a job makes room for the next one at once, however long the pauses between claims are. No job is claimed
// ahead, which another worker could run.
func TestWorkKeepsALimitFull(t *testing.T) {
	for _, c := range []struct{ limit, most int }{{4, 4}, {6, 4}, {3, 3}} {
		t.Run(fmt.Sprint(c.limit), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := limited{carrying{newFakeQueue(60)}, c.limit, new(int)}
				began := time.Now()
				_, stop := begin(t, q, func(_ context.Context, j penstock.Job) error {
					time.Sleep(50*time.Millisecond + time.Duration(j.ID)*time.Nanosecond) // they end one by one
					return nil
				}, work.Options{Concurrency: 4, PollMin: time.Hour, PollMax: time.Hour, AckEvery: time.Minute})
				time.Sleep(time.Duration(60/c.most)*50*time.Millisecond + time.Millisecond)
				q.mu.Lock()
				if len(q.done) < 56 || len(q.waiting) > 0 || *q.most != c.most {
					t.Errorf("after %s %d of 60 jobs are done, %d wait, and up to %d ran at a time, want %d", time.Since(began), len(q.done), len(q.waiting), *q.most, c.most)
				}
				q.mu.Unlock()
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// keyed is a queue that has jobs of one key: the next one is ready once the one before it has ended.
type keyed struct{ carrying }

func (q keyed) AckClaim(ctx context.Context, acks []int64, c driver.Claim) ([]int64, []penstock.Job, error) {
	q.mu.Lock()
	running := len(q.leases) - len(acks)
	q.mu.Unlock()
	if running > 0 {
		acked, err := q.Ack(ctx, acks...)
		return acked, nil, err
	}
	c.Jobs = 1
	acked, jobs, err := q.carrying.AckClaim(ctx, acks, c)
	for i := range jobs {
		jobs[i].Key = "k"
	}
	return acked, jobs, err
}

func (q keyed) Claim(ctx context.Context, c driver.Claim) ([]penstock.Job, error) {
	_, jobs, err := q.AckClaim(ctx, nil, c)
	return jobs, err
}

// The next job of a key begins once the one before it has ended, however long the pauses between claims are.
func TestWorkGoesOnWithAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := keyed{carrying{newFakeQueue(60)}}
		_, stop := begin(t, q, func(context.Context, penstock.Job) error {
			time.Sleep(50 * time.Millisecond)
			return nil
		}, work.Options{Concurrency: 4, PollMin: time.Hour, PollMax: time.Hour, AckEvery: time.Minute})
		time.Sleep(60*50*time.Millisecond + time.Millisecond)
		q.mu.Lock()
		if len(q.done) < 59 {
			t.Errorf("after 60 times as long as a job takes, %d of 60 jobs of a key are done", len(q.done))
		}
		q.mu.Unlock()
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// holding is a queue whose claims find their jobs at once and answer late. It has one group, which a handler may hold.
type holding struct {
	releasing
	held *time.Time
}

func (q holding) HoldGroup(_ context.Context, _ string, d time.Duration, _ string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	*q.held = time.Now().Add(d)
	return nil
}

func (q holding) Claim(ctx context.Context, c driver.Claim) ([]penstock.Job, error) {
	q.mu.Lock()
	held := time.Now().Before(*q.held)
	q.mu.Unlock()
	if held {
		return nil, nil
	}
	jobs, err := q.releasing.Claim(ctx, c)
	time.Sleep(10 * time.Millisecond)
	return jobs, err
}

// A claim that has begun when a handler holds its group brings jobs of the group. They are given back.
func TestClaimsUnderWayDuringAHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := holding{releasing{newFakeQueue(200)}, new(time.Time)}
		late, begun := 0, 0
		seen, stop := begin(t, q, func(context.Context, penstock.Job) error {
			time.Sleep(time.Millisecond)
			q.mu.Lock()
			defer q.mu.Unlock()
			if time.Now().Before(*q.held) {
				late++
			}
			if begun++; begun == 55 { // half of the jobs claimed ahead have begun, so a claim is under way
				return work.HoldGroup(time.Minute, "429")
			}
			return nil
		}, work.Options{Concurrency: 1})
		time.Sleep(30 * time.Second)
		if late > 0 || seen.count(work.Released) < 10 || seen.count(work.Snoozed) != 1 {
			t.Errorf("%d jobs began while their group was held, %d were given back, %d held it; want 0, at least 10, 1", late, seen.count(work.Released), seen.count(work.Snoozed))
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// Jobs that were claimed ahead of handlers that hang are given back, for other workers. The next are claimed when a handler has ended.
func TestWorkGivesBackWhatHandlersDoNotReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, goOn := releasing{newFakeQueue(500)}, make(chan struct{})
		const lease, many = 30 * time.Second, 5
		begun := 0
		_, stop := begin(t, q, func(context.Context, penstock.Job) error {
			q.mu.Lock()
			begun++
			hangs := begun > 50
			q.mu.Unlock()
			if hangs {
				<-goOn
			}
			return nil
		}, work.Options{Concurrency: many, Lease: lease})
		time.Sleep(time.Second)
		leased := func() int {
			q.mu.Lock()
			defer q.mu.Unlock()
			return len(q.leases)
		}
		if n := leased(); n <= many {
			t.Fatalf("%d jobs are leased, for %d handlers: none is claimed ahead", n, many)
		}
		time.Sleep(lease)
		if n := leased(); n != many {
			t.Errorf("%d jobs are leased after the time of a lease, for %d handlers that hang", n, many)
		}
		close(goOn)
		time.Sleep(time.Minute)
		if err := stop(); err != nil || len(q.done)+len(q.freed) != 500 || len(q.freed) == 0 {
			t.Errorf("%d jobs were done, %d were given back, error %v", len(q.done), len(q.freed), err)
		}
	})
}
