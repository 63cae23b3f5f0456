package measure

import (
	"sync"
	"time"
)

// timeline keeps how long transactions took by when they ended, in slices of
// equal length.
type timeline struct {
	start  time.Time
	slice  time.Duration
	mu     sync.Mutex
	slices []histogram
}

func newTimeline(length, slice time.Duration) *timeline {
	return &timeline{slice: slice, slices: make([]histogram, (length+slice-1)/slice)}
}

// between adds up the slices that lie in from to to, at least one.
func (t *timeline) between(from, to time.Duration) *histogram {
	t.mu.Lock()
	defer t.mu.Unlock()
	first := min(int((max(from, 0)+t.slice-1)/t.slice), len(t.slices)-1)
	last := min(max(int(to/t.slice), first+1), len(t.slices))
	var sum histogram
	for i := first; i < last; i++ {
		sum.merge(&t.slices[i])
	}
	return &sum
}

// scribe writes into a timeline for one goroutine.
type scribe struct {
	*timeline
	at int
	h  histogram
}

// note keeps a transaction that ended at now. What ends after the timeline does
// is left out.
func (s *scribe) note(now time.Time, took time.Duration) {
	at := int(now.Sub(s.start) / s.slice)
	if at != s.at {
		s.flush()
		s.at = at
	}
	s.h.add(took)
}

func (s *scribe) flush() {
	if s.at < len(s.slices) && s.h.total > 0 {
		s.mu.Lock()
		s.slices[s.at].merge(&s.h)
		s.mu.Unlock()
	}
	s.h = histogram{}
}
