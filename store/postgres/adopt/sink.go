package adopt

import (
	"context"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

var (
	_ driver.SinkReporter = (*Source)(nil)
	_ driver.SinkReporter = (*Worker)(nil)
)

// sink is how the sink is, as the relay says.
type sink struct {
	down *time.Time // nil: it takes messages
	why  string
}

// ReportSink implements driver.SinkReporter. It goes into the log, with each row from now on; should a
// Renew that had begun before write the last one, until the next.
func (s *Source) ReportSink(ctx context.Context, down time.Time, why string) error {
	if s.isClosed() {
		return penstock.ErrClosed
	}
	said := sink{why: why}
	if !down.IsZero() {
		said.down = &down
	}
	s.mu.Lock()
	s.sink = said
	s.mu.Unlock()
	return s.log(ctx, s.lease.length)
}
