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

// caretaker remembers an outbox's activity between two calls of Maintain.
type caretaker struct {
	sync.Mutex
	high        int64     // the sequence's value
	since       time.Time // it has been that since
	lastSmall   time.Time // a small idle segment was given back
	refused     map[int]refusal
	cursorAfter time.Time
}

// refusal is a segment that could not be reclaimed: try again, less often.
type refusal struct {
	wait  time.Duration
	until time.Time
}

// again is the refusal of another attempt: it waits twice as long each time, up to 16 s.
func (r refusal) again(now time.Time) refusal {
	wait := min(max(2*r.wait, time.Second), 16*time.Second)
	return refusal{wait, now.Add(wait)}
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
		unsettled, err := call[bool](ctx, s, "_behind", "($1, $2)", outbox, current.Slot)
		if err != nil {
			return err
		}
		give = !unsettled
	}
	slot, err := call[*int](ctx, s, "_rotate", "($1, $2)", outbox, give)
	if err != nil {
		return err
	}
	if give && slot != nil {
		if current.table < idleBytes {
			care.lastSmall = now
		}
		return s.reclaim(ctx, outbox, current.Slot, care, now)
	}
	return s.reclaimLogs(ctx, care, now)
}

// reclaimLogs looks after the logs of the schema, not of the outbox.
func (s *Store) reclaimLogs(ctx context.Context, care *caretaker, now time.Time) error {
	if err := s.reclaimParked(ctx, now); err != nil {
		return err
	}
	if err := s.reclaimCursor(ctx, care, now); err != nil {
		return err
	}
	return s.takeSamples(ctx, now)
}

// takeSamples has samples taken of all queues and subscriptions, see samples.sql. Where workers run, they have mostly been.
func (s *Store) takeSamples(ctx context.Context, now time.Time) error {
	s.mu.Lock()
	due := !now.Before(s.samplesAfter)
	if due {
		s.samplesAfter = now.Add(20 * time.Second)
	}
	s.mu.Unlock()
	if !due {
		return nil
	}
	more, err := call[bool](ctx, s, "_take_samples", "()")
	if more {
		s.mu.Lock()
		s.samplesAfter = now
		s.mu.Unlock()
	}
	return err
}

// parkedCare remembers the activity of the ring of parked messages. It is the schema's, and
// so the store's. Guarded by its mutex.
type parkedCare struct {
	sync.Mutex
	n       int64         // of the last state of a parked key
	given   int64         // the n at which the ring was last reclaimed for being idle
	idle    time.Duration // before the next time for that
	idleAt  time.Time
	carried int64 // size of the states that the last reclaim carried over
	refusal
}

// A segment of parked messages is sealed when it is this large, or as small rings are when they are
// an eighth of that. A segment of states is sealed at a quarter, or at twice the size that is
// carried over each time.
const parkedBytes = 16 << 20

// Space is given back a second after the last thing that happened; if messages stay
// parked and something happens now and then, less and less often.
const idleParkedMost = time.Minute

// reclaimParked looks after the ring of parked messages: when a segment is full, and
// when nothing has been parked, tried or delivered since the last time.
func (s *Store) reclaimParked(ctx context.Context, now time.Time) error {
	p := &s.parked
	if !p.TryLock() {
		return nil // another outbox's maintenance is at it
	}
	defer p.Unlock()
	if now.Before(p.until) {
		return nil
	}
	var n, states, messages, sealed int64
	if err := s.pool.QueryRow(ctx, statement("parked_size", s.schema, "")).Scan(&n, &states, &messages, &sealed); err != nil {
		return s.explain(err)
	}
	if states+messages == 0 {
		p.n, p.given, p.idle, p.carried = n, n, 0, 0
		return nil
	}
	full := min(parkedBytes, s.opts.SegmentBytes/8)
	idle := n == p.n && n != p.given && !now.Before(p.idleAt)
	p.n = n
	seal, sealMessages := max(full/4, 2*p.carried), full
	if idle {
		seal, sealMessages, p.given = 0, 0, n
		p.idle = min(max(2*p.idle, time.Second), idleParkedMost)
		p.idleAt = now.Add(p.idle)
	}
	if states < seal && messages < sealMessages && sealed == 0 {
		return nil
	}
	done := false
	for _, ring := range []struct {
		reclaim string
		bytes   int64
	}{{"_reclaim_parked_keys", seal}, {"_reclaim_parked", sealMessages}} {
		one, err := call[bool](ctx, s, ring.reclaim, "($1)", ring.bytes)
		if err != nil {
			return err
		}
		done = done || one
	}
	var after int64
	if err := s.pool.QueryRow(ctx, statement("parked_size", s.schema, "")).Scan(&n, &after, &messages, &sealed); err != nil {
		return s.explain(err)
	}
	if after < states {
		p.carried = after
	}
	if done {
		p.refusal = refusal{}
		return nil
	}
	p.refusal = p.refusal.again(now)
	return nil
}

// reclaim truncates a segment if it can. Refused, it waits: the lock it asks for stands in the readers' way.
func (s *Store) reclaim(ctx context.Context, outbox string, slot int, care *caretaker, now time.Time) error {
	if r, ok := care.refused[slot]; ok && now.Before(r.until) {
		return nil
	}
	done, err := call[bool](ctx, s, "_reclaim", "($1, $2)", outbox, slot)
	if done {
		delete(care.refused, slot)
	} else if err == nil {
		care.refused[slot] = care.refused[slot].again(now)
	}
	return err
}

// reclaimCursor looks after the cursor log now and then.
func (s *Store) reclaimCursor(ctx context.Context, care *caretaker, now time.Time) error {
	if now.Before(care.cursorAfter) {
		return nil
	}
	care.cursorAfter = now.Add(10 * time.Second)
	_, err := call[bool](ctx, s, "_reclaim_cursor", "()")
	return err
}
