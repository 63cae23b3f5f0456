package relay

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// settleTimeout ends a Settle that hangs; it is one small write.
const settleTimeout = 15 * time.Second

// lastSettleTimeout is the same for a relay that is about to go.
const lastSettleTimeout = 5 * time.Second

// partsEvery is how often the verdicts of batches are settled that take long: it
// bounds what a crash delivers again, whatever the sink's pace.
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

// waitForTurn keeps the writes SettleEvery apart, unless the window is filling
// up with what waits for the next one.
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
	return s.starved && s.window.pressing()
}

// slow reports whether a batch has been in the window for so long that the part of
// it that has verdicts should be settled. With a sink that is fast there is none.
func (s *session) slow() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.window.done < len(s.window.batches) && time.Since(s.window.batches[s.window.done].since) > partsEvery/2
}

// settleWriter is the settle loop's own state.
type settleWriter struct {
	*session
	last    time.Time // when the cursor was last written
	retry   backoff
	settled []driver.Settled // reused
	of      []*batch         // those of them that are parts of batches; reused
}

// write settles every leading batch that has its verdicts, and with parts what has of
// the others, trying until it is written or the session ends or stops sending. It
// reports whether to go on.
func (w *settleWriter) write(ctx context.Context, parts bool) bool {
	for {
		err := w.try(ctx, settleTimeout, parts)
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
			return ctx.Err() == nil // after the last Send, finish has its own way
		}
	}
}

// try makes one call of Settle with all leading batches that have their verdicts,
// and parts of others.
func (w *settleWriter) try(ctx context.Context, timeout time.Duration, parts bool) error {
	s := w.session
	defer func() { clear(w.settled); clear(w.of) }()
	s.mu.Lock()
	generation, whole := s.generation, s.window.done
	w.settled, w.of = w.settled[:0], w.of[:0]
	for _, b := range s.window.batches[:whole] {
		w.settled = append(w.settled, b.whole())
		s.try(b, nil)
	}
	if parts {
		var but map[string]bool
		w.settled, w.of, but = s.window.parts(w.settled, w.of, s.enqueuing)
		for _, b := range w.of {
			s.try(b, but)
		}
	}
	s.mu.Unlock()
	if len(w.settled) == 0 {
		return nil
	}

	call, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	began := time.Now()
	if err := s.source.Settle(call, w.settled...); err != nil {
		return err
	}
	w.last = time.Now()

	var t tally
	s.mu.Lock()
	if generation == s.generation {
		t = w.settledNow(whole)
	}
	s.mu.Unlock()
	if t.messages > 0 {
		s.cfg.Observer.Settled(t.messages, w.last.Sub(began))
		if t.parked > 0 {
			s.cfg.Observer.Parked(t.parked)
		}
		if t.dead > 0 {
			s.cfg.Observer.Dead(t.dead)
		}
	}
	return nil
}

// settledNow notes that what was passed to Settle is durable: so many whole batches,
// and the parts.
func (w *settleWriter) settledNow(whole int) (t tally) {
	s := w.session
	for i, b := range w.of {
		t.add(b.keep(w.settled[whole+i].Verdicts))
		s.linger(b)
	}
	for _, b := range s.window.batches[:whole] {
		s.linger(b)
	}
	t.add(s.window.settled(whole))
	s.stats.parked += t.parked
	s.stats.dead += t.dead
	s.cfg.Observer.InFlight(s.window.messages)
	notify(s.freed)
	return t
}

// finish settles what the last Sends confirmed, before the lease is given back.
// It tries for as long as the drain may take, and at least once.
func (w *settleWriter) finish(ctx context.Context) {
	for ctx.Err() == nil {
		err := w.try(ctx, lastSettleTimeout, true)
		if err == nil || ctx.Err() != nil {
			return
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
