package relay

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/inflight"
)

// settleTimeout ends a Settle that hangs; it is one small write.
const settleTimeout = 15 * time.Second

// lastSettleTimeout is the same for a relay that is about to stop.
const lastSettleTimeout = 5 * time.Second

// partsEvery is how often the verdicts of slow batches are settled before the batch is complete.
// It bounds the messages that a crash delivers again, whatever the sink's pace.
const partsEvery = time.Second

// settleLoop writes the cursor as batches get their verdicts, many in one write,
// until the last Send of the session has returned.
func (s *session) settleLoop(ctx context.Context) {
	w := settleWriter{session: s, retry: backoff{least: 100 * time.Millisecond, most: 5 * time.Second}}
	parts := time.NewTicker(partsEvery)
	defer parts.Stop()
	for {
		select {
		case <-s.done:
			if !s.waitForTurn(ctx, w.last) || !w.write(ctx, false) {
				return
			}
		case <-parts.C:
			if s.slow() && !w.write(ctx, true) {
				return
			}
		case <-s.sent:
			w.finish(ctx)
			return
		case <-ctx.Done():
			return
		}
	}
}

// waitForTurn keeps the writes SettleEvery apart, unless the window is filling up with messages
// that wait for the next write.
func (s *session) waitForTurn(ctx context.Context, last time.Time) bool {
	wait := time.Until(last.Add(s.cfg.SettleEvery))
	if wait <= 0 {
		return true
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			return true
		case <-s.sent:
			return true
		case <-s.hurry:
			if s.pressing() { // the notification may be an old one
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
}

func (s *session) pressing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.starved && s.ledger.Pressing()
}

// slow reports whether a batch has been in the window so long that its existing verdicts should be
// settled. With a fast sink there is none.
func (s *session) slow() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	since := s.ledger.Oldest()
	return !since.IsZero() && time.Since(since) > partsEvery/2
}

// settleWriter is the settle loop's own state.
type settleWriter struct {
	*session
	last  time.Time // when the cursor was last written
	retry backoff
}

// write settles every leading batch that has all its verdicts, and with parts the existing
// verdicts of the others. It retries until they are written, the session ends, or sending stops.
// It reports whether to continue.
func (w *settleWriter) write(ctx context.Context, parts bool) bool {
	for {
		_, err := w.try(ctx, settleTimeout, parts)
		switch {
		case err == nil:
			w.retry.reset()
			return true
		case ctx.Err() != nil || w.lost(err):
			return false
		}
		wait := w.retry.next()
		w.sourceLog.Log(slog.LevelWarn, "cannot settle; the verdicts are kept in memory and it is tried again", "err", err, "in", wait)
		if !sleep(ctx, w.sent, wait) {
			return ctx.Err() == nil // after the last Send, finish does it differently
		}
	}
}

// try makes one call of Settle: it repeats one that was not answered, or makes the next. It
// reports whether there was anything to settle.
func (w *settleWriter) try(ctx context.Context, timeout time.Duration, parts bool) (some bool, err error) {
	s := w.session
	s.mu.Lock()
	generation, but := s.generation, 0
	if s.enqueuing {
		but = 1
	}
	c, isNew := s.ledger.Settle(parts, but)
	if isNew {
		for i, b := range c.Of {
			if c.News[i].Open {
				s.try(b, c.Withheld)
			} else {
				s.try(b, nil)
			}
		}
	}
	s.mu.Unlock()
	if len(c.News) == 0 {
		return false, nil
	}

	call, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	began := time.Now()
	if err := s.source.Settle(call, c.Attempt, c.News...); err != nil {
		return true, err
	}
	w.last = time.Now()

	var t inflight.Tally
	s.mu.Lock()
	if generation == s.generation {
		t = s.settledNow(c.Of)
	}
	s.mu.Unlock()
	if t.Messages > 0 {
		s.cfg.Observer.Settled(t.Messages, w.last.Sub(began))
		if t.Parked > 0 {
			s.cfg.Observer.Parked(t.Parked)
		}
		if t.Dead > 0 {
			s.cfg.Observer.Dead(t.Dead)
		}
	}
	return true, nil
}

// settledNow notes that the verdicts passed to Settle are durable.
func (s *session) settledNow(of []*batch) inflight.Tally {
	for _, b := range of {
		s.linger(b)
	}
	t := s.ledger.Settled()
	s.stats.parked += t.Parked
	s.stats.dead += t.Dead
	s.cfg.Observer.InFlight(s.ledger.Messages())
	notify(s.freed)
	return t
}

// finish settles the messages that the last Sends confirmed, before the lease is given back. It tries for as
// long as the drain may take, and at least once.
func (w *settleWriter) finish(ctx context.Context) {
	for ctx.Err() == nil {
		some, err := w.try(ctx, lastSettleTimeout, true)
		if !some || ctx.Err() != nil {
			return
		}
		if err == nil {
			continue // it may have been an earlier call
		}
		if errors.Is(err, penstock.ErrFenced) {
			w.log.Warn("the lease was lost before the last messages were settled; they will be delivered again", "err", err)
			return
		}
		wait := w.retry.next()
		if time.Now().Add(wait).After(w.drainBy) {
			w.log.Warn("could not settle the last messages; they will be delivered again", "err", err)
			return
		}
		if !sleep(ctx, nil, wait) {
			return
		}
	}
}
