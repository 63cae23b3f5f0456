package tables

import (
	"sync"
	"time"
)

// Passed is the database's time up to which no row is left of those that are looked for in order of time. A process looks from there on, and does
// not read rows that were deleted before. It is not a guarantee: rows that commit late, before it, are found by looking everywhere again. Safe for
// concurrent use.
type Passed struct {
	mu   sync.Mutex
	to   time.Time
	all  time.Time     // when it was looked everywhere
	took time.Duration // how long that took
}

// Since is after when to look, this time; the zero time: everywhere. Which is due each sweep, and takes a small part of the time at most.
func (p *Passed) Since(sweep time.Duration) *Since {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &Since{passed: p, begun: time.Now(), Time: p.to}
	if s.begun.Sub(p.all) > max(sweep, sweepPart*p.took) {
		s.Time, p.all = time.Time{}, s.begun
	}
	return s
}

// Forget has the next look be everywhere.
func (p *Passed) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = time.Time{}
}

// Since is one look.
type Since struct {
	time.Time
	passed *Passed
	begun  time.Time
}

// Found notes the result: something is left, or nothing before a time.
func (s *Since) Found(left bool, before time.Time) {
	s.passed.mu.Lock()
	defer s.passed.mu.Unlock()
	if s.IsZero() {
		s.passed.took = time.Since(s.begun)
	}
	switch {
	case left && s.IsZero():
		s.passed.to = time.Time{}
	case !left && (s.IsZero() || before.After(s.passed.to)):
		s.passed.to = before
	}
}
