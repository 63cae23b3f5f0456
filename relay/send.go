package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/penstock/penstock"
)

// run is one Send: the messages, the lanes it holds, and how it ended. Each
// sender has one and uses it again.
type run struct {
	entries []*entry
	held    []hold
	msgs    []penstock.Message
	retried int // of them, refused before
	era     int
	probe   bool
	spell   context.Context

	// How it ended, where not every message was confirmed.
	errs        []error
	waits       []time.Duration // before the next attempt, per message; 0: no attempt was spent
	unavailable error           // the first of its kind

	// ctx ends with the spell and after SendTimeout. It serves many Sends.
	ctx     context.Context
	cancel  context.CancelFunc
	timeout *time.Timer
}

// hold is a lane and the part of the run's entries that came from it.
type hold struct {
	lane     *lane
	from, to int
}

// sendLoop sends until the session ends or the drain is finished.
func (s *session) sendLoop(ctx context.Context) {
	r := &run{msgs: make([]penstock.Message, s.cfg.MaxBatch)}
	defer r.close()
	for s.next(ctx, r) {
		msgs := r.load()
		r.errs = s.cfg.Sink.Send(r.begin(s.cfg.SendTimeout), msgs)
		r.timeout.Stop()
		s.judge(r)
		clear(msgs) // payloads are not to outlive their batch
		s.finish(r)
	}
}

// next waits until r has something to send; false means that nothing will come.
func (s *session) next(ctx context.Context, r *run) bool {
	r.entries, r.held = r.entries[:0], r.held[:0]
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.take(r) {
		if s.draining && s.running == 0 && !s.admitting {
			s.finished = true
			s.cond.Broadcast()
		}
		if s.finished || ctx.Err() != nil {
			return false
		}
		s.cond.Wait()
	}
	s.running++
	if s.lanes.first != nil {
		s.cond.Signal() // what is left is for the next sender
	}
	return true
}

// take gives r what may be sent now and reports whether there is anything.
func (s *session) take(r *run) bool {
	now := time.Now()
	s.lanes.wake(now)
	count := min(s.maySend(now), s.share())
	taken := count > 0 && s.lanes.take(r, count, max(s.cfg.MaxInFlightBytes/8, 1))
	if taken {
		r.era, r.spell, r.probe = s.era, s.lease.spell, s.pause.begin()
	}
	s.setAlarm(now)
	return taken
}

// leastShare is the most messages of different keys that go into one Send however
// few keys there are.
const leastShare = 32

// share is one sender's part of the keys that have messages. A key goes on only
// when the whole Send has returned that carries its message; where every key has
// one message on the way, a Send that took all of them would leave the sink idle
// until the last is confirmed.
func (s *session) share() int {
	if s.lanes.wholeLanes || s.lanes.loose.head != nil {
		return s.cfg.MaxBatch
	}
	return max(leastShare, len(s.lanes.byKey)/s.cfg.Senders)
}

// maySend is how many messages the next Send may have.
func (s *session) maySend(now time.Time) int {
	if !s.lease.covers(now) {
		s.lapse()
		return 0
	}
	if s.finished || s.lease.lapsed || s.lease.spell.Err() != nil || s.draining && now.After(s.drainBy) {
		return 0
	}
	return s.pause.admits(now, s.cfg.MaxBatch)
}

// setAlarm makes sure that a sender looks again when time alone makes
// something ready.
func (s *session) setAlarm(now time.Time) {
	if len(s.lanes.waiting) > 0 {
		s.alarm.set(s.lanes.waiting[0].due, now)
	}
	if s.pause.on && !s.pause.probing && s.pause.until.After(now) {
		s.alarm.set(s.pause.until, now)
	}
}

// load copies the messages out of their batches, so that they lie in a row and
// the attempt can be counted.
func (r *run) load() []penstock.Message {
	msgs := r.msgs[:len(r.entries)]
	r.retried = 0
	for i, e := range r.entries {
		msgs[i] = e.batch.Messages[e.index]
		if e.tries > 0 {
			msgs[i].Attempt += int(e.tries)
			r.retried++
		}
	}
	return msgs
}

// begin returns the context of the next Send.
func (r *run) begin(timeout time.Duration) context.Context {
	if r.ctx != nil && r.ctx.Err() == nil && r.spell.Err() == nil {
		r.timeout.Reset(timeout)
		return r.ctx
	}
	r.close()
	r.ctx, r.cancel = context.WithCancel(r.spell)
	r.timeout = time.AfterFunc(timeout, r.cancel)
	return r.ctx
}

func (r *run) close() {
	if r.cancel != nil {
		r.timeout.Stop()
		r.cancel()
	}
}

// judge decides what is to become of each message of a Send that did not
// confirm all, and tells the observer and the log. It needs no mutex: until
// finish, the entries are r's alone.
func (s *session) judge(r *run) {
	r.unavailable = nil
	delivered, failed := len(r.entries), 0
	if r.errs != nil {
		if len(r.errs) != len(r.entries) {
			r.errs = penstock.SendError(r.msgs[:len(r.entries)], fmt.Errorf("the sink answered %d messages with %d results", len(r.entries), len(r.errs)))
		}
		r.waits = append(r.waits[:0], make([]time.Duration, len(r.entries))...)
		delivered = 0
		for _, h := range r.held {
			failed += s.judgeLane(r, h)
		}
		for _, err := range r.errs {
			if err == nil {
				delivered++
			}
		}
	}
	s.cfg.Observer.Sent(delivered, failed, r.retried)
}

// judgeLane judges the messages of one lane and returns how many were refused.
// Of one key only the first failure counts: the sink did not try those behind it.
func (s *session) judgeLane(r *run, h hold) (refused int) {
	for i := h.from; i < h.to; i++ {
		err := r.errs[i]
		if err == nil {
			continue
		}
		if penstock.IsUnavailable(err) {
			if r.unavailable == nil {
				r.unavailable = err
			}
		} else {
			refused++
			r.entries[i].tries++
			r.waits[i] = s.retryDelay(r.entries[i], err)
			s.logRefused(&r.msgs[i], err, r.waits[i])
		}
		if h.lane != &s.lanes.loose {
			break
		}
	}
	return refused
}

// retryDelay is how long a refused message waits.
func (s *session) retryDelay(e *entry, err error) time.Duration {
	if d, ok := penstock.RetryDelay(err); ok && d > 0 {
		return d
	}
	if penstock.IsPermanent(err) {
		return s.cfg.RetryMax
	}
	return delayAfter(int(e.tries), s.cfg.RetryMin, s.cfg.RetryMax)
}

func (s *session) logRefused(m *penstock.Message, err error, wait time.Duration) {
	t, level, text := &s.refusedLog, slog.LevelWarn, "a message was refused and will be sent again; others with its key wait"
	if penstock.IsPermanent(err) {
		t, level = &s.permanentLog, slog.LevelError
		text = "a message was refused for good; it is tried again in case the broker or the configuration is corrected, and others with its key wait"
	}
	t.Log(level, text, "id", m.ID, "seq", m.Seq, "topic", m.Topic, "attempt", m.Attempt, "err", err, "in", wait)
}

// finish counts what was confirmed, gives back what was not, and lets go of the
// lanes.
func (s *session) finish(r *run) {
	var now time.Time // read only where it matters: most Sends confirm everything
	if r.errs != nil || r.probe {
		now = time.Now()
	}
	s.mu.Lock()
	s.running--
	if r.era == s.era {
		for _, h := range r.held {
			s.finishLane(r, h, now)
		}
		if s.window.advance() {
			poke(s.done)
			if s.starved && s.window.pressing() {
				poke(s.hurry)
			}
		}
	} else { // the messages are forgotten, only their lanes are still held
		for _, h := range r.held {
			s.lanes.release(h.lane)
		}
	}
	s.updatePause(r, now) // unlocks
}

// finishLane ends the hold on one lane.
func (s *session) finishLane(r *run, h hold, now time.Time) {
	if r.errs == nil {
		for _, e := range r.entries[h.from:h.to] {
			e.batch.left--
		}
		s.lanes.release(h.lane)
		return
	}
	loose := h.lane == &s.lanes.loose
	var wait time.Duration
	for i := h.to - 1; i >= h.from; i-- { // backwards, as they go back in front
		e := r.entries[i]
		switch {
		case r.errs[i] == nil:
			e.batch.left--
		case !loose:
			h.lane.pushFront(e)
			wait = r.waits[i] // the first one's remains
		case r.waits[i] > 0:
			s.lanes.delayLoose(e, now.Add(r.waits[i]))
		default:
			s.lanes.returnLoose(e)
		}
	}
	if !loose && wait > 0 {
		s.lanes.delay(h.lane, now.Add(wait))
	} else {
		s.lanes.release(h.lane)
	}
}

// updatePause begins, prolongs or ends the pause after a Send, unlocks the
// session and tells the log.
func (s *session) updatePause(r *run, now time.Time) {
	wasOn, since := s.pause.on, s.pause.since
	prolonged := false
	switch {
	case r.unavailable != nil && r.spell.Err() == nil:
		prolonged = s.pause.unavailable(now, r.probe)
	case r.unavailable != nil && r.probe: // this relay ended the Send, not the sink
		s.pause.interrupted()
	case r.probe:
		s.pause.answered()
	}
	isOn, next := s.pause.on, s.pause.until.Sub(now)
	s.mu.Unlock()

	switch {
	case prolonged && !wasOn:
		s.pauseLog.Log(slog.LevelWarn, "the sink is unavailable; the subscription pauses and resumes by itself", "err", withHint(r.unavailable), "next_probe_in", next)
	case prolonged:
		s.downLog.Log(slog.LevelWarn, "the sink is still unavailable", "err", r.unavailable, "for", now.Sub(since).Round(time.Millisecond), "next_probe_in", next)
	case wasOn && !isOn:
		s.backLog.Log(slog.LevelInfo, "the sink is back", "after", now.Sub(since).Round(time.Millisecond))
	}
}

// withHint adds the next step to an outage, unless the sink has named one.
func withHint(err error) error {
	var hinted *penstock.HintError
	if errors.As(err, &hinted) {
		return err
	}
	return penstock.WithHint(err, "is the broker up, and reachable with the configured URL?")
}
