package relay

import (
	"context"
	"log/slog"
	"time"
)

// lease is how long this process may believe that it holds the subscription. It is judged by the
// local clock and starts before the call that took or renewed the lease, so it always ends before
// the store's own lease does. Not safe for concurrent use.
type lease struct {
	length time.Duration
	until  time.Time // by the monotonic clock
	wall   time.Time // the same by the wall clock
	// term is the context of all Sends of one lease term: it ends when the lease
	// runs out, and a new one begins with the next renewal.
	term   context.Context
	end    context.CancelFunc
	lapsed bool
}

// extend notes that the lease was taken or renewed by a call that started at
// start. It reports whether that made a lapsed lease valid again.
func (l *lease) extend(ctx context.Context, start, now time.Time) bool {
	if until := start.Add(l.length); until.After(l.until) {
		l.until, l.wall = until, until.Round(0)
	}
	if !l.lapsed || !l.covers(now) {
		return false
	}
	l.lapsed = false
	l.term, l.end = context.WithCancel(ctx)
	return true
}

// covers reports whether the lease holds at now, by the monotonic clock and by the wall clock. The
// monotonic clock stops while the machine sleeps, and the wall clock may be changed.
func (l *lease) covers(now time.Time) bool {
	return now.Before(l.until) && now.Round(0).Before(l.wall)
}

// lapse ends the term. It reports whether the lease was valid until now.
func (l *lease) lapse() bool {
	if l.lapsed {
		return false
	}
	l.lapsed = true
	l.end()
	return true
}

// extend is lease.extend for the session.
func (s *session) extend(ctx context.Context, start time.Time) {
	s.mu.Lock()
	now := time.Now()
	back := s.lease.extend(ctx, start, now)
	s.lapseTimer.Reset(s.lease.until.Sub(now))
	s.cond.Signal()
	s.mu.Unlock()
	if back {
		s.cfg.Observer.Lease(true)
		s.log.Info("the lease is valid again, sending continues")
	}
}

// checkLease is called by the timer when the lease should have been renewed by now, and when it has lapsed.
func (s *session) checkLease() {
	s.mu.Lock()
	if !s.lease.covers(time.Now()) {
		s.lapse()
	}
	unsaid := s.lapseUnsaid
	s.lapseUnsaid = false
	s.mu.Unlock()
	if unsaid { // not under the mutex
		s.log.Warn("the lease ran out before it could be renewed; nothing is sent until it is",
			"lease", s.cfg.Lease, "hint", "the process was paused, or the database cannot be reached")
	}
}

// lapse stops all Sends, because the lease has run out. The caller holds the
// mutex.
func (s *session) lapse() {
	if !s.lease.lapse() {
		return
	}
	s.cfg.Observer.Lease(false)
	notify(s.renewNow)
	s.lapseUnsaid = true
	s.lapseTimer.Reset(0)
}

// renewLoop renews the lease three times per lease length, and at once when it has run out.
func (s *session) renewLoop(ctx context.Context, opened time.Time) {
	every := s.cfg.Lease / 3
	retry := backoff{least: s.cfg.Lease / 30, most: s.cfg.Lease / 6}
	t := time.NewTimer(time.Until(opened.Add(every)))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-s.renewNow:
		}
		start := time.Now()
		call, cancel := context.WithTimeout(ctx, every)
		err := s.source.Renew(call)
		cancel()
		switch {
		case err == nil:
			retry.reset()
			s.extend(ctx, start)
			t.Reset(every)
		case ctx.Err() != nil || s.lost(err):
			return
		default:
			wait := retry.next()
			s.sourceLog.Log(slog.LevelWarn, "cannot renew the lease; trying again", "err", err, "in", wait)
			t.Reset(wait)
		}
	}
}
