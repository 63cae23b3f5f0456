package relay

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/penstock/penstock"
)

// settleTimeout ends a Settle that hangs; it is one small write.
const settleTimeout = 15 * time.Second

// lastSettleTimeout is the same for a relay that is about to go.
const lastSettleTimeout = 5 * time.Second

// settleLoop writes the cursor as batches get their verdicts, many in one write,
// until the last Send of the session has returned.
func (s *session) settleLoop(ctx context.Context) {
	w := settleWriter{session: s, retry: backoff{least: 100 * time.Millisecond, most: 5 * time.Second}}
	for {
		select {
		case <-s.done:
			if !s.waitForTurn(ctx, w.last) || !w.write(ctx) {
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
			if s.pressing() { // the poke may be an old one
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

// settleWriter is the settle loop's own state.
type settleWriter struct {
	*session
	last    time.Time // when the cursor was last written
	retry   backoff
	settled []penstock.Settled // reused
}

// write settles every leading batch that has its verdicts, trying until it is
// written or the session ends or stops sending. It reports whether to go on.
func (w *settleWriter) write(ctx context.Context) bool {
	for {
		err := w.try(ctx, settleTimeout)
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

// try makes one call of Settle with all leading batches that have their verdicts.
func (w *settleWriter) try(ctx context.Context, timeout time.Duration) error {
	s := w.session
	s.mu.Lock()
	era := s.era
	w.settled = w.settled[:0]
	parked, dead := 0, 0
	for _, b := range s.window.batches[:s.window.done] {
		w.settled = append(w.settled, b.settled())
		b.tried = true
		parked += b.parked
		dead += b.dead
	}
	s.mu.Unlock()
	if len(w.settled) == 0 {
		return nil
	}
	defer clear(w.settled)

	call, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := s.source.Settle(call, w.settled...); err != nil {
		return err
	}
	w.last = time.Now()

	s.mu.Lock()
	messages := 0
	if era == s.era {
		for _, b := range s.window.batches[:len(w.settled)] {
			s.linger(b)
		}
		s.stats.parked += parked
		s.stats.dead += dead
		messages = s.window.settled(len(w.settled))
		s.cfg.Observer.InFlight(s.window.messages)
		poke(s.freed)
	}
	s.mu.Unlock()
	if messages > 0 {
		s.cfg.Observer.Settled(messages)
		if parked > 0 {
			s.cfg.Observer.Parked(parked)
		}
		if dead > 0 {
			s.cfg.Observer.Dead(dead)
		}
	}
	return nil
}

// finish settles what the last Sends confirmed, before the lease is given back.
// It tries for as long as the drain may take, and at least once.
func (w *settleWriter) finish(ctx context.Context) {
	for ctx.Err() == nil {
		err := w.try(ctx, lastSettleTimeout)
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
