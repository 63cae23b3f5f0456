package adopt

import (
	"context"
	"sync"
	"time"
)

// late are rows that were found behind the head by looking back. Safe for concurrent use.
//
// How late a row is is how long ago its place was the head. Rows of a transaction that had its number
// when the head passed their place are found by the first read after its commit (track.saw). But a transaction may choose the
// place, its start time say, long before it writes anything. For
// these, levels of looking back: each covers four times as much as the one before, and is four
// times as seldom. So a row that is late by t is found after about 4t at most, and each place is
// looked at a few times in all. The last level is the sweep: everything below the margin.
type late struct {
	mu    sync.Mutex
	ids   []string
	known map[string]bool // in ids
}

// maxLate bounds the ids that looking back finds.
const maxLate = 20_000

// end is where rows are added: in front if they were taken and not delivered.
type end bool

const (
	inFront  end = true
	atTheEnd end = false
)

// add adds the rows that are not there already.
func (l *late) add(at end, ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var added []string
	for _, id := range ids {
		if !l.known[id] {
			l.known[id] = true
			added = append(added, id)
		}
	}
	if at == inFront {
		added, l.ids = l.ids, added
	}
	l.ids = append(l.ids, added...)
}

func (l *late) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.ids)
}

func (l *late) waiting() bool { return l.count() > 0 }

func (l *late) has(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known[id]
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
	return ids
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

// sweepShare bounds the cost of sweeping: it rests for this many times as long as it took.
const sweepShare = 10

// sweepAgain is the pause after a sweep that has found something. Single rows may commit very late, but if the next
// sweep also finds some, the head is too far ahead.
const sweepAgain = 5 * time.Second

// lookBack looks for late rows until ctx ends. It has a separate connection, so it delays no read.
func (s *Source) lookBack(ctx context.Context) {
	spans := levels(s.m.config.Margin)
	sweep := len(spans) // comes after the levels
	next, looked := make([]time.Time, sweep+1), make([]time.Time, sweep)
	now := time.Now()
	next[sweep] = now // below the mark with which this session began there may be anything
	for i, span := range spans {
		next[i], looked[i] = now.Add(span), now
	}
	for failed, inRow := false, 0; ; { // sweeps that have found something
		level := sweep
		for i := range next {
			if next[i].Before(next[level]) {
				level = i
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(next[level])):
		case <-s.sweep:
			level = sweep
		}
		for ctx.Err() == nil && !s.looksBack() {
			select {
			case <-ctx.Done():
			case <-time.After(slackTime):
			}
		}
		if ctx.Err() != nil {
			return
		}
		began := time.Now()
		if level < sweep && began.Sub(looked[level]) < s.lags() { // in a backlog; see lags
			next[level] = began.Add(spans[level])
			continue
		}
		var more bool
		var err error
		if level < sweep {
			more, err = s.lookWithin(ctx, spans[level])
			for i := range level + 1 { // it covered those before
				next[i], looked[i] = restAfter(began, spans[i], more), began
			}
		} else {
			rest := s.m.config.Sweep
			var found []string
			if found, more, err = s.lookBelow(ctx); len(found) > 0 {
				rest = min(rest, sweepAgain)
			}
			switch {
			case err != nil || more: // it is not at its end
			case len(found) == 0:
				inRow = 0
			case inRow == 0:
				inRow = 1
			default:
				inRow, err = 0, s.goBack(ctx, found[len(found)-1])
			}
			next[sweep] = restAfter(began, rest, more)
		}
		if err != nil && ctx.Err() == nil {
			if !failed {
				s.t.log.Warn("cannot look for rows that committed late; trying again", "err", s.t.explain(err))
			}
			if again := time.Now().Add(time.Second); again.Before(next[sweep]) {
				next[sweep] = again
			}
		}
		failed = err != nil
	}
}

// looksBack reports whether there is a place to look back from, and room for what is found.
func (s *Source) looksBack() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.scanning && s.late.count() < maxLate
}

// lags is how far the reader lags behind the writers, as far as that is known: it reads full pages, and
// the last row is that old. A row that turns up behind the head now is later than its place by as much,
// so looking more often would find it hardly sooner. In a backlog each look reads all rows that were
// settled since. 0 if the reader keeps up.
func (s *Source) lags() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lag
}

// restAfter is when to look again after a look that began then: at once if there is more to find.
func restAfter(began time.Time, least time.Duration, more bool) time.Time {
	if more {
		return time.Now()
	}
	return time.Now().Add(max(least, sweepShare*time.Since(began)))
}

// lookWithin looks at where the head has been during the span, as far as all rows there have their
// verdicts. Otherwise each look would also list the rows in flight, which may be many. It is looked
// at when they are settled.
func (s *Source) lookWithin(ctx context.Context, span time.Duration) (more bool, err error) {
	from, to := s.within(span)
	if to.n <= from.n {
		return false, nil
	}
	ids, more, err := s.behind(ctx, from.place, to.place)
	if s.late.add(atTheEnd, ids); len(ids) > 0 {
		s.mu.Lock()
		s.track.foundLate(span)
		s.mu.Unlock()
	}
	return more, err
}

// within is where the head was during the span, as far as everything has its verdict.
func (s *Source) within(span time.Duration) (from, to position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.track.back(span, time.Now()), s.decided(s.track.head())
}

// decided is the last position up to m behind which everything has its verdict. The caller has s.mu.
func (s *Source) decided(m position) position {
	for _, p := range s.pending {
		if p.before.n < m.n {
			m = p.before
		}
	}
	return m
}

// lookBelow sweeps rows below the low-water mark, which it returns, and rows that have no place.
func (s *Source) lookBelow(ctx context.Context) (found []string, more bool, err error) {
	s.mu.Lock()
	low := s.track.low(time.Now())
	s.mu.Unlock()
	if low.place != nil {
		found, more, err = s.behind(ctx, nil, low.place)
		if s.late.add(atTheEnd, found); err != nil || more {
			return found, more, err
		}
		if len(found) > 0 {
			s.t.log.Info("found rows that committed later than the margin, or whose place is far behind that of others", "rows", len(found), "margin", s.m.config.Margin)
		}
	}
	if s.st.unplaced == "" {
		return found, false, nil
	}
	ids, _, _, err := s.list(ctx, s.t.pool, s.st.unplaced, inBinary, maxLate)
	if err == nil {
		ids, err = s.notOutOfBand(ctx, ids)
		s.late.add(atTheEnd, ids)
	}
	return found, false, err
}

// goBack has the head go back to the place of a row.
func (s *Source) goBack(ctx context.Context, id string) error {
	rows, err := s.load(ctx, s.t.pool, []string{id})
	if err != nil || len(rows) == 0 {
		return err
	}
	s.mu.Lock()
	s.retreat = rows[id].at
	s.mu.Unlock()
	return nil
}
