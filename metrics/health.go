package metrics

import (
	"cmp"
	"fmt"
	"time"

	"github.com/penstock/penstock/admin"
)

// Problem is why this process is not ready.
type Problem struct {
	Outbox       string `json:"outbox,omitempty"`
	Subscription string `json:"subscription,omitempty"`
	Queue        string `json:"queue,omitempty"`
	Why          string `json:"why"`
}

func (p Problem) String() string {
	switch {
	case p.Queue != "":
		return "queue " + p.Queue + ": " + p.Why
	case p.Subscription != "":
		return p.Outbox + "/" + p.Subscription + ": " + p.Why
	}
	return p.Why
}

// Problems returns the parts of this process that have stalled, one Problem for each:
//
//   - a subscription with a backlog that has settled nothing for StalledAfter, though its sink is up and
//     no other process holds it
//   - a queue with ready jobs of which none has run for StalledAfter
//   - a database whose status cannot be read, or nothing of it by the role of a process that does nothing else
func (m *Metrics) Problems() []Problem {
	if m.o.Store == nil {
		return nil
	}
	r := m.status()
	if r.err != nil {
		return []Problem{{Why: "the status of the database cannot be read; the log says why"}}
	}
	if err := m.nothingToRead(r); err != nil {
		return []Problem{{Why: "the role may read no outbox, queue or inbox: " + err.Error()}}
	}
	return r.stalled
}

// nothingToRead is the reason why a process that only reads the status may read nothing of it, or
// nil.
func (m *Metrics) nothingToRead(r *reading) (why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.watched)+len(m.queues)+len(m.tables) > 0 || m.ingests {
		return nil
	}
	if len(r.queues) > 0 { // some of them
		return nil
	}
	for _, part := range []string{"inboxes", "queues", "outboxes"} {
		if err, asked := r.refused[part]; asked && err == nil && (part != "inboxes" || len(r.inboxes) > 0) { // any role sees that there is no inbox
			return nil
		} else if asked {
			why = cmp.Or(err, why)
		}
	}
	return why
}

// move is the last known progress of something, and when it last progressed.
type move struct {
	to int64
	at time.Time
}

// moved notes how far something has got, or that it has nothing to do, and returns how long it has not moved.
func (m *Metrics) moved(what string, to int64, idle bool, now time.Time) time.Duration {
	last, seen := m.moves[what]
	if !seen || idle || last.to != to {
		last = move{to, now}
		m.moves[what] = last
	}
	return now.Sub(last.at)
}

// findStalled is called with the reading locked.
func (m *Metrics) findStalled(r *reading) (stalled []Problem) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range r.outboxes {
		for j := range r.outboxes[i].Subscriptions {
			s := &r.outboxes[i].Subscriptions[j]
			observers, ours := m.watched[subscription{r.outboxes[i].Outbox, s.Subscription}]
			if !ours {
				continue
			}
			elsewhere, sinkUp := m.conditions(s, observers)
			still := m.moved("s "+r.outboxes[i].Outbox+"\x00"+s.Subscription, s.Settled, s.Backlog == 0 || !sinkUp, r.at)
			if elsewhere || min(still, s.OldestAge) < m.o.StalledAfter {
				continue
			}
			why := fmt.Sprintf("%d messages wait, the oldest for %s, the sink is up, and nothing was settled for %s", s.Backlog, s.OldestAge.Round(time.Second), still.Round(time.Second))
			if s.Holder == "" {
				why = fmt.Sprintf("%d messages wait, the oldest for %s, and no relay holds the lease", s.Backlog, s.OldestAge.Round(time.Second))
			}
			stalled = append(stalled, Problem{Outbox: r.outboxes[i].Outbox, Subscription: s.Subscription, Why: why})
		}
	}
	for i := range r.queues {
		q := &r.queues[i]
		if !m.queues[q.Queue] {
			continue
		}
		idle := q.Ready == 0 || q.Running > 0 || q.Paused != nil && *q.Paused
		still := m.moved("q "+q.Queue, 0, idle, r.at)
		if !idle && min(still, q.OldestAge) >= m.o.StalledAfter {
			stalled = append(stalled, Problem{Queue: q.Queue, Why: fmt.Sprintf("%d jobs are ready, the oldest for %s, and none has been seen to run for %s", q.Ready, q.OldestAge.Round(time.Second), still.Round(time.Second))})
		}
	}
	return stalled
}

// conditions of a subscription: whether another process holds it, and whether its sink is up, if that
// is known.
func (m *Metrics) conditions(s *admin.SubscriptionStatus, observers []*RelayObserver) (elsewhere, sinkUp bool) {
	elsewhere, sinkUp = s.Holder != "" && s.Holder != m.o.Holder, s.SinkDown.IsZero()
	for _, o := range observers {
		if o.held.Load() != 0 {
			elsewhere = false
			sinkUp = sinkUp && o.sink.Load() == 0
		}
	}
	return elsewhere, sinkUp
}
