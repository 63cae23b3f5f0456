package relay

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/penstock/penstock/driver"
)

// reportLoop reports to the source that the sink is down, and that it is back.
func (s *session) reportLoop(ctx context.Context, to driver.SinkReporter) {
	said := time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.sinkNews:
		}
		s.mu.Lock()
		down, why := s.sinkDown, s.sinkWhy
		s.mu.Unlock()
		if down.IsZero() && said.IsZero() {
			continue // it was down only for a moment
		}
		call, cancel := context.WithTimeout(ctx, sourceTimeout)
		err := to.ReportSink(call, down, why)
		cancel()
		switch {
		case err == nil:
			said = down
		case ctx.Err() != nil || s.lost(err):
			return
		default:
			said = time.Now() // it may have taken effect
			s.sourceLog.Log(slog.LevelWarn, "cannot report the state of the sink to penstock status; trying again", "err", err)
			if !sleep(ctx, nil, time.Second) {
				return
			}
			notify(s.sinkNews)
		}
	}
}

// sinkError is the part of an error's text that status can keep.
func sinkError(text string) string {
	text = storable(text)
	if len(text) > driver.MaxSinkErrorBytes {
		text = strings.ToValidUTF8(text[:driver.MaxSinkErrorBytes], "")
	}
	return text
}
