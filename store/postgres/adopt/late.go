package adopt

import (
	"context"
	"sync"
	"time"
)

// late are rows that were found behind the head by looking back. Safe for concurrent use.
//
// How late a row is is how long ago its place was the head. Rows of a transaction that was seen in
// flight are found by the first read after its commit (track.saw). But a transaction may choose the
// place, its start time say, long before it writes anything, and then commit between two reads. For
// these, levels of looking back: each covers four times as much as the one before, and is four
// times as seldom. So a row that is late by t is found after about 4t at most, and each place is
// looked at a few times in all. The last level is the sweep: everything below the margin.
type late struct {
	on bool // guarded by Source.mu: reading is by order

	mu    sync.Mutex
	ids   []string
	known map[string]bool // in ids
	inRow int             // sweeps in a row that have found something
	// The place to which the head has to go back before the next read; nil: none.
	retreat place
	sweep   chan struct{} // notified: now
	room    chan struct{} // notified: ids were taken
}

// maxLate bounds the ids in memory.
const maxLate = 20_000

func (l *late) reset() {
	l.known, l.sweep, l.room = map[string]bool{}, make(chan struct{}, 1), make(chan struct{}, 1)
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// hurry has the sweep begin.
func (l *late) hurry() { notify(l.sweep) }

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

// swept notes whether a sweep has found anything, and reports whether it is the second in a row.
// Single rows may commit very late, but if more come, the head is wrong.
func (l *late) swept(found bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inRow++; !found {
		l.inRow = 0
	}
	if l.inRow < 2 {
		return false
	}
	l.inRow = 0
	return true
}

// retreats takes the place to which the head has to go back.
func (l *late) retreats() place {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.retreat
	l.retreat = nil
	return p
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
		notify(l.room)
	}
	return ids
}

// giveBack returns rows that were taken and not delivered, to the front.
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

// sweepShare bounds the cost of sweeping: it rests for this many times as long as it took.
const sweepShare = 10

// lookBack looks for late rows until ctx ends. It has a separate connection, so it delays no read.
func (s *Source) lookBack(ctx context.Context) {
	spans := levels(s.m.config.Margin)
	next, looked := make([]time.Time, len(spans)), make([]time.Time, len(spans))
	now := time.Now()
	for i, span := range spans {
		next[i], looked[i] = now.Add(span), now
	}
	sweep, failed := now, false // below the mark with which this session began there may be anything
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
		if level >= 0 && began.Sub(looked[level]) < s.lags() { // in a backlog; see lags
			next[level] = began.Add(spans[level])
			continue
		}
		var more bool
		var err error
		if level < 0 {
			var found bool
			found, more, err = s.lookBelow(ctx)
			rest := s.m.config.Sweep
			if found {
				rest = min(rest, sweepAgain)
			}
			sweep = time.Now().Add(s.restAfter(began, rest, more))
		} else {
			more, err = s.lookWithin(ctx, spans[level])
			for i := range level + 1 { // it covered those before
				next[i], looked[i] = time.Now().Add(s.restAfter(began, spans[i], more)), began
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

// lags is how far the reader lags behind the writers, as far as that is known: it reads full pages, and
// the last row is that old. A row that turns up behind the head now is later than its place by as much,
// so looking more often would find it hardly sooner. In a backlog each look reads all rows that were
// settled since. 0 if the reader keeps up.
func (s *Source) lags() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lag
}

// noteLag is called with each page.
func (s *Source) noteLag(page []row) {
	var lag time.Duration
	if s.full && len(page) > 0 && !page[len(page)-1].message.CreatedAt.IsZero() {
		lag = time.Since(page[len(page)-1].message.CreatedAt)
	}
	s.mu.Lock()
	s.lag = lag
	s.mu.Unlock()
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

// pauseLooking waits until something is due and there is room for its finds.
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

// lookWithin looks at where the head has been during the span, as far as all rows there have their
// verdicts. Otherwise each look would also list the rows in flight, which may be many. It is looked
// at when they are settled.
func (s *Source) lookWithin(ctx context.Context, span time.Duration) (more bool, err error) {
	from, to := s.within(span)
	if to.n <= from.n {
		return false, nil
	}
	ids, more, err := s.behind(ctx, from.place, to.place)
	if s.late.add(ids); len(ids) > 0 {
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

// sweepAgain is the pause after a sweep that has found something: another such sweep says
// that the head is too far ahead.
const sweepAgain = 5 * time.Second

// lookBelow sweeps rows below the low-water mark, and rows that have no place.
func (s *Source) lookBelow(ctx context.Context) (found, more bool, err error) {
	s.mu.Lock()
	low := s.track.low(time.Now())
	s.mu.Unlock()
	if low.place != nil {
		ids, more, err := s.behind(ctx, nil, low.place)
		if s.late.add(ids); err != nil || more {
			return len(ids) > 0, more, err
		}
		if found = len(ids) > 0; found {
			s.t.log.Info("found rows that committed later than the margin, or whose place is far behind that of others", "rows", len(ids), "margin", s.m.config.Margin)
		}
		if s.late.swept(found) {
			if err := s.retreat(ctx, ids[len(ids)-1]); err != nil {
				return found, false, err
			}
		}
	}
	if s.st.unplaced == "" {
		return found, false, nil
	}
	var ids []string
	d := s.m.decoder(s.m.placing)
	if err := query(ctx, s.t.pool, s.st.unplaced, []any{inBinary, maxLate}, func(values [][]byte) {
		d.load(values)
		if id := d.id(); !s.isInFlight(id) {
			ids = append(ids, id)
		}
	}); err != nil {
		return found, false, err
	}
	ids, err = s.notOutOfBand(ctx, ids)
	s.late.add(ids)
	return found, false, err
}

// retreat puts the head back to the place of a row.
func (s *Source) retreat(ctx context.Context, id string) error {
	rows, err := s.load(ctx, s.t.pool, []string{id})
	if err != nil || len(rows) == 0 {
		return err
	}
	s.late.mu.Lock()
	s.late.retreat = rows[id].at
	s.late.mu.Unlock()
	return nil
}
