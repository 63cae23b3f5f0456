package relay

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// run is one Send: the messages, the lanes it holds, and how it ended. Each sender reuses one.
type run struct {
	entries    []*entry
	held       []hold
	msgs       []penstock.Message
	retries    []retry // those of them that were refused before, from memory
	began      time.Time
	generation int
	probe      bool
	again      bool   // a probe of messages that were tried before
	before     uint64 // session.confirms when it began
	term       context.Context

	// How it ended. errs is nil if every message was confirmed.
	errs        []error
	confirmed   int
	refused     int
	fresh       []int64       // Seqs of those refused on their first attempt
	unavailable error         // the first of its kind
	pause       time.Duration // the longest that errors of this kind ask for

	// ctx ends with the term and after SendTimeout. It serves many Sends.
	ctx     context.Context
	cancel  context.CancelFunc
	timeout *time.Timer
}

// retry is an entry of a run, and how often it was refused before.
type retry struct{ index, tries int }

// hold is a lane and the part of the run's entries that came from it.
type hold struct {
	lane     *lane
	from, to int
}

// sendLoop sends until the session ends or is drained.
func (s *session) sendLoop(ctx context.Context) {
	r := &run{}
	defer r.close()
	for s.next(ctx, r) {
		msgs := r.load()
		r.began = time.Now()
		r.errs = s.send(r.begin(s.cfg.SendTimeout), msgs)
		r.timeout.Stop()
		s.judge(r)
		s.finish(r)
		clear(msgs) // payloads must not outlive their batch
	}
}

// send is Sink.Send. If the sink panics, each half of the messages is sent again, until the message that is the
// reason is alone. The others of its Send must not fail with it, however often it is tried.
func (s *session) send(ctx context.Context, msgs []penstock.Message) []error {
	errs, panicked := s.call(ctx, msgs)
	if !panicked || len(msgs) == 1 {
		return errs
	}
	half := len(msgs) / 2
	errs = make([]error, len(msgs))
	copy(errs, s.send(ctx, msgs[:half]))
	rest := half
	if last := errs[half-1]; last != nil && msgs[half-1].Key != "" { // a key stops at its first failure
		for ; rest < len(msgs) && msgs[rest].Key == msgs[half-1].Key; rest++ {
			errs[rest] = last
		}
	}
	if rest < len(msgs) {
		copy(errs[rest:], s.send(ctx, msgs[rest:]))
	}
	return errs
}

// call is one call of Sink.Send, with an answer that one can read.
func (s *session) call(ctx context.Context, msgs []penstock.Message) (errs []error, panicked bool) {
	defer func() {
		if r := recover(); r != nil {
			s.log.Error("the sink panicked", "panic", r, "messages", len(msgs), "seq", msgs[0].Seq, "stack", string(debug.Stack()))
			errs, panicked = driver.SendError(msgs, fmt.Errorf("the sink panicked: %v", r)), true
		}
	}()
	errs = s.cfg.sink.Send(ctx, msgs)
	if errs != nil && len(errs) != len(msgs) {
		return driver.SendError(msgs, fmt.Errorf("the sink answered %d messages with %d results", len(msgs), len(errs))), false
	}
	for i, err := range errs {
		if err != nil && !readable(err) {
			errs = slices.Clone(errs)
			errs[i] = fmt.Errorf("the sink returned a %T, which panics when it is read", err)
		}
	}
	return errs, false
}

// readable reports whether the methods of err do not panic, as those of a nil pointer do.
func readable(err error) (ok bool) {
	defer func() { ok = recover() == nil }()
	isAway(err)
	penstock.IsPermanent(err)
	_ = err.Error()
	return true
}

// next waits until r has something to send; false means that nothing more will come.
func (s *session) next(ctx context.Context, r *run) bool {
	r.entries, r.held, r.retries = r.entries[:0], r.held[:0], r.retries[:0]
	s.mu.Lock()
	defer s.unlock()
	for !s.take(r) {
		if s.stuck() {
			s.parkWaiting()
			continue
		}
		if s.draining && s.running == 0 {
			s.cond.Broadcast()
			return false
		}
		if ctx.Err() != nil {
			return false
		}
		if s.noted { // it may take long until there is something to send again
			s.unlock()
			s.mu.Lock()
			continue
		}
		s.cond.Wait()
	}
	s.running++
	if s.lanes.ready.first != nil {
		s.cond.Signal() // the others are for the next sender
	}
	return true
}

// stuck reports whether the sink is idle because the whole window waits for a few refused
// messages.
func (s *session) stuck() bool {
	return s.starved && s.running == 0 && !s.enqueuing && !s.ledger.Ready() && len(s.lanes.waiting) > 0 &&
		s.lanes.ready.first == nil && s.breaker.state == closed && len(s.provisional) == 0 && !s.lease.lapsed
}

// take gives r the messages that may be sent now and reports whether there is anything.
func (s *session) take(r *run) bool {
	now := time.Now()
	s.wake(now)
	from := &s.lanes.ready
	again := s.breaker.state != closed && !s.lanes.sift()
	if again {
		from = &s.lanes.doubted
	}
	count := min(s.maySend(now, again), s.share(), s.cfg.pace.allows(now))
	taken := count > 0 && s.lanes.take(r, from, count, max(s.cfg.MaxInFlightBytes/8, 1))
	if taken {
		s.cfg.pace.started(now, len(r.entries))
		r.generation, r.term, r.probe, r.again, r.before = s.generation, s.lease.term, s.breaker.begin(again), again, s.confirms
	}
	s.setAlarm(now)
	return taken
}

// wake lets lanes continue whose wait is over.
func (s *session) wake(now time.Time) {
	for l := s.lanes.wake(now); l != nil; l = s.lanes.wake(now) {
		if l.head.decided {
			s.settle(l, l.head.batch.Noted(l.head.index))
		} else {
			s.lanes.pushReady(l)
		}
	}
}

// leastShare is how many messages of different keys one Send may have even when there are few
// keys.
const leastShare = 32

// share is one sender's part of the keys that have messages. A key continues only when the Send
// with its message has returned. If every key has one message in flight, a Send with all of them
// would leave the sink idle until the last is confirmed.
func (s *session) share() int {
	if s.lanes.wholeLanes || s.lanes.loose.head != nil || s.breaker.state != closed {
		return s.cfg.MaxBatch
	}
	return max(leastShare, len(s.lanes.byKey)/s.cfg.Senders)
}

// maySend is how many messages the next Send may have. again is true for messages that were tried
// before and a sink that may be away.
func (s *session) maySend(now time.Time, again bool) int {
	if !s.lease.covers(now) {
		s.lapse()
		return 0
	}
	if s.draining || s.lease.lapsed || s.lease.term.Err() != nil {
		return 0
	}
	return s.breaker.allows(now, s.cfg.MaxBatch, again)
}

// setAlarm makes a sender look again when something becomes ready by time alone.
func (s *session) setAlarm(now time.Time) {
	if len(s.lanes.waiting) > 0 {
		s.alarm.set(s.lanes.waiting[0].due, now)
	}
	if s.breaker.state != closed && !s.breaker.probing && s.breaker.until.After(now) {
		s.alarm.set(s.breaker.until, now)
	}
	if p := &s.cfg.pace; (s.lanes.ready.first != nil || s.lanes.doubted.first != nil) && p.allows(now) == 0 {
		s.alarm.set(p.from(), now)
	}
}

// load copies the messages out of their batches into one slice, and counts the attempt.
func (r *run) load() []penstock.Message {
	msgs := slices.Grow(r.msgs[:0], len(r.entries))[:len(r.entries)]
	r.msgs = msgs
	for i, e := range r.entries {
		msgs[i] = e.batch.Messages[e.index]
	}
	for _, t := range r.retries {
		msgs[t.index].Attempt += t.tries
	}
	return msgs
}

// begin returns the context of the next Send.
func (r *run) begin(timeout time.Duration) context.Context {
	if r.ctx != nil && r.ctx.Err() == nil && r.term.Err() == nil {
		r.timeout.Reset(timeout)
		return r.ctx
	}
	r.close()
	r.ctx, r.cancel = context.WithCancel(r.term)
	r.timeout = time.AfterFunc(timeout, r.cancel)
	return r.ctx
}

func (r *run) close() {
	if r.cancel != nil {
		r.timeout.Stop()
		r.cancel()
	}
}
