package postgres

import (
	"context"
	"sync"
	"time"
)

// An idle outbox gives its last segment back: at once if it is large, and not more
// often than this if it is small, because every TRUNCATE rewrites catalogue rows.
const (
	idleAfter      = time.Second
	idleBytes      = 1 << 20
	idleSmallEvery = time.Minute
)

// caretaker remembers between two calls of Maintain what an outbox did.
type caretaker struct {
	sync.Mutex
	high        int64     // the sequence's value
	since       time.Time // it has been that since
	lastSmall   time.Time // a small idle segment was given back
	refused     map[int]refusal
	cursorAfter time.Time
	parked      parkedCare
}

// refusal is a segment that could not be reclaimed: try again, less often.
type refusal struct {
	wait  time.Duration
	until time.Time
}

// Maintain rotates and reclaims the outbox's ring and the cursor log.
func (s *Store) Maintain(ctx context.Context, outbox string) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	high, current, segments, err := s.segments(ctx, outbox)
	if err != nil {
		return err
	}
	s.mu.Lock()
	care := s.care[outbox]
	if care == nil {
		care = &caretaker{refused: map[int]refusal{}}
		s.care[outbox] = care
	}
	s.mu.Unlock()
	if !care.TryLock() {
		return nil // another subscription's relay is at it
	}
	defer care.Unlock()
	now := time.Now()
	if high != care.high || care.since.IsZero() {
		care.high, care.since = high, now
	}

	for _, seg := range segments {
		if seg.Current || seg.rows == 0 {
			continue
		}
		if err := s.reclaim(ctx, outbox, seg.Slot, care, now); err != nil {
			return err
		}
	}
	if current == nil || current.rows == 0 {
		return s.reclaimLogs(ctx, care, now)
	}
	idle := now.Sub(care.since) >= idleAfter
	give := idle && (current.table >= idleBytes || now.Sub(care.lastSmall) >= idleSmallEvery)
	if give {
		// Do not rotate for nothing while a subscription is behind.
		var unsettled bool
		if err := s.pool.QueryRow(ctx, "select "+s.table("_behind")+"($1, $2)", outbox, current.Slot).Scan(&unsettled); err != nil {
			return s.explain(err)
		}
		give = !unsettled
	}
	var slot *int
	if err := s.pool.QueryRow(ctx, "select "+s.table("_rotate")+"($1, $2)", outbox, give).Scan(&slot); err != nil {
		return s.explain(err)
	}
	if give && slot != nil {
		if current.table < idleBytes {
			care.lastSmall = now
		}
		return s.reclaim(ctx, outbox, current.Slot, care, now)
	}
	return s.reclaimLogs(ctx, care, now)
}

// reclaimLogs looks after what is the schema's, not the outbox's.
func (s *Store) reclaimLogs(ctx context.Context, care *caretaker, now time.Time) error {
	if err := s.reclaimParked(ctx, care, now); err != nil {
		return err
	}
	return s.reclaimCursor(ctx, care, now)
}

// parkedCare remembers what the ring of parked messages did.
type parkedCare struct {
	n     int64 // of the last state of a line
	given int64 // the n at which it was last reclaimed for being idle
	refusal
}

// A segment of parked messages is sealed when it is this large, or as small rings
// are when they are an eighth of that; a segment of line states at a quarter.
const parkedBytes = 16 << 20

// reclaimParked looks after the ring of parked messages: when a segment is full, and
// once whenever nothing has been parked, tried or delivered since the last look.
func (s *Store) reclaimParked(ctx context.Context, care *caretaker, now time.Time) error {
	p := &care.parked
	if now.Before(p.until) {
		return nil
	}
	var n, size, sealed int64
	if err := s.pool.QueryRow(ctx, statement("parked_size", s.schema, "")).Scan(&n, &size, &sealed); err != nil {
		return s.explain(err)
	}
	full := min(parkedBytes, s.opts.SegmentBytes/8)
	idle := n == p.n && n != p.given
	p.n = n
	if size == 0 || size < full/4 && sealed == 0 && !idle {
		return nil
	}
	if idle {
		full, p.given = 0, n
	}
	done := false
	for _, call := range []struct {
		function string
		bytes    int64
	}{{"_reclaim_lines", full / 4}, {"_reclaim_parked", full}} {
		var one bool
		if err := s.pool.QueryRow(ctx, "select "+s.table(call.function)+"($1)", call.bytes).Scan(&one); err != nil {
			return s.explain(err)
		}
		done = done || one
	}
	if done {
		p.refusal = refusal{}
		return nil
	}
	p.wait = min(max(2*p.wait, time.Second), 16*time.Second)
	p.until = now.Add(p.wait)
	return nil
}

// reclaim truncates a segment if it can. Refused, it waits twice as long each
// time, up to 16 s: the lock it asks for stands in the readers' way.
func (s *Store) reclaim(ctx context.Context, outbox string, slot int, care *caretaker, now time.Time) error {
	if r, ok := care.refused[slot]; ok && now.Before(r.until) {
		return nil
	}
	var done bool
	if err := s.pool.QueryRow(ctx, "select "+s.table("_reclaim")+"($1, $2)", outbox, slot).Scan(&done); err != nil {
		return s.explain(err)
	}
	if done {
		delete(care.refused, slot)
		return nil
	}
	wait := min(max(2*care.refused[slot].wait, time.Second), 16*time.Second)
	care.refused[slot] = refusal{wait: wait, until: now.Add(wait)}
	return nil
}

// reclaimCursor looks after the cursor log now and then.
func (s *Store) reclaimCursor(ctx context.Context, care *caretaker, now time.Time) error {
	if now.Before(care.cursorAfter) {
		return nil
	}
	care.cursorAfter = now.Add(10 * time.Second)
	_, err := s.pool.Exec(ctx, "select "+s.table("_reclaim_cursor")+"()")
	return s.explain(err)
}
