package tables

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// A claim that looks again at the times of jobs taken lately may find enough at once, of the newest jobs. Then the next claim does not
// look at the other times.
func TestLookThatEndsEarly(t *testing.T) {
	s := NewSeen(true)
	base := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return base.Add(time.Duration(seconds) * time.Second) }
	claim := func(now time.Time, lookAgain time.Duration, page ...Claimed) []Range {
		r := s.Round(driver.Claim{Jobs: 1}, Options{Margin: 10 * time.Second, Sweep: time.Hour, LookAgain: lookAgain}, 1)
		r.There, r.Now, r.Page = true, now, page
		r.Note(len(page) > 0)
		var of []Range
		for _, p := range r.Ranges {
			if p.Priority == 0 {
				of = append(of, p)
			}
		}
		return of
	}
	job := func(ts time.Time, lease int64) Claimed {
		return Claimed{TS: ts, Fresh: true, Job: penstock.Job{ID: ts.Unix(), Lease: lease}}
	}
	claim(at(100), -1) // nothing is there
	look := claim(at(102), -1, job(at(102), 1), job(at(101), 0))
	if len(look) != 1 || look[0].After.After(at(100)) {
		t.Fatalf("it looks at %v, want all of the margin", look)
	}
	for _, r := range claim(at(103), time.Hour, job(at(101), 2)) {
		if r.After.Before(at(100)) {
			t.Errorf("the next claim looks at %v again", r)
		}
	}
}

// While a snapshot keeps deleted rows, a claim that looks at everything again walks over all of it, and other claims wait. However much that becomes, such claims
// take a small part of the time. They are as often as the options set where nothing is to walk over.
func TestSweepsOfClaims(t *testing.T) {
	t.Parallel()
	const sweep, entry, rest, hour = 15 * time.Second, time.Microsecond, 100 * time.Millisecond, time.Hour
	for name, pinned := range map[string]bool{"pinned": true, "cleaned up": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, start := NewSeen(false), time.Now()
				var sweeps int
				var walked, longest time.Duration
				for begun := start; time.Since(start) < hour; begun = time.Now() {
					r := s.Round(driver.Claim{Jobs: 1}, Options{Margin: 10 * time.Second, Sweep: sweep, LookAgain: 250 * time.Millisecond}, 1)
					r.There, r.Now = true, begun
					walk := time.Duration(0)
					for _, p := range r.Ranges { // of one priority 100 jobs a second are deleted
						if from := max(p.After.Sub(start), 0); pinned && p.Priority == 0 {
							walk += (min(p.UpTo.Sub(start), begun.Sub(start)) - from).Truncate(10*time.Millisecond) / (10 * time.Millisecond) * entry
						}
					}
					time.Sleep(walk + 5*time.Millisecond)
					if r.cut == noTime {
						sweeps, walked, longest = sweeps+1, walked+walk, max(longest, walk)
					}
					r.Note(true)
					time.Sleep(rest)
				}
				t.Logf("%d sweeps walked for %v, the longest for %v", sweeps, walked, longest)
				if pinned && walked > hour/sweepPart {
					t.Errorf("%d sweeps walked for %v in an hour, want %v at most", sweeps, walked, hour/sweepPart)
				}
				if want := int(hour/sweep) * 9 / 10; !pinned && sweeps < want {
					t.Errorf("%d sweeps in an hour, want %d at least", sweeps, want)
				}
			})
		})
	}
}

// lateJob is a job of a queue in which the rows of jobs that are taken stay, as they do while a snapshot is open.
type lateJob struct {
	ts, commits, gone time.Time
	locked            bool
}

// lateQueue is a queue with jobs that commit later than jobs with later times.
type lateQueue struct {
	lifo   bool
	mu     sync.Mutex
	jobs   []*lateJob // in order of time
	waited []time.Duration
}

// round is a claim's statement, which takes 2 ms.
func (q *lateQueue) round(r *Round) {
	const statement = 2 * time.Millisecond
	q.mu.Lock()
	r.There, r.Now = true, time.Now()
	for _, in := range r.Ranges {
		if in.Priority != 0 {
			continue
		}
		seen := 0
		for i := range q.jobs {
			at := i
			if q.lifo {
				at = len(q.jobs) - 1 - i
			}
			j := q.jobs[at]
			if j.ts.After(in.After) && !j.ts.After(in.UpTo) && !j.commits.After(r.Now) && (j.gone.IsZero() || j.gone.After(r.Now)) {
				r.Page = append(r.Page, Claimed{TS: j.ts, Fresh: true, Job: penstock.Job{ID: int64(at)}})
				if seen++; seen == r.Window {
					break
				}
			}
		}
	}
	slices.SortStableFunc(r.Page, func(a, b Claimed) int {
		if q.lifo {
			a, b = b, a
		}
		return a.TS.Compare(b.TS)
	})
	room := r.Jobs
	for i := range r.Page {
		if j := q.jobs[r.Page[i].Job.ID]; room > 0 && !j.locked {
			room--
			j.locked, j.gone, r.Page[i].Job.Lease = true, r.Now.Add(statement), 1
			q.waited = append(q.waited, r.Now.Sub(j.commits))
		}
	}
	q.mu.Unlock()
	time.Sleep(statement)
}

// A job is claimed soon after it has committed, although jobs with later times were claimed before, and however many such jobs there are.
func TestJobsThatCommitLate(t *testing.T) {
	t.Parallel()
	const every, run, soon = 2500 * time.Microsecond, 3 * time.Second, time.Second
	for name, commits := range map[string]func(n int, at time.Duration) time.Duration{
		"each takes 2 ms": func(_ int, at time.Duration) time.Duration { return at + 2*time.Millisecond },
		"one in ten takes longer": func(n int, at time.Duration) time.Duration {
			return at + 2*time.Millisecond*time.Duration(1+n%10/9*n%100)
		},
		"half of them in one of a while": func(n int, at time.Duration) time.Duration {
			if n%2 == 0 {
				return max(at, run/2)
			}
			return at + 2*time.Millisecond
		},
	} {
		for _, order := range []penstock.QueueOrder{penstock.FIFO, penstock.LIFO} {
			t.Run(name+", "+string(order), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					seen, start := NewSeen(order == penstock.LIFO), time.Now()
					q := &lateQueue{lifo: order == penstock.LIFO}
					var workers sync.WaitGroup
					for range 10 {
						workers.Go(func() {
							for time.Since(start) < run+2*soon {
								jobs, err := seen.Claim(driver.Claim{Jobs: 1}, Options{Margin: 10 * time.Second, Sweep: 15 * time.Second, LookAgain: 250 * time.Millisecond, Ended: time.Second},
									func(r *Round) error { q.round(r); return nil }, nil)
								if err != nil {
									t.Error(err)
								}
								if time.Sleep(3 * time.Millisecond); len(jobs) == 0 {
									time.Sleep(20 * time.Millisecond)
								}
							}
						})
					}
					for n := 0; time.Since(start) < run; n++ {
						q.mu.Lock()
						q.jobs = append(q.jobs, &lateJob{ts: time.Now(), commits: start.Add(commits(n, time.Since(start)))})
						q.mu.Unlock()
						time.Sleep(every)
					}
					workers.Wait()
					t.Logf("%d jobs of %d were taken, the last %v after its commit", len(q.waited), len(q.jobs), slices.Max(q.waited))
					if len(q.waited) < len(q.jobs) || slices.Max(q.waited) > soon {
						t.Errorf("want all, within %v", soon)
					}
				})
			})
		}
	}
}

// A claim that finds its jobs locked by another one looks at as many more, and not at all of the queue. When nothing is locked any more, claims soon look at no more
// than they may take.
func TestJobsThatOthersAreTaking(t *testing.T) {
	t.Parallel()
	const want, first = 100, 300
	s, now, seq := NewSeen(false), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), int64(0)
	claim := func(locked int) (jobs, looked, rounds int) {
		got, err := s.Claim(driver.Claim{Jobs: want}, Options{Margin: time.Second, Sweep: time.Hour, LookAgain: time.Hour}, func(r *Round) error {
			r.There, r.Now, r.Page = true, now.Add(time.Hour), nil
			for i := range r.Window {
				seq++
				p := Claimed{TS: now.Add(time.Duration(seq) * time.Millisecond), Fresh: true, Job: penstock.Job{ID: seq}}
				if i >= locked && i < locked+r.Jobs {
					p.Job.Lease = seq
				}
				r.Page = append(r.Page, p)
			}
			looked, rounds = looked+r.Window, rounds+1
			return nil
		}, func(time.Time) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		return len(got), looked, rounds
	}
	if jobs, looked, rounds := claim(first); jobs == 0 || looked > 2*(first+want) || rounds > 1+mostOthers {
		t.Errorf("%d jobs were found in %d rounds, which looked at %d", jobs, rounds, looked)
	}
	for range 60 {
		claim(0)
	}
	if _, looked, _ := claim(0); looked > want+2 {
		t.Errorf("a claim of %d looks at %d jobs, though nothing has been locked for long", want, looked)
	}
}

// The first jobs of keys are in none of the ranges, and were never tried. However many a claim leaves, it knows since when no job must be tried again.
func TestHeadsFillNoPage(t *testing.T) {
	t.Parallel()
	s, now := NewSeen(false), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	o := Options{Margin: 10 * time.Second, Sweep: time.Hour, LookAgain: time.Hour, Heads: true}
	round := func(now time.Time, page ...Claimed) *Round {
		r := s.Round(driver.Claim{Jobs: 1}, o, 1)
		r.There, r.Whole, r.Now, r.Page = true, true, now, page
		r.Note(true)
		return r
	}
	round(now, Claimed{TS: now.Add(-time.Minute), Fresh: true, Waits: true, Job: penstock.Job{ID: 1, Key: "k"}})
	var heads []Claimed
	for i := range int64(40) { // more than it looks at of each range
		heads = append(heads, Claimed{TS: now.Add(-time.Hour), Head: true, Job: penstock.Job{ID: 2 + i, Key: "k", Lease: max(1-i, 0)}})
	}
	now = now.Add(time.Minute)
	round(now, heads...)
	r := round(now)
	if want := now.Add(-o.Margin); !r.Tried.Equal(want) || !slices.Equal(r.Keys, []string{"k"}) {
		t.Errorf("it looks for jobs to try again from %v and for the keys %q, want from %v and k", r.Tried, r.Keys, want)
	}
}

// A claim looks up the first job of a key for as long as one is left that it passed over, and no longer: each costs it a few lookups.
func TestKeysOfWhichNoneIsLeftAreForgotten(t *testing.T) {
	t.Parallel()
	base := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	job := func(id int64, of Claimed) Claimed { // they are a second apart
		of.TS, of.Job.ID, of.Job.Key = base.Add(time.Duration(id)*time.Second), id, "k"
		return of
	}
	taken := penstock.Job{Lease: 1}
	for name, c := range map[string]struct {
		page   []Claimed
		firsts map[string]Claimed
		kept   bool
	}{
		"nothing is known":           {kept: true},
		"an earlier one is taken":    {page: []Claimed{job(2, Claimed{Job: taken, Head: true})}, kept: true},
		"the last is taken":          {page: []Claimed{job(3, Claimed{Job: taken, Head: true})}},
		"one behind it is taken":     {page: []Claimed{job(4, Claimed{Job: taken, Fresh: true})}},
		"one behind it is seen":      {page: []Claimed{job(4, Claimed{Fresh: true})}, kept: true},
		"one behind it is retried":   {page: []Claimed{job(4, Claimed{Job: taken})}, kept: true},
		"an earlier one is first":    {firsts: map[string]Claimed{"k": job(2, Claimed{})}, kept: true},
		"the last is first":          {firsts: map[string]Claimed{"k": job(3, Claimed{})}, kept: true},
		"one behind it is first":     {firsts: map[string]Claimed{"k": job(4, Claimed{})}},
		"the key has no job":         {firsts: map[string]Claimed{"k": {}}},
		"the key is held":            {firsts: map[string]Claimed{}, kept: true},
		"it passes over another one": {firsts: map[string]Claimed{"k": {}}, page: []Claimed{job(5, Claimed{Fresh: true, Waits: true})}, kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewSeen(false)
			begin := func(seconds int, lookAgain time.Duration) *Round {
				r := s.Round(driver.Claim{Jobs: 10}, Options{Margin: time.Minute, Sweep: time.Hour, LookAgain: lookAgain, Heads: true}, 10)
				r.There, r.Now = true, base.Add(time.Duration(seconds)*time.Second)
				return r
			}
			looked := func() bool { return len(begin(20, time.Hour).Keys) > 0 }
			r := begin(3, time.Hour)
			r.Page = []Claimed{job(1, Claimed{Job: taken, Fresh: true}), job(2, Claimed{Fresh: true, Waits: true}), job(3, Claimed{Fresh: true, Waits: true})}
			r.Note(true)
			r, before, again := begin(20, time.Hour), begin(20, time.Hour), begin(20, -1)
			r.Page, r.Firsts = c.page, c.firsts
			r.Note(true)
			if looked() != c.kept {
				t.Errorf("the key is looked up: %v, want %v", looked(), c.kept)
			}
			again.Page = []Claimed{job(2, Claimed{Fresh: true, Waits: true})} // it committed late
			again.Note(true)
			before.Page, before.Firsts = c.page, c.firsts
			before.Note(true)
			if !looked() {
				t.Error("the key is not looked up, though a claim has passed over one of its jobs since another began, which has seen none")
			}
		})
	}
}
