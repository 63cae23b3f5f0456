package tables

import (
	"testing"
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
