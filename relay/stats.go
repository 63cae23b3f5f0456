package relay

import (
	"context"
	"time"
)

// stats counts events since the last log line about them. The session's mutex guards it.
type stats struct {
	delivered, refused, retried, filtered, parked, dead int
}

// statsLoop logs the events of the minute, if there were any.
func (s *session) statsLoop(ctx context.Context) {
	for sleep(ctx, nil, time.Minute) {
		s.mu.Lock()
		was, inFlight := s.stats, s.ledger.Messages()
		s.stats = stats{}
		s.mu.Unlock()
		if was != (stats{}) {
			s.log.Info("the last minute", "delivered", was.delivered, "refused", was.refused, "retried", was.retried,
				"filtered", was.filtered, "parked", was.parked, "dead", was.dead, "in_flight", inFlight)
		}
	}
}
