package queuetest

import (
	"slices"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

var statusCases = named("Status", statusCounts, statusEndedLeases, statusSortedByName, statusUpTo, statusNamed)

func statusCounts(e *env) {
	e.deadLetter("x", job("dead"))
	e.enqueue(jobs("a", 4)...)
	e.enqueue(keyed("k", "k0"), keyed("k", "k1"), keyed("k", "k2"), after(time.Hour, "delayed"))
	e.same(e.claim(1), "a0")
	retried := e.claim(1)
	e.retry(retried[0], time.Hour, "x")
	var s admin.QueueStatus
	want := [5]int64{3, 1, 2, 2, 1}
	e.eventually("the status counts ready, running, delayed, waiting jobs and dead letters right", func() bool {
		s = e.status()
		return [5]int64{s.Ready, s.Running, s.Delayed, s.Waiting, s.DeadLetters} == want && s.OldestAge > 0
	})
	if s.OldestAge > suite.Deadline || s.Bytes <= 0 {
		e.Errorf("the status has an oldest age of %s and %d bytes", s.OldestAge, s.Bytes)
	}
}

// A worker that died runs nothing once its lease has ended, even if no worker has claimed since.
func statusEndedLeases(e *env) {
	e.enqueue(jobs("a", 2)...)
	e.claimAs(driver.Claim{Jobs: 1, Lease: suite.LongLease})
	e.claimAs(driver.Claim{Jobs: 1, Lease: suite.ShortLease})
	e.eventually("the lease that has ended is not counted as running", func() bool {
		s := e.status()
		return s.Running == 1 && s.Ready == 1
	})
}

func statusSortedByName(e *env) {
	for _, name := range []string{"z", "B", "ä", "a"} {
		e.Must(e.Store.CreateQueue(e.ctx, name, penstock.LIFO), "CreateQueue")
	}
	all := suite.Get(e.Store.QueueStatus(e.ctx)).Must(e, "QueueStatus")
	var got []string
	for _, s := range all {
		got = append(got, s.Queue)
		suite.Equal(e, s.Order, map[bool]penstock.QueueOrder{true: penstock.FIFO, false: penstock.LIFO}[s.Queue == queue], "order of queue %q", s.Queue)
	}
	suite.Equal(e, got, []string{"B", "a", queue, "z", "ä"}, "queues")
}

// If queues are named, only they are described; their settings are returned without counting
// anything.
func statusNamed(e *env) {
	e.Must(e.Store.CreateQueue(e.ctx, "other", penstock.LIFO), "CreateQueue")
	e.set(penstock.QueueSettings{MaxRunning: new(3)})
	e.enqueue(jobs("a", 3)...)
	read := map[string]func(names ...string) ([]admin.QueueStatus, error){
		"QueueStatus": func(names ...string) ([]admin.QueueStatus, error) { return e.Store.QueueStatus(e.ctx, names...) },
		"uncounted": func(names ...string) ([]admin.QueueStatus, error) {
			return e.Store.QueueStatusUpTo(e.ctx, -1, names...)
		},
	}
	for how, status := range read {
		for _, names := range [][]string{{queue}, {"none"}, {"other", queue}, nil} {
			all := suite.Get(status(names...)).Must(e, how)
			var got []string
			for _, s := range all {
				got = append(got, s.Queue)
				if want := map[bool]int64{true: 3}[s.Queue == queue && how != "uncounted"]; s.Ready != want || s.MaxRunning == nil || *s.MaxRunning != map[bool]int{true: 3}[s.Queue == queue] {
					e.Errorf("%s of %q: %+v, want %d jobs", how, names, s, want)
				}
			}
			want := slices.DeleteFunc([]string{"other", queue}, func(name string) bool { return names != nil && !slices.Contains(names, name) })
			if slices.Sort(want); !slices.Equal(got, want) {
				e.Errorf("%s of %q is that of %q", how, names, got)
			}
		}
	}
}

// A store that counts up to a limit names the figures that may be higher, and no others.
func statusUpTo(e *env) {
	e.deadLetter("x", job("dead"))
	e.enqueue(jobs("a", 20)...)
	e.enqueue(keyed("k", "k0"), keyed("k", "k1"), after(time.Hour, "delayed"))
	for most, want := range map[int][]string{1: {"dead_letters", "delayed", "ready", "waiting"}, 5: {"ready"}, 100: nil} {
		all := suite.Get(e.Store.QueueStatusUpTo(e.ctx, most)).Must(e, "QueueStatusUpTo")
		s := all[0]
		got := slices.Sorted(slices.Values(s.AtLeast))
		if figures := [3]int64{s.Ready, s.Delayed, s.DeadLetters}; !slices.Equal(got, want) || figures != [3]int64{min(21, int64(most)), 1, 1} {
			e.Errorf("counted up to %d there are %v jobs ready, delayed and dead, of %v at least; want %v", most, figures, got, want)
		}
	}
	if e.Reads != nil {
		reads := func() float64 {
			before := e.Reads(e)
			suite.Get(e.Store.QueueStatusUpTo(e.ctx, 10)).Must(e, "QueueStatusUpTo")
			return e.Reads(e) - before
		}
		more := func(n int) {
			for range n / 1000 {
				e.enqueue(make([]penstock.NewJob, 1000)...)
			}
		}
		more(12_000) // 10,000 are looked at however low the bound is
		few := min(reads(), reads())
		if more(12_000); min(reads(), reads()) > 1.5*few {
			e.Errorf("counted up to 10, it reads %.0f entries beside 12,000 jobs, and %.0f beside 24,000", few, reads())
		}
	}
	causes, ok := e.Store.(driver.JobCauseCounter)
	if !ok {
		return // one on plain tables
	}
	got := suite.Get(causes.DeadJobCauses(e.ctx, admin.DeadJobQuery{Queue: queue})).Must(e, "DeadJobCauses")
	if len(got) != 1 || got[0].Letters != 1 || got[0].Error != "x" || got[0].First.IsZero() || !got[0].First.Equal(got[0].Last) {
		e.Errorf("the causes are %+v", got)
	}
}
