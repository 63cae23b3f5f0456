package relay

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/penstock/penstock/driver"
)

// fetchLoop fetches ahead of sending until the drain or the end of the session.
func (s *session) fetchLoop(ctx context.Context) {
	retry := backoff{least: 100 * time.Millisecond, most: 5 * time.Second}
	last := time.Now() // when messages arrived
	for {
		limit, ok := s.waitForRoom(ctx)
		if !ok {
			return
		}
		s.mu.Lock()
		s.fetches++
		s.mu.Unlock()
		began := time.Now()
		call, cancel := context.WithTimeout(ctx, sourceTimeout)
		b, err := s.source.Fetch(call, limit)
		cancel()
		switch {
		case err == nil:
			retry.reset()
			s.cfg.Observer.Fetched(len(b.Messages), time.Since(began))
		case ctx.Err() != nil || s.lost(err):
			return
		default:
			wait := retry.next()
			s.sourceLog.Log(slog.LevelWarn, "cannot fetch messages; trying again", "err", err, "in", wait)
			if !sleep(ctx, s.drain, wait) {
				return
			}
			continue
		}
		if !s.enqueue(b) {
			return
		}
		now := time.Now()
		if len(b.Messages) > 0 {
			last = now
		}
		if b.More || len(b.Messages) >= limit.Messages {
			continue
		}
		if !sleep(ctx, s.drain, apart(s.pollPause(now.Sub(last)))) {
			return
		}
	}
}

// pollPause is the pause before the next fetch: an eighth of the silence so far. While messages
// keep coming, the next fetch is about a PollMin away. After eight PollMax of silence there is one
// fetch per PollMax.
func (s *session) pollPause(silence time.Duration) time.Duration {
	return min(max(silence/8, s.cfg.PollMin), s.cfg.PollMax)
}

// waitForRoom waits until the window has room for a fetch; false means that
// there will be no more fetches.
func (s *session) waitForRoom(ctx context.Context) (driver.Limit, bool) {
	for {
		s.mu.Lock()
		limit, ok := s.ledger.Room()
		s.starved = !ok
		if s.starved && s.ledger.Pressing() {
			notify(s.hurry)
		}
		if s.stuck() {
			s.cond.Signal()
		}
		over := s.draining
		s.mu.Unlock()
		if over || ok {
			return limit, ok && !over
		}
		select {
		case <-s.freed:
		case <-s.drain:
			return limit, false
		case <-ctx.Done():
			return limit, false
		}
	}
}

// enqueueChunk is how many messages go into lanes under one hold of the mutex. Senders can begin
// with the first while the last are sorted.
const enqueueChunk = 512

// enqueue takes a fetched batch into the ledger and its messages into lanes. It reports whether
// fetching continues. During a drain, the batch that was fetched last is left for the next relay.
func (s *session) enqueue(b driver.Batch) bool {
	if b.Rewound {
		s.log.Warn("the source went back to the settled position; unsettled messages are read again, and may be sent twice")
	}
	s.mu.Lock()
	fetch := s.fetches // only this goroutine fetches
	s.clearParkPoints(fetch)
	if b.Rewound {
		s.forget()
	}
	if s.draining {
		s.mu.Unlock()
		return false
	}
	if len(b.Messages) == 0 {
		s.mu.Unlock()
		return true
	}
	s.enqueuing = true
	t := s.ledger.Batch(b)
	entries := slices.Grow(t.Of.entries[:0], len(b.Messages))[:len(b.Messages)] // once all are in lanes, t may be settled and reused
	t.Of = inLanes{entries: entries}
	s.mu.Unlock()

	skipped := 0
	for i := range b.Messages {
		m := &b.Messages[i]
		size := m.Size()
		entries[i] = entry{batch: t, index: uint32(i), size: uint32(size)}
		t.Bytes += size
		if s.filter != nil && !s.filter.Match(m) {
			entries[i].skip = true
			skipped++
		}
	}

	t.Since = time.Now()
	for from := 0; from < len(entries); from += enqueueChunk {
		to := min(from+enqueueChunk, len(entries))
		s.mu.Lock()
		if from == 0 {
			s.ledger.Add(t)
			s.cfg.Observer.InFlight(s.ledger.Messages())
		}
		if b.KeyOrder == nil && b.GivenUp == nil && skipped == 0 && s.lanes.parking == 0 {
			s.lanes.add(entries[from:to])
		} else {
			s.place(entries[from:to], fetch)
			s.advance()
		}
		s.enqueuing = to < len(entries)
		s.cond.Signal()
		s.unlock()
	}
	return true
}

// forget drops messages that were fetched and not settled: they will be fetched again.
func (s *session) forget() {
	s.generation++
	s.forgetParkPoints()
	s.ledger.Forget()
	s.lanes.forget()
	clear(s.provisional)
	s.provisional = s.provisional[:0]
	notify(s.freed)
	s.cond.Broadcast() // a drain may have nothing left to wait for
}
