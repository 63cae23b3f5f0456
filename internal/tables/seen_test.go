package tables

import (
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
	claim(at(100), time.Hour) // nothing is there
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
