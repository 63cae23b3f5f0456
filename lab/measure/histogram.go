package measure

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// histogram counts durations up to an hour, each to a tenth of a percent, in memory that does not grow with their number.
type histogram struct{ *hdrhistogram.Histogram }

func newHistogram() histogram { return histogram{hdrhistogram.New(1, int64(time.Hour), 3)} }

func (h histogram) add(d time.Duration) { _ = h.RecordValue(int64(min(max(d, 0), time.Hour))) }

// meanMS is in milliseconds, 0 of nothing.
func (h histogram) meanMS() float64 { return h.Mean() / 1e6 }

// quantileMS is in milliseconds, 0 of nothing.
func (h histogram) quantileMS(q float64) float64 { return float64(h.ValueAtQuantile(100*q)) / 1e6 }

// interval has the values that were counted until then.
func (h histogram) interval(at time.Duration, perSecond float64) Interval {
	return Interval{At: at.Seconds(), PerSecond: perSecond, P50MS: h.quantileMS(0.5), P99MS: h.quantileMS(0.99)}
}

// timeline keeps how long transactions took by when they ended, in slices of
// equal length.
type timeline struct {
	start  time.Time
	slice  time.Duration
	mu     sync.Mutex
	slices []histogram
}

func newTimeline(length, slice time.Duration) *timeline {
	t := &timeline{slice: slice, slices: make([]histogram, (length+slice-1)/slice)}
	for i := range t.slices {
		t.slices[i] = newHistogram()
	}
	return t
}

// between adds up the slices that lie in from to to, at least one.
func (t *timeline) between(from, to time.Duration) histogram {
	t.mu.Lock()
	defer t.mu.Unlock()
	first := min(int((max(from, 0)+t.slice-1)/t.slice), len(t.slices)-1)
	last := min(max(int(to/t.slice), first+1), len(t.slices))
	sum := newHistogram()
	for i := first; i < last; i++ {
		sum.Merge(t.slices[i].Histogram)
	}
	return sum
}

// note keeps a transaction that ended at now. What ends after the timeline does
// is left out.
func (t *timeline) note(now time.Time, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at := int(now.Sub(t.start) / t.slice); at < len(t.slices) {
		t.slices[at].add(took)
	}
}
