package relay

import (
	"context"
	"time"
)

// stats counts what happened since the last log line about it. The session's mutex guards it.
type stats struct {
	delivered, refused, retried, filtered, parked, dead int
}

// statsLoop logs once a minute what happened, if anything did.
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
