package relay

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/inflight"
)

// sourceTimeout ends a call to the source that hangs, for example on a connection that was cut
// silently.
const sourceTimeout = time.Minute

// closeTimeout is how long giving the lease back may take.
const closeTimeout = 2 * time.Second

var errOver = errors.New("the session is over")

// session is the relay between Open and Close of one source: one
// lease term. Everything in memory belongs to it and is dropped
// with it.
type session struct {
	cfg    *config
	log    *slog.Logger
	source driver.Source
	drain  <-chan struct{}
	stop   context.CancelCauseFunc

	mu   sync.Mutex
	cond sync.Cond // senders wait on it for something to send
	// guarded by mu:
	lanes      *lanes
	ledger     inflight.Ledger[inLanes]
	breaker    breaker
	lease      lease
	alarm      alarm
	stats      stats
	notes      notes
	noted      bool // there are notes
	generation int  // counts rewinds
	running    int  // Sends
	starved    bool // the fetcher waits for room
	enqueuing  bool // a batch is half in lanes
	draining   bool
	drainBy    time.Time

	// Shown by Status: since when the sink accepts nothing, and why.
	sinkDown time.Time
	sinkWhy  string

	confirms    uint64   // messages that the sink confirmed
	provisional []*entry // refused since the last confirm, on their first attempt
	// For park.go: Fetch and Settle.
	fetches   uint64 // that began
	lingering []lingering

	lapseTimer *time.Timer
	// lapseUnsaid: the lease has lapsed, and the log does not say so yet.
	lapseUnsaid bool

	// Notifications, with room for one.
	freed    chan struct{} // the ledger got smaller
	done     chan struct{} // more of the first batches have all their verdicts
	hurry    chan struct{} // the cursor should be written now
	renewNow chan struct{}

	sinkNews chan struct{} // sinkDown changed

	sent chan struct{} // closed after the last Send

	policy retryPolicy
	filter *penstock.Filter // nil: all are chosen

	sourceLog, maintainLog throttle
	noteLogs               [noteKinds]throttle
}

func newSession(cfg *config, log *slog.Logger, source driver.Source, drain <-chan struct{}) *session {
	ordered, ok := cfg.sink.(driver.InOrderSink)
	s := &session{
		cfg: cfg, log: log, source: source, drain: drain,
		lanes:    newLanes(ok && ordered.KeepsOrder()),
		ledger:   inflight.Ledger[inLanes]{MaxMessages: cfg.MaxInFlight, MaxBytes: cfg.MaxInFlightBytes},
		breaker:  newBreaker(cfg.RetryMin, cfg.RetryMax),
		policy:   retryPolicy{&cfg.Options, spread},
		lease:    lease{length: cfg.Lease, lapsed: true},
		freed:    make(chan struct{}, 1),
		done:     make(chan struct{}, 1),
		hurry:    make(chan struct{}, 1),
		renewNow: make(chan struct{}, 1),
		sinkNews: make(chan struct{}, 1),
		sent:     make(chan struct{}),
	}
	s.cond.L = &s.mu
	if !cfg.Filter.Empty() {
		s.filter = &cfg.Filter
	}
	s.alarm.wake = func() { s.mu.Lock(); s.alarm.at = time.Time{}; s.cond.Signal(); s.mu.Unlock() }
	s.sourceLog.log, s.maintainLog.log = log, log
	for i := range s.noteLogs {
		s.noteLogs[i].log = log
	}
	return s
}

// run relays until the drain is finished (nil), ctx ends (its error) or the
// source is lost (any other error). Every call to the sink and the source has returned
// when run does. opened is when the call that took the lease began.
func (s *session) run(parent context.Context, opened time.Time) error {
	ctx, stop := context.WithCancelCause(parent)
	s.stop = stop
	if s.lease.extend(ctx, opened, time.Now()) {
		s.cfg.Observer.Lease(true)
	}
	s.lapseTimer = time.AfterFunc(time.Until(s.lease.until), s.checkLease)
	defer s.lapseTimer.Stop()
	defer s.alarm.stop()
	defer context.AfterFunc(ctx, s.wakeAll)()

	var senders, settler, others sync.WaitGroup
	for range s.cfg.Senders {
		senders.Go(func() { s.sendLoop(ctx) })
	}
	settler.Go(func() { s.settleLoop(ctx) })
	others.Go(func() { s.fetchLoop(ctx) })
	others.Go(func() { s.renewLoop(ctx, opened) })
	others.Go(func() { s.watchDrain(ctx) })
	others.Go(func() { s.statsLoop(ctx) })
	if reporter, ok := s.source.(driver.SinkReporter); ok {
		others.Go(func() { s.reportLoop(ctx, reporter) })
	}
	others.Go(func() { s.maintainLoop(ctx) })

	senders.Wait()
	close(s.sent)
	settler.Wait()
	err := context.Cause(ctx) // nil after a drain
	stop(errOver)
	others.Wait()
	s.close(parent)
	if parent.Err() != nil && err != nil {
		return parent.Err()
	}
	return err
}

// close gives the lease back.
func (s *session) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := s.source.Close(ctx); err != nil && !errors.Is(err, penstock.ErrFenced) {
		s.log.Warn("could not give the lease back; it expires", "err", err, "lease", s.cfg.Lease)
	}
	s.mu.Lock()
	if s.lease.lapse() {
		s.cfg.Observer.Lease(false)
	}
	s.mu.Unlock()
	s.cfg.Observer.InFlight(0)
	s.cfg.Observer.Sink(SinkUp) // nothing is sent, so nothing is known
}

// lost ends the session if err says that its source is no longer usable: another relay has the
// subscription now, or its outbox was dropped.
func (s *session) lost(err error) bool {
	if errors.Is(err, penstock.ErrFenced) || errors.Is(err, penstock.ErrNoOutbox) || errors.Is(err, penstock.ErrClosed) {
		s.stop(err)
		return true
	}
	return false
}

func (s *session) wakeAll() {
	s.mu.Lock()
	s.cond.Broadcast()
	s.mu.Unlock()
}

// watchDrain turns the call of Drain into the state that senders look at, and ends Sends that
// exceed DrainTimeout.
func (s *session) watchDrain(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-s.drain:
	}
	s.mu.Lock()
	s.draining, s.drainBy = true, time.Now().Add(s.cfg.DrainTimeout)
	s.parkWaiting()
	s.cond.Broadcast()
	s.unlock()
	if !sleep(ctx, s.sent, s.cfg.DrainTimeout) {
		return
	}
	s.mu.Lock()
	running := s.running
	if !s.lease.lapsed {
		s.lease.end()
	}
	s.mu.Unlock()
	s.log.Warn("calls of the sink did not end in time and are given up; their messages are sent again by the next relay", "calls", running, "drain_timeout", s.cfg.DrainTimeout)
}

// maintainLoop does the outbox's maintenance about once a second.
func (s *session) maintainLoop(ctx context.Context) {
	for sleep(ctx, nil, time.Second) {
		call, cancel := context.WithTimeout(ctx, sourceTimeout)
		err := s.cfg.store.Maintain(call, s.cfg.outbox)
		cancel()
		if err != nil && ctx.Err() == nil {
			s.maintainLog.Log(slog.LevelWarn, "maintenance failed; space is not freed until it succeeds", "err", err)
		}
	}
}

// notify wakes the goroutine that waits on c, now or when it next looks.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// alarm calls wake at the earliest of the times it was set to. The session's mutex guards it.
type alarm struct {
	wake  func()
	at    time.Time // zero: not set
	timer *time.Timer
}

func (a *alarm) set(at, now time.Time) {
	if at.IsZero() || (!a.at.IsZero() && !at.Before(a.at)) {
		return
	}
	a.at = at
	if a.timer == nil {
		a.timer = time.AfterFunc(at.Sub(now), a.wake)
		return
	}
	a.timer.Reset(at.Sub(now))
}

func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}
