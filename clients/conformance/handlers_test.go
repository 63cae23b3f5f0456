package conformance_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/work"
)

// The program reads the error that a handler throws. If reading fails as well, the job has failed like any other, and those behind it run.
func TestUnreadableFailures(t *testing.T) {
	each(t, func(g *goal, l *language) {
		q := g.queue()
		g.enqueue("bad", "good")
		var ran seen
		stop := g.working(q, func(_ context.Context, j penstock.Job) error {
			ran.add(j)
			if string(j.Payload) == "bad" {
				return errUnreadable
			}
			return nil
		}, work.Options{Concurrency: 1})
		g.eventually("one job is done, and one is to be tried again", func() bool { s := g.status(); return s.Delayed == 1 && s.Ready+s.Running == 0 })
		must(g, stop())
		if got := ran.attempts(); !strings.HasPrefix(got, "bad 1, ") || !strings.Contains(got, "good 1") { // a slow machine may see the second attempt of bad
			g.Errorf("handlers ran as %q, want both", got)
		}
	})
}

// Numbers of jobs and leases are exact, even beyond the precision of floating point.
func TestNumbersBeyondFloatingPoint(t *testing.T) {
	each(t, func(g *goal, l *language) {
		q := g.queue()
		const first = 1<<53 + 1
		execute(g, g.url, fmt.Sprintf(`select setval('penstock."_%s.seq"', %d, false), setval('penstock._lease_n', 1::bigint << 42)`, queue, int64(first)))
		want := map[int64]bool{}
		for _, kind := range q.c.hello.Kinds {
			t, err := q.c.beginAs(g.ctx, kind)
			must(g, err)
			for range 2 {
				one, err := t.Enqueue(g.ctx, queue, penstock.NewJob{})
				must(g, err)
				two, err := t.Enqueue(g.ctx, queue, penstock.NewJob{}, penstock.NewJob{})
				must(g, err)
				for _, e := range append(one, two...) {
					if e.ID < first || want[e.ID] {
						g.Errorf("%s: a job has the number %d, want each its own from %d on", kind, e.ID, int64(first))
					}
					want[e.ID] = true
				}
			}
			must(g, t.Commit(g.ctx))
		}
		all := slices.Sorted(maps.Keys(want))
		if last := all[len(all)-1]; last-first+1 != int64(len(all)) {
			g.Errorf("%d jobs have the numbers %d to %d, want those without a gap", len(all), all[0], last)
		}
		jobs, err := q.Claim(g.ctx, driver.Claim{Jobs: 2, Lease: time.Minute})
		must(g, err)
		for i, j := range jobs {
			if j.ID != all[i] || j.Lease < 1<<62 {
				g.Errorf("the claim has job %d with lease %d, want job %d", j.ID, j.Lease, all[i])
			}
		}
		held, err := q.Extend(g.ctx, time.Minute, jobs[0].Lease, jobs[1].Lease)
		must(g, err)
		if !slices.Equal(held, []int64{jobs[0].Lease, jobs[1].Lease}) {
			g.Errorf("extended %d, want the leases of %+v", held, jobs)
		}
		held, err = q.Release(g.ctx, 0, jobs[0].Lease)
		must(g, err)
		_, err = q.Retry(g.ctx, jobs[1].Lease, 0, "once more")
		must(g, err)
		var ran seen
		stop := g.working(q, func(_ context.Context, j penstock.Job) error { ran.add(j); return nil }, work.Options{})
		g.eventually("all are done", func() bool { s := g.status(); return s.Ready+s.Running+s.Delayed == 0 })
		must(g, stop())
		for _, j := range ran.jobs {
			delete(want, j.ID)
		}
		if len(want) > 0 || ran.count() != len(all) || len(held) != 1 {
			g.Errorf("%d of %d jobs ran, not with the numbers %v", ran.count(), len(all), want)
		}
	})
}

// A worker that stops with many jobs claimed and few begun spends no attempt of the others.
func TestStoppedWithManyClaimed(t *testing.T) {
	each(t, func(g *goal, l *language) {
		const jobs, quick, slots = 400, 100, 2
		q := g.queue()
		_, err := g.native().Enqueue(g.ctx, slices.Repeat([]penstock.NewJob{{}}, jobs)...)
		must(g, err)
		release := make(chan struct{})
		var begun seen
		stop := g.working(q, func(_ context.Context, j penstock.Job) error {
			if begun.add(j); begun.count() > quick { // quick jobs come first, so it claims ahead
				<-release
			}
			return nil
		}, work.Options{Concurrency: slots, Batch: 250, Lease: time.Hour, DrainTimeout: time.Hour})
		g.eventually("two are held up", func() bool { return begun.count() == quick+slots })
		g.Logf("it holds %d jobs", g.status().Running)
		ended := make(chan error, 1)
		go func() { ended <- stop() }()
		g.eventually("what has not begun is given back", func() bool { return g.status().Ready == jobs-quick-slots })
		close(release)
		must(g, <-ended)
		left, err := g.native().Claim(g.ctx, driver.Claim{Jobs: jobs, Lease: time.Minute})
		must(g, err)
		if spent := slices.DeleteFunc(slices.Clone(left), func(j penstock.Job) bool { return j.Attempt == 1 }); len(left) != jobs-quick-slots || len(spent) > 0 {
			g.Errorf("%d jobs are left, and %d have spent an attempt, want %d and none", len(left), len(spent), jobs-quick-slots)
		}
	})
}
