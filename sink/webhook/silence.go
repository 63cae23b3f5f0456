package webhook

import (
	"sync"
	"sync/atomic"
	"time"
)

// silence distinguishes a message that gets no answer from an endpoint that gives none. A connection that
// breaks, or an answer that does not come, may be the fault of the message or of the endpoint. So
// the endpoint is blamed, which costs no message an attempt, unless it has shown since that it
// answers others:
//
//   - while this one was waited for, if that was long: in the second half of the
//     wait another message was answered;
//   - since the message failed like this the last time: a request that began after
//     that was answered.
//
// A message that upsets an endpoint costs one short pause of the subscription, then its own
// attempts. An endpoint that is down costs no message an attempt.
type silence struct {
	start    time.Time
	long     time.Duration // a wait of at least this is long
	answered atomic.Int64  // when the endpoint answered last
	began    atomic.Int64  // when the latest request began that was answered
	count    atomic.Int64  // of unanswered

	mu         sync.Mutex
	unanswered map[string]int64 // message id → when it failed last
}

// maxUnanswered bounds the ids that are remembered. A forgotten message is presumed innocent once
// more.
const maxUnanswered = 4096

func newSilence(long time.Duration) *silence {
	return &silence{start: time.Now(), long: long, unanswered: map[string]int64{}}
}

// broken notes an answer to the message id, whose request began then.
func (s *silence) broken(id string, began time.Time) {
	raise(&s.answered, s.at(time.Now()))
	raise(&s.began, s.at(began))
	if s.count.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unanswered, id)
	s.count.Store(int64(len(s.unanswered)))
}

// about notes that the message id got no answer, to a request that began then,
// and reports whether the message is to blame.
func (s *silence) about(id string, began time.Time) bool {
	now, waited := s.at(time.Now()), time.Since(began)
	if waited >= s.long && s.answered.Load() > now-int64(waited)/2 {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	previous, again := s.unanswered[id]
	if !again && len(s.unanswered) >= maxUnanswered {
		for other := range s.unanswered {
			delete(s.unanswered, other)
			break
		}
	}
	s.unanswered[id] = now
	s.count.Store(int64(len(s.unanswered)))
	return again && s.began.Load() > previous
}

// at is a moment as nanoseconds since start, by the monotonic clock.
func (s *silence) at(t time.Time) int64 { return int64(t.Sub(s.start)) }

// raise sets v to at least to.
func raise(v *atomic.Int64, to int64) {
	for {
		old := v.Load()
		if to <= old || v.CompareAndSwap(old, to) {
			return
		}
	}
}
