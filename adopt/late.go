package adopt

import (
	"context"
	"sync"
	"time"
)

// late are rows that were found behind the head by looking back. Safe for concurrent use.
//
// How late a row is is how long ago its place was the head. What a transaction that was
// seen in flight has written is found by the first read after its commit (track.saw). But
// a transaction may choose the place, its start time say, long before it writes
// anything, and then commit between two reads. For these, levels of looking back: each
// covers four times as much as the one before, and is four times as seldom. So a row that
// is late by t is found after about 4t at most, and each place is looked at a few times in
// all. The last level is the sweep: everything below the margin.
type late struct {
	on bool // guarded by Source.mu: reading is by order

	mu    sync.Mutex
	ids   []string
	known map[string]bool // in ids
	sweep chan struct{}   // poked: now
	room  chan struct{}   // poked: ids were taken
}

// maxLate bounds the ids in memory.
const maxLate = 20_000

func (l *late) reset() {
	l.known, l.sweep, l.room = map[string]bool{}, make(chan struct{}, 1), make(chan struct{}, 1)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// hurry has the sweep begin.
func (l *late) hurry() { poke(l.sweep) }

func (l *late) add(ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		if !l.known[id] {
			l.known[id] = true
			l.ids = append(l.ids, id)
		}
	}
}

func (l *late) waiting() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.ids) > 0
}

func (l *late) has(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known[id]
}

func (l *late) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.ids) >= maxLate
}

func (l *late) take(n int) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	n = min(max(n, 0), len(l.ids))
	ids := l.ids[:n:n]
	l.ids = l.ids[n:]
	for _, id := range ids {
		delete(l.known, id)
	}
	if n > 0 {
		poke(l.room)
	}
	return ids
}

// giveBack returns what was taken and not delivered, to the front.
func (l *late) giveBack(ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var back []string
	for _, id := range ids {
		if !l.known[id] {
			l.known[id] = true
			back = append(back, id)
		}
	}
	l.ids = append(back, l.ids...)
}

// firstLevel is how far the first level looks back. Below it is the slack of each read.
const firstLevel = 4 * slackTime

// levels are how far back is looked: up to the margin, which is the last.
func levels(margin time.Duration) (spans []time.Duration) {
	for span := firstLevel; span < margin; span *= 4 {
		spans = append(spans, span)
	}
	return append(spans, margin)
}

// sweepShare bounds what sweeping costs: it rests for so many times as long as it took.
const sweepShare = 10

// lookBack looks for late rows until ctx ends. It has a connection of its own at a time,
// so it delays no read.
func (s *Source) lookBack(ctx context.Context) {
	spans := levels(s.m.config.Margin)
	next := make([]time.Time, len(spans))
	now := time.Now()
	for i, span := range spans {
		next[i] = now.Add(span)
	}
	sweep, failed := now, false // what is below the mark that this session began with may be anything
	for {
		due, level := sweep, -1
		for i := range next {
			if next[i].Before(due) {
				due, level = next[i], i
			}
		}
		if !s.pauseLooking(ctx, time.Until(due), &level) {
			return
		}
		began := time.Now()
		var more bool
		var err error
		if level < 0 {
			more, err = s.lookBelow(ctx)
			sweep = time.Now().Add(s.restAfter(began, s.m.config.Sweep, more))
		} else {
			more, err = s.lookWithin(ctx, spans[level])
			for i := range level + 1 { // it covered those before
				next[i] = time.Now().Add(s.restAfter(began, spans[i], more))
			}
		}
		if err != nil && ctx.Err() == nil {
			if !failed {
				s.t.log.Warn("cannot look for rows that committed late; trying again", "err", s.t.explain(err))
			}
			sweep = minTime(sweep, time.Now().Add(time.Second))
		}
		failed = err != nil
	}
}

// restAfter is the pause after a look that began then: none if there is more to find.
func (s *Source) restAfter(began time.Time, least time.Duration, more bool) time.Duration {
	if more {
		return 0
	}
	return max(least, sweepShare*time.Since(began))
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// pauseLooking waits until something is due and there is room for what it may find.
func (s *Source) pauseLooking(ctx context.Context, wait time.Duration, level *int) bool {
	timer := time.NewTimer(max(wait, 0))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-s.late.sweep:
		*level = -1
	}
	for s.late.full() || !s.looksBack() {
		select {
		case <-ctx.Done():
			return false
		case <-s.late.room:
		case <-time.After(time.Second):
		}
	}
	return ctx.Err() == nil
}

func (s *Source) looksBack() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.late.on
}

// lookWithin looks at where the head has been during the span.
func (s *Source) lookWithin(ctx context.Context, span time.Duration) (more bool, err error) {
	s.mu.Lock()
	from, to := s.track.back(span, time.Now()), s.track.head()
	s.mu.Unlock()
	if from.n == to.n {
		return false, nil
	}
	ids, more, err := s.behind(ctx, from.place, to.place)
	s.late.add(ids)
	return more, err
}

// lookBelow sweeps what is below the low-water mark, and rows that have no place.
func (s *Source) lookBelow(ctx context.Context) (more bool, err error) {
	s.mu.Lock()
	low := s.track.low(time.Now())
	s.mu.Unlock()
	if low.place != nil {
		ids, more, err := s.behind(ctx, nil, low.place)
		if len(ids) > 0 {
			s.t.log.Info("found rows that committed later than the margin", "rows", len(ids), "margin", s.m.config.Margin)
		}
		if s.late.add(ids); err != nil || more {
			return more, err
		}
	}
	if s.st.unplaced == "" {
		return false, nil
	}
	rows, err := s.t.pool.Query(ctx, s.st.unplaced, texts, maxLate)
	if err != nil {
		return false, err
	}
	var ids []string
	if err := rawRows(rows, func(values [][]byte) {
		if id := string(values[0]); !s.flies(id) {
			ids = append(ids, id)
		}
	}); err != nil {
		return false, err
	}
	ids, err = s.notAside(ctx, ids)
	s.late.add(ids)
	return false, err
}
